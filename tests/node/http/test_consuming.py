"""Subscriptions over HTTP: fetched, settled, held between requests, released when the client stays away."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

import httpx

from tests.node.http.nodes import HttpNode

Json = dict[str, Any]


def send(http: httpx.Client, topic: str, *values: str) -> None:
    body = {"messages": [{"value": value} for value in values]}
    http.post(f"/v1/topics/{topic}/messages", json=body).raise_for_status()


def fetch(http: httpx.Client, topic: str, sub: str = "s", **params: Any) -> list[Json]:
    answer = http.post(f"/v1/topics/{topic}/subscriptions/{sub}/fetch", params=params)
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["messages"]
    return found


def settle(http: httpx.Client, how: str, topic: str, *positions: str, **more: Any) -> httpx.Response:
    body = {"positions": list(positions), **more}
    return http.post(f"/v1/topics/{topic}/subscriptions/s/{how}", json=body)


def test_messages_are_fetched_and_settled_each_in_its_way(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", "c")
    found = fetch(http, topic, count=10, wait=5)
    assert [(each["value"], each["position"].partition("@")[0], each["attempt"]) for each in found] == [
        ("a", "0/0", 1),
        ("b", "0/1", 1),
        ("c", "0/2", 1),
    ]
    assert settle(http, "ack", topic, found[0]["position"]).json() == {"settled": 1}
    assert settle(http, "skip", topic, "0/1").json() == {"settled": 1}
    assert settle(http, "nack", topic, "0/2", delay=0).json() == {"settled": 1}
    (again,) = fetch(http, topic, wait=10)
    assert (again["value"], again["attempt"]) == ("c", 2)
    assert settle(http, "ack", topic, "0/2").status_code == 200
    shown = http.get(f"/v1/topics/{topic}/subscriptions/s").json()
    assert (shown["acked"], shown["skipped"], shown["unsettled"]) == (2, 1, 0)


def test_unacked_and_skipped_messages_are_listed(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", "c")
    fetch(http, topic, count=10, wait=5)
    settle(http, "skip", topic, "0/1")
    settle(http, "nack", topic, "0/0", "0/2", delay=60, reason="no oven " + "x" * 600)
    listed = f"/v1/topics/{topic}/subscriptions/s"
    assert http.get(f"{listed}/skipped").json() == [{"shard": 0, "first": 1, "end": 2}]
    first, second = http.get(f"{listed}/unacked").json()
    assert (first["entry"], first["attempts"], first["waits_for"]) == (0, 1, "time")
    assert first["reason"].startswith("no oven x") and len(first["reason"]) == 512
    assert http.get(f"{listed}/unacked", params={"limit": 1}).json() == [first]
    assert http.get(f"{listed}/unacked", params={"start": "0/1"}).json() == [second]
    assert http.get(f"{listed}/unacked", params={"limit": 0}).status_code == 400
    assert settle(http, "extend", topic, "0/2", reason="more dough").status_code == 400
    assert http.get(f"{listed}/skipped", params={"start": "here"}).json()["code"] == "bad-request"


def test_a_position_that_is_not_held_cannot_be_settled_and_the_others_are(
    http: httpx.Client, topic: str
) -> None:
    send(http, topic, "a")
    fetch(http, topic, wait=5)
    answer = settle(http, "ack", topic, "0/0", "0/7")
    assert (answer.status_code, answer.json()["code"], answer.json()["positions"]) == (409, "not-held", ["0/7"])
    assert http.get(f"/v1/topics/{topic}/subscriptions/s").json()["acked"] == 1
    assert settle(http, "ack", topic, "nonsense").status_code == 400
    assert settle(http, "ack", topic).status_code == 400


def test_a_fetch_that_waits_is_answered_when_a_message_comes(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    send(http, topic, "first")
    assert (
        settle(http, "ack", topic, *(each["position"] for each in fetch(http, topic, wait=5))).status_code
        == 200
    )
    found: list[Json] = []

    def wait() -> None:
        with door.client() as other:
            found.extend(fetch(other, topic, wait=30))

    waiting = threading.Thread(target=wait)
    waiting.start()
    send(http, topic, "second")
    waiting.join(30)
    assert [each["value"] for each in found] == ["second"]
    assert fetch(http, topic, wait=0) == []


def test_messages_for_a_client_that_hung_up_come_with_the_next_fetch(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    send(http, topic, "a")
    assert len(fetch(http, topic, sub="other", wait=5)) == 1
    assert fetch(http, topic, wait=5)[0]["value"] == "a"
    with door.client() as other:
        other.timeout = httpx.Timeout(0.3)
        with contextlib.suppress(httpx.ReadTimeout):
            fetch(other, topic, wait=30)
    send(http, topic, "b")
    (found,) = fetch(http, topic, wait=10)
    assert (found["value"], found["attempt"]) == ("b", 1)


def test_two_names_share_a_subscription_and_one_that_lets_go_leaves_its_messages_to_the_other(
    http: httpx.Client, topic: str
) -> None:
    send(http, topic, *"abcdef")
    both: Json = {"kind": "shared", "wait": 5}
    mine = fetch(http, topic, consumer="one", count=3, **both)
    assert len(mine) == 3
    path = f"/v1/topics/{topic}/subscriptions/s/consumer"
    assert http.delete(path, params={"consumer": "one"}).json() == {"released": "one"}
    found: set[str] = set()
    while len(found) < 6:
        found |= {each["value"] for each in fetch(http, topic, consumer="two", count=10, **both)}
    assert found == set("abcdef")
    assert http.delete(path, params={"consumer": "one"}).status_code == 409


def test_a_resilient_subscription_hands_out_the_next_once_the_one_before_is_settled(
    http: httpx.Client, topic: str
) -> None:
    send(http, topic, "a", "b")
    (first,) = fetch(http, topic, count=10, wait=5, mode="resilient")
    assert first["value"] == "a"
    assert fetch(http, topic, count=10) == []
    settle(http, "ack", topic, "0/0").raise_for_status()
    (second,) = fetch(http, topic, count=10, wait=5)
    assert second["value"] == "b"


def test_a_consumer_that_nobody_fetches_with_gives_its_messages_back(tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("idle") / "node"
    with HttpNode(folder, more="[http_limits]\nconsumer_idle_s = 0.2\n") as node, node.client() as http:
        send(http, "t", "a")
        both: Json = {"kind": "shared", "wait": 20}
        assert len(fetch(http, "t", consumer="gone", **both)) == 1
        (found,) = fetch(http, "t", consumer="here", **both)
        assert found["value"] == "a"
        deadline = time.monotonic() + 20
        answer = settle(http, "ack", "t", "0/0")
        assert answer.status_code == 409
        assert time.monotonic() < deadline


def test_dead_messages_are_listed_and_offered_again(http: httpx.Client, topic: str) -> None:
    send(http, topic, "poison")
    made = {"subscription": "s", "policy": {"max_attempts": 1}}
    http.post(f"/v1/topics/{topic}/subscriptions", json=made).raise_for_status()
    fetch(http, topic, wait=5)
    settle(http, "nack", topic, "0/0", delay=0).raise_for_status()
    dead: list[Json] = []
    while not dead:
        dead = http.get(f"/v1/topics/{topic}/subscriptions/s/dead").json()
    assert (dead[0]["value"], dead[0]["shard"], dead[0]["entry"]) == ("poison", 0, 0)
    path = f"/v1/topics/{topic}/subscriptions/s/redrive"
    assert http.post(path, json={"positions": ["0/0"]}).json() == {"redriven": 1}
    assert fetch(http, topic, wait=10)[0]["value"] == "poison"


def test_a_fetch_that_waits_does_not_make_another_one_wait(door: HttpNode, topic: str) -> None:
    with door.client() as waiting, door.client() as http:
        http.post("/v1/topics", json={"topic": topic}).raise_for_status()
        found: list[list[Json]] = []
        thread = threading.Thread(target=lambda: found.append(fetch(waiting, topic, wait=60)))
        thread.start()
        while http.get(f"/v1/topics/{topic}/subscriptions/s").status_code == 404:
            time.sleep(0.05)
        assert fetch(http, topic) == []
        assert thread.is_alive() and not found
        send(http, topic, "a")
        thread.join()
    assert [each["value"] for each in found[0]] == ["a"]


def test_unsettled_messages_are_bounded_in_bytes(http: httpx.Client, topic: str) -> None:
    path, large = f"/v1/topics/{topic}/messages", {"Content-Type": "application/octet-stream"}
    for _ in range(7):
        http.post(path, content=os.urandom(7 * 1024 * 1024), headers=large).raise_for_status()
    places = [each["position"] for _ in range(5) for each in fetch(http, topic, count=1, wait=20)]
    full = http.post(f"/v1/topics/{topic}/subscriptions/s/fetch")
    assert (len(places), full.status_code, full.json()["code"]) == (5, 503, "limit")
    settle(http, "ack", topic, *places).raise_for_status()
    assert [each["entry"] for each in fetch(http, topic, count=1, wait=20)] == [5]
