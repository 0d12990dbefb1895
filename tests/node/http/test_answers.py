"""Unread answers: each connection holds little memory, and all of them together no more than the limit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headpond.model.errors import LimitReached
from headpond.node.http.answers import PIECE_BYTES, Answer, AnswerRoom
from tests.fire.real_node import wait_until
from tests.node.http.nodes import HttpNode

MIB = 1024 * 1024
SMALL = """
[http_limits]
answer_bytes = 100000
answers_bytes = 1000000
answer_wait_s = 0.2
"""


async def forever(message: Any) -> None:
    await asyncio.Event().wait()


def answer(room: AnswerRoom, sent: list[Any], method: str = "GET") -> Answer:
    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return await forever(None)

    return Answer(room, {"method": method}, receive, send)  # type: ignore[typeddict-item]


async def send_whole(to: Answer, body: bytes) -> None:
    await to.send({"type": "http.response.start", "status": 200, "headers": []})
    await to.send({"type": "http.response.body", "body": body, "more_body": False})


async def test_a_large_answer_goes_out_in_pieces_and_takes_room_until_it_is_out() -> None:
    room, sent = AnswerRoom(MIB, 0.01), list[Any]()
    made = answer(room, sent)
    body = bytes(range(256)) * 2000
    await send_whole(made, body)
    pieces = [each for each in sent if each["type"] == "http.response.body"]
    assert b"".join(each["body"] for each in pieces) == body
    assert max(len(each["body"]) for each in pieces) == PIECE_BYTES
    assert [each["more_body"] for each in pieces] == [True] * (len(pieces) - 1) + [False]
    assert room.bytes == len(body)
    made.close()
    assert room.bytes == 0


async def test_a_get_without_room_for_its_answer_is_refused_and_a_request_that_changed_something_is_not() -> (
    None
):
    room = AnswerRoom(MIB, 0.01)
    await answer(room, []).expect(MIB)
    refused, done, small = list[Any](), list[Any](), list[Any]()
    await send_whole(answer(room, refused), b"x" * MIB)
    assert refused[0]["status"] == 503 and (b"retry-after", b"1") in refused[0]["headers"]
    assert b"http_limits.answers_bytes" in refused[1]["body"]
    posted = answer(room, done, "POST")
    await send_whole(posted, b"x" * MIB)
    assert done[0]["status"] == 200 and room.bytes == 2 * MIB
    posted.close()
    await send_whole(answer(room, small), b"x" * 1000)
    assert small[0]["status"] == 200 and room.bytes == MIB


async def test_room_is_given_in_the_order_of_the_requests_and_not_to_one_that_has_ended() -> None:
    room = AnswerRoom(100, 60.0)
    await room.take(100)
    turns: list[int] = []

    async def take(number: int, size: int) -> None:
        await room.take(size)
        turns.append(number)

    tasks = [asyncio.create_task(take(number, size)) for number, size in enumerate((90, 20, 10, 80))]
    await asyncio.sleep(0)
    tasks[1].cancel()
    room.give(100)
    await asyncio.sleep(0.01)
    assert turns == [0, 2] and room.bytes == 100
    tasks[3].cancel()  # and in the same turn of the loop there is room for it
    room.give(100)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert turns == [0, 2] and room.bytes == 0
    await room.take(1000)  # larger than all of it, and alone
    with pytest.raises(LimitReached):
        await AnswerRoom.take(_patient(room), 1)


def _patient(room: AnswerRoom) -> AnswerRoom:
    room._wait_s = 0.01
    return room


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with HttpNode(tmp_path_factory.mktemp("small") / "node", more=SMALL) as running:
        yield running


def answers_bytes(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("headpond_http_answers_bytes ")).split()[1])


def unread(node: HttpNode, request: str) -> socket.socket:
    """A client that asks and never reads."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", node.port))
    made.sendall(f"{request} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return made


def fill(http: httpx.Client, topic: str, size: int, count: int) -> None:
    for number in range(count):
        body = {"value": f"{number}".ljust(size, "x")}
        http.post(f"/v1/topics/{topic}/messages", json=body).raise_for_status()


def test_while_answers_are_not_read_others_are_refused_by_name(small: HttpNode, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    with small.client() as http, contextlib.ExitStack() as stack:
        fill(http, topic, 7 * MIB, 1)
        stack.enter_context(unread(small, f"GET {path}/messages"))
        wait_until(lambda: answers_bytes(http) > 7 * MIB)
        refused = http.get(f"{path}/messages")
        assert (refused.status_code, refused.json()["code"]) == (503, "limit")
        assert "http_limits.answers_bytes" in refused.json()["message"]
        assert refused.headers["retry-after"] == "1"
        with http.stream("GET", f"{path}/events?start=earliest") as stream:
            lines = [line for line in stream.iter_lines() if line]
        assert lines[1] == "event: error" and '"limit"' in lines[2]
        refused = http.post(f"{path}/subscriptions/s/fetch?wait=10")
        assert (refused.status_code, refused.json()["code"]) == (503, "limit")
        stored = http.post(f"{path}/messages", json={"messages": [{"value": "a"}] * 10_000})
        assert (stored.status_code, stored.json()["code"]) == (503, "limit")
        assert http.get(f"{path}/ends").json()["shards"][0]["entry_next"] == 1  # refused before it was stored
        assert http.get("/v1/topics").status_code == 200  # small ones are still answered
    with small.client() as http:
        wait_until(lambda: answers_bytes(http) == 0)
        (message,) = http.post(f"{path}/subscriptions/s/fetch?wait=10").json()["messages"]
        assert message["attempt"] == 1  # nobody saw it before


def test_a_stream_that_nobody_reads_holds_no_more_than_one_record(small: HttpNode, topic: str) -> None:
    with small.client() as http:
        fill(http, topic, 200_000, 20)
        with unread(small, f"GET /v1/topics/{topic}/events?start=earliest"):
            wait_until(lambda: 200_000 < answers_bytes(http) < MIB)
        wait_until(lambda: answers_bytes(http) == 0)


def test_an_answer_of_messages_ends_at_the_limit_and_says_where_to_read_on(small: HttpNode, topic: str) -> None:
    values = [
        "x" * 40_000,
        "\x01" * 30_000,
        "y" * 40_000,
        "z" * 40_000,
    ]  # the second is six times as long as JSON
    with small.client() as http:
        path = f"/v1/topics/{topic}/messages"
        body = {"messages": [{"value": value} for value in values]}
        http.post(path, json=body).raise_for_status()
        answers, entry = [], 0
        while entry < len(values):
            found = http.get(path, params={"entry": entry}).json()
            answers.append([message["value"] for message in found["messages"]])
            entry = found["entry_next"]
        assert answers == [values[:1], values[1:2], values[2:]]


def test_dead_messages_in_one_answer_end_at_the_limit(small: HttpNode, topic: str, tmp_path: Path) -> None:
    path = f"/v1/topics/{topic}"
    with small.client() as http:
        fill(http, topic, 40_000, 4)
        body = {"subscription": "s", "policy": {"max_attempts": 1}}
        http.post(f"{path}/subscriptions", json=body).raise_for_status()
        positions = [f"0/{entry}" for entry in range(4)]
        while len(http.post(f"{path}/subscriptions/s/fetch?wait=5").json()["messages"]) == 0:
            pass
        wait_until(lambda: http.get(f"{path}/subscriptions/s").json()["in_flight"] == 4)
        http.post(f"{path}/subscriptions/s/nack", json={"positions": positions}).raise_for_status()
        wait_until(lambda: http.get(f"{path}/subscriptions/s").json()["dead"] == 4)
        assert len(http.get(f"{path}/subscriptions/s/dead").json()) == 2
