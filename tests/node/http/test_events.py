"""Streams of events: by position, continued by their last id; and of a subscription, settled or come again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.node.http.nodes import HttpNode

Event = tuple[str, dict[str, Any]]
"""Its id and its data."""


def events(answer: httpx.Response) -> Iterator[Event]:
    found: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, text = line.partition(": ")
            found[name] = text
        elif found.get("event") == "message":
            yield found["id"], json.loads(found["data"])
            found = {}
        else:
            found = {}


def send(http: httpx.Client, topic: str, *values: str) -> None:
    body = {"messages": [{"value": value, "key": value} for value in values]}
    http.post(f"/v1/topics/{topic}/messages", json=body).raise_for_status()


def test_a_stream_sends_stored_messages_and_continues_after_the_last_id(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    http.post("/v1/topics", json={"topic": topic, "shards": 4}).raise_for_status()
    send(http, topic, *"abcdef")
    path = f"/v1/topics/{topic}/events"
    with door.client() as other, other.stream("GET", path, params={"start": "earliest"}) as answer:
        coming = events(answer)
        first = [next(coming) for _ in range(4)]
    last = first[-1][0]
    with door.client() as other, other.stream("GET", path, headers={"Last-Event-ID": last}) as answer:
        coming = events(answer)
        rest = [next(coming) for _ in range(2)]
        send(http, topic, "live")
        rest.append(next(coming))
    assert sorted(data["value"] for _, data in first + rest) == [*"abcdef", "live"]
    assert rest[-1][1]["value"] == "live"


def test_a_stream_without_a_start_sends_new_messages_only(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    send(http, topic, "before")
    with door.client() as other, other.stream("GET", f"/v1/topics/{topic}/events") as answer:
        send(http, topic, "after")
        assert next(events(answer))[1]["value"] == "after"


def test_an_id_of_another_topic_is_refused(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    path = f"/v1/topics/{topic}/events"
    refused = http.get(path, headers={"Last-Event-ID": "00" * 16 + "/1.5"})
    assert (refused.status_code, refused.json()["code"]) == (409, "topic-mismatch")
    assert http.get(path, headers={"Last-Event-ID": "nonsense"}).status_code == 400
    assert http.get("/v1/topics/nowhere/events").status_code == 404


def test_a_subscriptions_events_are_settled_by_ack_and_come_again_without(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    send(http, topic, *"abc")
    path = f"/v1/topics/{topic}/subscriptions/s"
    with door.client() as other, other.stream("POST", f"{path}/events") as answer:
        coming = events(answer)
        seen = [next(coming) for _ in range(3)]
        assert [data["value"] for _, data in seen] == [*"abc"]
        assert [at for at, _ in seen] == [data["position"] for _, data in seen]
        http.post(f"{path}/ack", json={"positions": ["0/0"]}).raise_for_status()
    headers = {"Last-Event-ID": str(seen[1][0])}
    with door.client() as other, other.stream("POST", f"{path}/events", headers=headers) as answer:
        assert next(events(answer))[1]["value"] == "c"
        assert http.get(path).json()["acked"] == 2


def test_a_message_that_is_settled_as_it_is_sent_does_not_come_again(
    door: HttpNode, http: httpx.Client, topic: str
) -> None:
    send(http, topic, *"abc")
    path = f"/v1/topics/{topic}/subscriptions/s"
    with door.client() as other, other.stream("POST", f"{path}/events", params={"ack": "sent"}) as answer:
        coming = events(answer)
        assert [next(coming)[1]["value"] for _ in range(3)] == [*"abc"]
    while http.get(path).json()["acked"] < 3:
        pass
    assert http.post(f"{path}/fetch").json()["messages"] == []


def test_metrics_have_r_and_ur_of_every_hop(http: httpx.Client, topic: str) -> None:
    for _ in range(2):  # the second is a segment that comes again
        http.post(
            f"/v1/topics/{topic}/messages", json={"value": "a"}, headers={"Idempotency-Key": "once"}
        ).raise_for_status()
    http.post(f"/v1/topics/{topic}/messages", json={"value": "b"}).raise_for_status()
    path = f"/v1/topics/{topic}/subscriptions"
    http.post(path, json={"subscription": "s"}).raise_for_status()
    assert len(http.post(f"{path}/s/fetch").json()["messages"]) == 2
    lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    name = f"default/default/default/{topic}"
    assert lines[f'headpond_topic_reliability{{topic="{name}"}}'] == "1.0"
    stored = float(lines[f'headpond_topic_segments_total{{topic="{name}"}}'])
    again = float(lines[f'headpond_topic_duplicates_total{{topic="{name}"}}'])
    assert again == 1
    assert float(lines[f'headpond_topic_uniqueness{{topic="{name}"}}']) == stored / (stored + again)
    one = f'{{subscription="s",topic="{name}"}}'
    assert lines[f"headpond_subscription_reliability{one}"] == "1.0"
    assert lines[f"headpond_subscription_uniqueness{one}"] == "1.0"


def test_metrics_cover_topics_subscriptions_and_http(http: httpx.Client, topic: str) -> None:
    send(http, topic, *"abc")
    http.post(f"/v1/topics/{topic}/subscriptions", json={"subscription": "s"}).raise_for_status()
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    name = f"default/default/default/{topic}"
    assert f'headpond_topic_messages_in_total{{topic="{name}"}} 3.0' in answer.text
    assert f'headpond_subscription_lag{{subscription="s",topic="{name}"}} 3.0' in answer.text
    assert "headpond_http_requests 1.0" in answer.text
    assert 'headpond_node_events_total{event="messages_stored"}' in answer.text


def test_an_id_that_no_stream_gave_is_refused(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    uuid = http.get(f"/v1/topics/{topic}").json()["uuid"]
    for last in ("nonsense", f"{uuid}/1", f"{uuid}/1.-1", f"{uuid}/1.{2**64}"):
        answer = http.get(f"/v1/topics/{topic}/events", headers={"Last-Event-ID": last})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), last
