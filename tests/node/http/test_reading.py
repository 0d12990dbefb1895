"""Reading by position over HTTP: parts, waits, times, Arrow, and places that are not there."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pyarrow as pa

from tests.node.http.nodes import HttpNode

Json = dict[str, Any]


def send(http: httpx.Client, topic: str, *values: str) -> None:
    body = {"messages": [{"value": value} for value in values]}
    http.post(f"/v1/topics/{topic}/messages", json=body).raise_for_status()


def read(http: httpx.Client, topic: str, **params: Any) -> Json:
    answer = http.get(f"/v1/topics/{topic}/messages", params=params)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def test_a_topic_is_read_part_by_part(http: httpx.Client, topic: str) -> None:
    send(http, topic, *"abc")
    send(http, topic, *"de")
    values, entry = [], 0
    while entry < 5:
        part = read(http, topic, entry=entry, count=2)
        values.append([each["value"] for each in part["messages"]])
        entry = part["entry_next"]
    assert [each for part in values for each in part] == [*"abcde"]
    assert max(map(len, values)) == 2
    assert read(http, topic, entry=1, end=3)["messages"][-1]["value"] == "c"
    assert read(http, topic, entry=5) | {"messages": []} == read(http, topic, entry=5)
    assert read(http, topic, start="latest")["entry_next"] == 5
    assert len(read(http, topic, start="2020-01-01T00:00:00Z")["messages"]) >= 3
    ends = http.get(f"/v1/topics/{topic}/ends").json()
    assert [(each["entry_first"], each["entry_next"]) for each in ends["shards"]] == [(0, 5)]


def test_arrow_has_the_same_rows(http: httpx.Client, topic: str) -> None:
    send(http, topic, *"abcd")
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = http.get(f"/v1/topics/{topic}/messages", params={"entry": 1, "count": 2}, headers=accept)
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("value").to_pylist() == [b"b", b"c"]
    assert table.column("entry").to_pylist() == [1, 2]
    node = http.get("/v1/node").json()["node"]
    assert table.column("node").to_pylist() == [node, node]
    assert [message["node"] for message in read(http, topic)["messages"]] == [node] * 4
    assert (answer.headers["headpond-entry-next"], answer.headers["headpond-entry-end"]) == ("3", "4")


def test_a_read_that_waits_is_answered_when_a_message_comes(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    http.post("/v1/topics", json={"topic": topic, "shards": 2}).raise_for_status()
    found: list[Json] = []

    def wait() -> None:
        with door.client() as other:
            found.extend(read(other, topic, shard=shard, entry=0, wait=50)["messages"])

    keyed = {"value": "there", "key": "k"}
    other = http.post(f"/v1/topics/{topic}/messages", json=keyed).json()["receipts"][0]
    shard = 1 - other["shard"]
    waiting = threading.Thread(target=wait)
    waiting.start()
    while not found and waiting.is_alive():
        send(http, topic, "here")  # to one shard or the other
        waiting.join(0.2)
    assert found[0]["value"] == "here"


def test_places_that_are_not_there_are_refused(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    path = f"/v1/topics/{topic}/messages"
    for params, status, code in (
        ({"shard": 1}, 400, "bad-request"),
        ({"entry": -1}, 400, "bad-request"),
        ({"entry": 10**30}, 400, "bad-request"),
        ({"start": "noon"}, 400, "bad-request"),
        ({"filter": "value ="}, 400, "bad-filter"),
        ({"incarnation": 99, "entry": 0}, 409, "incarnation-changed"),
    ):
        answer = http.get(path, params=params)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
