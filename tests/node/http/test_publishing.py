"""Messages sent over HTTP: what is taken, what comes back, and what a repeat does."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.fire.real_node import wait_until
from tests.node.http.nodes import HttpNode

Json = dict[str, Any]


def published(http: httpx.Client, topic: str, body: Json, **headers: str) -> Json:
    answer = http.post(f"/v1/topics/{topic}/messages", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def stored(http: httpx.Client, topic: str, shard: int = 0) -> list[Json]:
    answer = http.get(f"/v1/topics/{topic}/messages", params={"shard": shard})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["messages"]
    return found


def test_one_message_and_many_are_stored_with_a_receipt_each(http: httpx.Client, topic: str) -> None:
    one = published(http, topic, {"value": "a", "key": "k", "id": "o-1", "headers": {"h": "1"}})
    many = published(
        http, topic, {"messages": [{"value": "b"}, {"value": {"base64": base64.b64encode(b"\xff").decode()}}]}
    )
    assert [each["outcome"] for each in one["receipts"] + many["receipts"]] == ["stored"] * 3
    assert [each["entry"] for each in one["receipts"] + many["receipts"]] == [0, 1, 2]
    first, second, third = stored(http, topic)
    assert (first["value"], first["key"], first["id"], first["headers"]) == ("a", "k", "o-1", {"h": "1"})
    assert second["value"] == "b"
    assert third["value"] == {"base64": "/w=="}
    assert [each["identity"] for each in one["receipts"]] == [first["identity"]]


def test_a_time_of_sending_is_kept_to_the_microsecond(http: httpx.Client, topic: str) -> None:
    for at in ("9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000001Z"):
        published(http, topic, {"value": "a", "sent_at": at})
        assert stored(http, topic)[-1]["sent_at"] == at


TRACE = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "shop=7"}


def test_the_trace_of_a_request_continues_in_messages_that_have_none(http: httpx.Client, topic: str) -> None:
    own = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-00"}
    body = {
        "messages": [{"value": "a"}, {"value": "b", "headers": {"till": "1"}}, {"value": "c", "headers": own}]
    }
    published(http, topic, body, **TRACE)
    for media in ("application/x-ndjson", "application/octet-stream"):
        headers = {"content-type": media, "traceparent": TRACE["traceparent"], "tracestate": "x" * 513}
        http.post(f"/v1/topics/{topic}/messages", content=b'{"value": "d"}', headers=headers).raise_for_status()
    cut = {"traceparent": TRACE["traceparent"]}
    assert [each["headers"] for each in stored(http, topic)] == [TRACE, TRACE | {"till": "1"}, own, cut, cut]


@pytest.mark.parametrize(
    "wrong", ["", "00-1-2-3", "x" * 55, TRACE["traceparent"].upper() + "0", "00-" + "a" * 4096]
)
def test_a_trace_that_is_none_is_ignored(http: httpx.Client, topic: str, wrong: str) -> None:
    published(http, topic, {"value": "a"}, traceparent=wrong, tracestate="shop=7")
    assert stored(http, topic)[0]["headers"] == {}


def test_a_repeat_under_a_key_may_come_in_another_trace(http: httpx.Client, topic: str) -> None:
    once = {"Idempotency-Key": "traced"}
    published(http, topic, {"value": "a"}, **once, **TRACE)
    other = TRACE["traceparent"].replace("b", "e")
    again = published(http, topic, {"value": "a"}, **once, traceparent=other)
    assert (again["duplicate"], stored(http, topic)[0]["headers"]) == (1, {})


def test_the_same_key_again_stores_nothing_and_returns_the_first_entry(http: httpx.Client, topic: str) -> None:
    http.post("/v1/topics", json={"topic": topic, "shards": 4}).raise_for_status()
    body = {"messages": [{"value": str(n), "key": f"k{n % 3}"} for n in range(20)] + [{"value": "no key"}]}
    first = published(http, topic, body, **{"Idempotency-Key": "batch-7"})
    again = published(http, topic, body, **{"Idempotency-Key": "batch-7"})
    places = [(each["shard"], each["entry"]) for each in first["receipts"]]
    assert (first["stored"], again["duplicate"], again["stored"]) == (21, 21, 0)
    assert places == [(each["shard"], each["entry"]) for each in again["receipts"]]
    assert sum(len(stored(http, topic, shard)) for shard in range(4)) == 21
    others = published(http, topic, body, **{"Idempotency-Key": "batch-8"})
    assert others["stored"] == 21


def test_the_same_key_for_other_messages_is_a_conflict(http: httpx.Client, topic: str) -> None:
    published(http, topic, {"value": "a"}, **{"Idempotency-Key": "once"})
    answer = http.post(f"/v1/topics/{topic}/messages", json={"value": "b"}, headers={"Idempotency-Key": "once"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert [each["value"] for each in stored(http, topic)] == ["a"]


def test_a_key_is_remembered_over_a_kill(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node") as node:
        for outcome in ("stored", "duplicate"):
            with node.client() as http:
                made = published(http, "orders", {"value": "a"}, **{"Idempotency-Key": "o-1"})
                assert [(each["outcome"], each["entry"]) for each in made["receipts"]] == [(outcome, 0)]
                assert len(stored(http, "orders")) == 1
            node.kill()
            if outcome == "stored":
                node.start()


def test_the_first_request_with_a_key_sets_the_time_of_its_message(http: httpx.Client, topic: str) -> None:
    at, key = "2023-11-14T22:13:20.123000Z", {"Idempotency-Key": "k"}
    body = {"messages": [{"value": "a"}, {"value": "b", "sent_at": at}]}
    for outcome in ("stored", "duplicate"):
        assert published(http, topic, body, **key)[outcome] == 2
        first, second = stored(http, topic)
        assert first["sent_at"] == first["stored_at"] and first["sent_at"] > at
        assert second["sent_at"] == at
    since = {"filter": "sent_at >= '2024-01-01T00:00:00Z'"}
    found = http.get(f"/v1/topics/{topic}/messages", params=since).json()["messages"]
    assert [message["value"] for message in found] == ["a"]


def test_a_keyed_message_that_dies_keeps_the_time_it_was_sent(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/subscriptions"
    published(http, topic, {"value": "a"}, **{"Idempotency-Key": "k"})
    (message,) = stored(http, topic)
    http.post(path, json={"subscription": "s", "policy": {"max_attempts": 1}}).raise_for_status()
    http.post(f"{path}/s/fetch?wait=5").raise_for_status()
    http.post(f"{path}/s/nack", json={"positions": ["0/0"]}).raise_for_status()
    wait_until(lambda: http.get(f"{path}/s").json()["dead"] == 1)
    (dead,) = http.get(f"{path}/s/dead").json()
    assert (dead["reason"], dead["sent_at"]) == ("max-attempts", message["sent_at"])


def test_rows_of_a_typed_topic_have_the_time_too(http: httpx.Client, topic: str) -> None:
    columns = [{"name": "n", "type": "int64"}]
    http.post("/v1/topics", json={"topic": topic, "schema": columns}).raise_for_status()
    for outcome in ("stored", "duplicate"):
        body = {"messages": [{"value": {"n": number}} for number in range(1000)]}
        assert published(http, topic, body, **{"Idempotency-Key": "k"})[outcome] == 1000
    assert all(message["sent_at"] == message["stored_at"] for message in stored(http, topic))


def test_lines_raw_bytes_and_arrow_are_taken_too(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    lines = b"".join(json.dumps({"value": str(n)}).encode() + b"\n" for n in range(3))
    assert (
        http.post(path, content=lines, headers={"Content-Type": "application/x-ndjson"}).json()["stored"] == 3
    )
    raw = {"Content-Type": "application/octet-stream", "Headpond-Header-Kind": "png"}
    answer = http.post(path, params={"key": "k", "id": "i"}, content=b"\x00\xff", headers=raw)
    assert answer.json()["stored"] == 1
    sink = io.BytesIO()
    table = pa.table({"value": pa.array([b"x", b"y"]), "key": pa.array([b"1", b"2"])})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": "t"}
    for outcome in ("stored", "duplicate"):
        assert http.post(path, content=sink.getvalue(), headers=arrow).json()[outcome] == 2
    found = stored(http, topic)
    assert [each["value"] for each in found] == ["0", "1", "2", {"base64": "AP8="}, "x", "y"]
    assert (found[3]["key"], found[3]["id"], found[3]["headers"]) == ("k", "i", {"kind": "png"})


def test_a_typed_topic_takes_objects_of_its_columns_and_gives_them_back(http: httpx.Client, topic: str) -> None:
    columns = [
        {"name": "at", "type": "timestamp[us, UTC]"},
        {"name": "amount", "type": "decimal128(10, 2)", "nullable": False},
        {"name": "tags", "type": "map<string, string>"},
        {"name": "raw", "type": "binary"},
        {"name": "counts", "type": "list<int32>"},
    ]
    http.post("/v1/topics", json={"topic": topic, "schema": columns}).raise_for_status()
    row: Json = {"at": "2026-01-02T03:04:05Z", "amount": "12.50", "tags": {"a": "b"}, "raw": {"base64": "/w=="}}
    row["counts"] = [1, 2]
    for outcome in ("stored", "duplicate"):
        made = published(http, topic, {"value": row, "key": "k"}, **{"Idempotency-Key": "r"})
        assert made[outcome] == 1
    assert published(http, topic, {"value": row})["stored"] == 1
    assert [each["value"] for each in stored(http, topic)] == [row, row]
    for wrong, named in (
        ({"amount": "1", "colour": "red"}, "colour"),
        ({"amount": "1", "counts": [1, 1.5]}, "'counts[1]'"),
    ):
        refused = http.post(f"/v1/topics/{topic}/messages", json={"value": wrong})
        assert (refused.status_code, refused.json()["code"]) == (400, "schema-mismatch")
        assert named in refused.json()["message"]


def test_a_typed_value_keeps_all_of_its_digits_or_is_refused(http: httpx.Client, topic: str) -> None:
    columns = [
        {"name": "amount", "type": "decimal128(38, 10)"},
        {"name": "count", "type": "int64"},
        {"name": "at", "type": "timestamp[ns]"},
    ]
    http.post("/v1/topics", json={"topic": topic, "schema": columns}).raise_for_status()
    path, as_json = f"/v1/topics/{topic}/messages", {"Content-Type": "application/json"}

    def publish(value: bytes) -> httpx.Response:
        return http.post(path, content=b'{"value": {%s}}' % value, headers=as_json)

    assert publish(b'"amount": 1234567890123456789.0123456789, "count": 9007199254740993.0').is_success
    for wrong, column in (
        (b'"amount": 0.12345678901', "amount"),
        (b'"amount": "1e-999999999"', "amount"),
        (b'"amount": 1e-999999999', "amount"),
        (b'"count": 9007199254740993.5', "count"),
        (b'"at": "2026-01-02T03:04:05.123456789"', "at"),
        (b'"at": "2026-01-02T03:04:05Z"', "at"),
    ):
        refused = publish(wrong)
        assert (refused.status_code, refused.json()["code"]) == (400, "schema-mismatch"), wrong
        assert f"column '{column}'" in refused.json()["message"]
    (kept,) = stored(http, topic)
    assert kept["value"] == {"amount": "1234567890123456789.0123456789", "count": 9007199254740993, "at": None}


@pytest.mark.parametrize(
    ("content", "media", "status", "code"),
    [
        (b"{", "application/json", 400, "bad-request"),
        (b'{"messages": []}', "application/json", 400, "bad-request"),
        (b'{"value": "a", "colour": 1}', "application/json", 400, "bad-request"),
        (b'{"value": {"a": 1}}', "application/json", 400, "bad-request"),
        (b'{"value": "a", "key": {"base64": "!"}}', "application/json", 400, "bad-request"),
        (b'{"value": null}', "application/json", 400, "value-missing"),
        (b"[" * 100_000, "application/json", 400, "bad-request"),
        (b'{"value": ' + b"[" * 100_000, "application/json", 400, "bad-request"),
        (b"nonsense", "application/vnd.apache.arrow.stream", 400, "bad-segment"),
        (b"<a/>", "application/xml", 415, "media-type"),
    ],
)
def test_an_invalid_body_is_refused_and_creates_no_topic(
    http: httpx.Client, topic: str, content: bytes, media: str, status: int, code: str
) -> None:
    path = f"/v1/topics/{topic}/messages"
    as_media = {"Content-Type": media}
    for query, headers in (("", {"Idempotency-Key": "k"}), ("", {}), ("?producer=p", {})):
        answer = http.post(path + query, content=content, headers={**as_media, **headers})
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert set(answer.json()) >= {"code", "message", "hint", "retryable"}
    assert http.get(path).status_code == 404


def test_messages_too_large_for_a_segment_are_refused_and_create_no_topic(
    http: httpx.Client, topic: str
) -> None:
    path, raw = f"/v1/topics/{topic}/messages", {"Content-Type": "application/octet-stream"}
    half = random.Random(1).randbytes(5 * 1024 * 1024)
    both = pa.table({"value": [half, half]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, both.schema) as stream:
        stream.write_table(both)
    for content, headers in (
        (half * 2, raw),
        (sink.getvalue(), {"Content-Type": "application/vnd.apache.arrow.stream"}),
    ):
        answer = http.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "segment-too-large"), answer.text
    named = http.post(path, params={"producer": "p" * 257, "key": "k"}, content=b"a", headers=raw)
    assert (named.status_code, named.json()["code"]) == (400, "bad-request")
    assert http.get(path).status_code == 404


def test_every_query_parameter_is_used_or_refused(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    raw = {"Content-Type": "application/octet-stream"}
    assert (
        http.post(path, params={"key": "k", "id": "i", "ttl": 60}, content=b"a", headers=raw).status_code == 200
    )
    for answer in (
        http.post(path, params={"key": "k"}, json={"value": "a"}),
        http.post(path, params={"kye": "k"}, content=b"a", headers=raw),
        http.get(path, params={"strat": "latest"}),
        http.get("/v1/topics", params={"caller": "me"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), answer.text
    assert "start" in http.get(path, params={"strat": "latest"}).json()["hint"]
    assert [each["key"] for each in stored(http, topic)] == ["k"]


def test_a_topic_in_another_tenant_is_named_with_colons_or_encoded_slashes(http: httpx.Client) -> None:
    for name in ("acme:shop:till:orders", "acme%2Fshop%2Ftill%2Forders"):
        assert published(http, name, {"value": "a"})["topic"] == "acme/shop/till/orders"
    assert len(stored(http, "acme:shop:till:orders")) == 2
    assert http.get("/v1/tenants/acme").json()["topics"] == 1


def test_a_topic_that_was_deleted_and_created_again_takes_messages(http: httpx.Client, topic: str) -> None:
    assert published(http, topic, {"value": "old"})["stored"] == 1
    http.delete(f"/v1/topics/{topic}").raise_for_status()
    http.post("/v1/topics", json={"topic": topic, "shards": 2}).raise_for_status()
    for body in ({"value": "new", "key": "k"}, {"messages": [{"value": "new", "key": "k"}] * 2}):
        published(http, topic, body)
    assert sum(len(stored(http, topic, shard)) for shard in range(2)) == 3


def test_requests_that_come_together_are_all_answered_and_stored_once(door: HttpNode, topic: str) -> None:
    with door.client() as http:
        http.post("/v1/topics", json={"topic": topic, "shards": 4}).raise_for_status()

    def send(number: int) -> list[tuple[int, int]]:
        with door.client() as http:
            found = [
                published(http, topic, {"value": f"{number}/{n}", "key": f"{n}"})["receipts"][0]
                for n in range(8)
            ]
        return [(each["shard"], each["entry"]) for each in found]

    with ThreadPoolExecutor(8) as threads:
        places = [place for each in threads.map(send, range(8)) for place in each]
    assert len(set(places)) == 64
    with door.client() as http:
        there = {
            (shard, each["entry"]): each["value"] for shard in range(4) for each in stored(http, topic, shard)
        }
    assert set(there) == set(places)
    assert sorted(there.values()) == sorted(f"{number}/{n}" for number in range(8) for n in range(8))


def test_messages_are_sent_under_the_name_of_a_producer(http: httpx.Client, topic: str) -> None:
    http.post(
        f"/v1/topics/{topic}/messages", params={"producer": "till-1"}, json={"value": "a"}
    ).raise_for_status()
    path = f"/v1/topics/{topic}/ledger"
    assert [each["producer"] for each in http.get(path).json()["producers"]] == ["till-1"]
    single = {"producer": "solo", "access": "single"}
    http.post(f"/v1/topics/{topic}/producers", json=single).raise_for_status()
    for headers, status in (({}, 200), ({"Idempotency-Key": "k"}, 400)):
        answer = http.post(
            f"/v1/topics/{topic}/messages", params={"producer": "solo"}, json={"value": "b"}, headers=headers
        )
        assert answer.status_code == status, answer.text


def test_a_quota_that_refuses_says_when_to_come_again(http: httpx.Client) -> None:
    small = {"name": "small", "settings": {"tenant_stored_bytes": 1000}}
    http.post("/v1/tenants", json=small).raise_for_status()
    http.post("/v1/topics", json={"topic": "small/a/b/one"}).raise_for_status()
    body = {"value": "x" * 600}
    published(http, "small:a:b:one", body)
    for headers in ({}, {"Idempotency-Key": "second"}):
        answer = http.post("/v1/topics/small:a:b:one/messages", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (429, "quota"), answer.text
        assert answer.json()["retryable"] is True
        assert answer.headers["retry-after"] == "1"


def test_a_compressed_body_is_refused(http: httpx.Client, topic: str) -> None:
    packed = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    answer = http.post(f"/v1/topics/{topic}/messages", content=gzip.compress(b"tea"), headers=packed)
    assert (answer.status_code, answer.json()["code"]) == (415, "media-type")
    assert http.get(f"/v1/topics/{topic}").status_code == 404


def test_a_large_body_is_stored_as_a_small_one_is_and_too_many_parts_are_refused(
    http: httpx.Client, topic: str
) -> None:
    many = [{"value": {"base64": "eA=="}, "key": f"{n}"} for n in range(9_999)]
    assert published(http, topic, {"messages": [*many, {"value": "y" * 100_000}]})["stored"] == 10_000
    typed = {"topic": f"{topic}-typed", "schema": [{"name": "n", "type": "list<int32>"}]}
    http.post("/v1/topics", json=typed).raise_for_status()
    answer = http.post(f"/v1/topics/{topic}-typed/messages", json={"value": {"n": [1] * 600_000}})
    assert (answer.status_code, "parts" in answer.json()["message"]) == (400, True)
