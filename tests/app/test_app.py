"""Handlers get decoded values, and what they return or raise decides about their message."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import threading
from typing import Any

import msgspec
import pytest

import headpond
from headpond.app.subscriber import Handle
from headpond.errors import BadRequest
from headpond.wire.control.consuming import SubscriptionInfo
from tests.client.peer import until
from tests.client.reading import receive
from tests.fire.real_node import RealNode

WAIT_S = 20


class Order(msgspec.Struct):
    item: str
    count: int = 1


@dataclasses.dataclass
class Bill:
    total: int


async def fill(url: str, topic: str, *values: bytes, keys: list[str] | None = None) -> None:
    async with headpond.connect(url) as client, client.producer(topic) as producer:
        for number, value in enumerate(values):
            await producer.send(value, key=keys[number] if keys else None)


async def shown(url: str, topic: str) -> SubscriptionInfo:
    async with headpond.connect(url) as client:
        return await client.admin.show_subscription(topic, "s")


async def settled(url: str, topic: str, count: int) -> SubscriptionInfo:
    async with asyncio.timeout(WAIT_S):
        while (info := await shown(url, topic)).acked + info.skipped + info.dead < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return info


async def test_plain_functions_and_coroutines_get_the_value_and_the_message(
    shared_url: str, topic: str
) -> None:
    app = headpond.App(shared_url)
    got: list[tuple[Any, ...]] = []

    @app.subscriber(topic, subscription="s")
    def in_a_thread(order: Order) -> None:
        got.append((order, threading.current_thread() is threading.main_thread()))

    @app.subscriber(topic, subscription="t")
    async def on_the_loop(order: Order, message: headpond.Message[Order]) -> None:
        got.append((order.count, message.entry, message.value))

    @app.subscriber(topic, subscription="u")
    async def only_the_message(message: headpond.Message[Order]) -> None:
        got.append((message.value.item,))

    @app.subscriber(topic, subscription="v")
    async def undeclared(value, message):  # type: ignore[no-untyped-def]
        got.append((value, message.value))

    await fill(shared_url, topic, b'{"item": "tea"}')
    async with app:
        await until(lambda: len(got) == 4)
    raw = b'{"item": "tea"}'
    expected = [(Order("tea"), False), (1, 0, Order("tea")), ("tea",), (raw, raw)]
    assert sorted(map(str, got)) == sorted(map(str, expected))
    assert in_a_thread.__name__ == "in_a_thread", "the program's function itself, to be called in a test"


def test_return_acknowledges_and_exceptions_skip_retry_and_dead_letter(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)
    seen: list[tuple[str, int]] = []

    @app.subscriber(topic, subscription="s", policy=headpond.Policy(max_attempts=2, backoff=0.0))
    async def decide(word: str, message: headpond.Message[str]) -> None:
        seen.append((word, message.attempt))
        if word == "unwanted":
            raise headpond.Skip
        if word == "hopeless":
            raise headpond.DeadLetter("no such customer: \ud800")
        if word == "later" and message.attempt == 1:
            raise headpond.Retry("the bank is closed", delay=0.05)
        if word == "broken":
            raise ValueError("x" * 2000)

    async def scenario() -> tuple[SubscriptionInfo, list[headpond.Message]]:
        words = ("good", "unwanted", "hopeless", "later", "broken")
        await fill(shared_url, topic, *(word.encode() for word in words))
        async with app:
            info = await settled(shared_url, topic, 5)
        async with headpond.connect(shared_url) as client:
            return info, [message async for message in client.admin.dead_letters(topic, "s")]

    info, dead = asyncio.run(scenario())
    assert (info.acked, info.skipped, info.dead) == (2, 1, 2)
    assert {("later", 1), ("later", 2), ("broken", 1), ("broken", 2)} < set(seen)
    assert ("hopeless", 2) not in seen
    reasons = {message.value: message.headers["dead.reason"] for message in dead}
    assert reasons[b"hopeless"] == "no such customer: ?"
    assert reasons[b"broken"].startswith("ValueError: xxx")
    assert len(reasons[b"broken"]) == 512


def test_a_value_that_does_not_decode_is_a_dead_letter_that_says_why(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)
    got: list[Order] = []

    @app.subscriber(topic, subscription="s")
    async def take(order: Order) -> None:
        got.append(order)

    async def scenario() -> list[headpond.Message]:
        await fill(shared_url, topic, b'{"item": 5}', b'{"item": "tea"}')
        async with app:
            await settled(shared_url, topic, 2)
        async with headpond.connect(shared_url) as client:
            return [message async for message in client.admin.dead_letters(topic, "s")]

    (dead,) = asyncio.run(scenario())
    assert got == [Order("tea")]
    reason = dead.headers["dead.reason"]
    assert f"entry 0 of shard 0 of default/default/default/{topic} cannot be read as Order" in reason
    assert "$.item" in reason


def test_middleware_surrounds_handlers_and_a_handler_publishes(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)
    steps: list[str] = []

    @app.middleware
    async def outer(message: headpond.Message[Any], handle: Handle) -> Any:
        steps.append("outer")
        try:
            return await handle(message)
        except KeyError as error:
            raise headpond.Skip("translated") from error

    @app.middleware
    async def inner(message: headpond.Message[Any], handle: Handle) -> Any:
        steps.append("inner")
        return await handle(message)

    @app.subscriber(topic, subscription="s")
    async def bill(order: dict[str, int]) -> None:
        steps.append("handler")
        await app.publish(f"{topic}-bills", Bill(order["count"] * 3), key="k")

    async def scenario() -> SubscriptionInfo:
        await fill(shared_url, topic, b'{"count": 2}', b"{}")
        async with app:
            info = await settled(shared_url, topic, 2)
        async with (
            headpond.connect(shared_url) as client,
            client.consumer(f"{topic}-bills", "b", value=Bill) as consumer,
        ):
            message = await receive(consumer)
            assert (message.value, message.key) == (Bill(6), b"k")
        return info

    info = asyncio.run(scenario())
    assert steps == ["outer", "inner", "handler"] * 2
    assert (info.acked, info.skipped) == (1, 1)


async def test_no_more_than_concurrency_messages_are_handled_at_a_time(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)
    now, most = 0, 0

    @app.subscriber(topic, subscription="s", kind="shared", concurrency=4)
    async def count(value: bytes) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    await fill(shared_url, topic, *[b"v"] * 40)
    async with app:
        await settled(shared_url, topic, 40)
    assert most == 4


async def test_the_messages_of_a_key_are_handled_one_after_the_other(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)
    got: dict[bytes | None, list[bytes]] = {}
    busy: set[bytes | None] = set()

    @app.subscriber(topic, subscription="s", kind="key_shared", concurrency=8)
    async def take(value: bytes, message: headpond.Message) -> None:
        assert message.key not in busy
        busy.add(message.key)
        await asyncio.sleep(0.002)
        got.setdefault(message.key, []).append(value)
        busy.discard(message.key)

    values = [b"%d" % number for number in range(30)]
    await fill(shared_url, topic, *values, keys=[f"k{number % 3}" for number in range(30)])
    async with app:
        await settled(shared_url, topic, 30)
    assert got == {b"k%d" % key: [b"%d" % n for n in range(key, 30, 3)] for key in range(3)}


def test_a_signal_ends_run_after_the_running_handlers_and_their_settlements(
    shared_url: str, topic: str
) -> None:
    app = headpond.App(shared_url)
    done: list[bytes] = []

    @app.subscriber(topic, subscription="s")
    async def slow(value: bytes) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        done.append(value)

    async def scenario() -> SubscriptionInfo:
        await fill(shared_url, topic, b"1", b"2")
        await app.run()
        return await shown(shared_url, topic)

    info = asyncio.run(scenario())
    assert done == [b"1"], "the second was not taken"
    assert (info.acked, info.unsettled, info.unacked) == (1, 1, 0), "nor does it count as an attempt"


async def test_a_handler_that_does_not_finish_in_time_is_cancelled_and_its_message_comes_again(
    shared_url: str, topic: str
) -> None:
    app = headpond.App(shared_url, drain_timeout=0.05)
    attempts: list[int] = []

    @app.subscriber(topic, subscription="s")
    async def stuck(value: bytes, message: headpond.Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            await asyncio.Event().wait()

    await fill(shared_url, topic, b"1")
    async with app:
        await until(lambda: bool(attempts))
    assert app.unfinished == 1
    async with app:
        await settled(shared_url, topic, 1)
    assert attempts == [1, 2]


def test_an_application_that_does_not_need_its_node_at_the_start_waits_for_it(
    node: RealNode, topic: str
) -> None:
    app = headpond.App(node.url, wait=False)
    got: list[bytes] = []

    @app.subscriber(topic, "s")
    async def take(value: bytes) -> None:
        got.append(value)
        app.stop()

    async def scenario() -> None:
        await fill(node.url, topic, b"1")
        node.stop()
        running = asyncio.create_task(app.run())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(node.start)
        async with asyncio.timeout(WAIT_S):
            await running

    asyncio.run(scenario())
    assert got == [b"1"]


def test_a_signal_ends_an_application_that_waits_for_its_node() -> None:
    app = headpond.App("headpond://127.0.0.1:1", wait=False)
    app.subscriber("t", "s")(print)

    async def scenario() -> None:
        running = asyncio.create_task(app.run())
        await asyncio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        app.stop()
        async with asyncio.timeout(WAIT_S):
            await running

    asyncio.run(scenario())


def test_run_raises_what_ended_a_subscriber(shared_url: str, topic: str) -> None:
    app = headpond.App(shared_url)

    @app.subscriber(topic, subscription="s", name="first")
    async def take(value: bytes) -> None:
        async with headpond.connect(shared_url) as client:
            await client.admin.delete_topic(topic)

    async def scenario() -> None:
        await fill(shared_url, topic, b"1")
        await app.run()

    with pytest.raises(headpond.HeadpondError):
        asyncio.run(scenario())


def test_wrong_declarations_are_refused_where_they_are_made() -> None:
    app = headpond.App()

    def two(a: bytes, b: bytes) -> None: ...

    def strange(value: threading.Thread) -> None: ...

    with pytest.raises(BadRequest, match=r"asks for 'a' and 'b'"):
        app.subscriber("t", subscription="s")(two)
    with pytest.raises(BadRequest, match="a type that JSON can hold"):
        app.subscriber("t", subscription="s")(strange)
    with pytest.raises(BadRequest, match=r"kind is 'odd'.*one of unique, shared"):
        app.subscriber("t", subscription="s", kind="odd")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="concurrency"):
        app.subscriber("t", subscription="s", concurrency=0)(print)
    with pytest.raises(TypeError, match=r"App\.subscriber\(\) got .* 'knd'\. Did you mean 'kind'\?"):
        app.subscriber("t", "s", knd="shared")  # type: ignore[call-arg]
    with pytest.raises(BadRequest, match="no handlers"):
        asyncio.run(app.run())
