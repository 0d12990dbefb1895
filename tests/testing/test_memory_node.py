"""A node in the test's process: the real node and client, a clock that advances, and faults on request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import headpond
from headpond import testing
from headpond.errors import AccessRefused, BadRequest, Unavailable
from tests.client.reading import receive

Scenario = Callable[[testing.Node, headpond.Client], Coroutine[Any, Any, None]]


def with_node(scenario: Scenario) -> Callable[[], None]:
    """A test with a node and an open client."""

    @wraps(scenario)
    def test() -> None:
        async def run() -> None:
            async with testing.node() as node, node.connect() as client:
                await scenario(node, client)

        asyncio.run(run())

    del test.__dict__["__wrapped__"]  # pytest would look for fixtures
    return test


async def send(client: headpond.Client, topic: str, *values: bytes, **options: Any) -> None:
    async with client.producer(topic) as producer:
        for value in values:
            await producer.send(value, **options)


async def values_of(client: headpond.Client, topic: str, subscription: str = "test") -> list[bytes]:
    found = []
    async with client.consumer(topic, subscription) as consumer:
        while (message := await consumer.receive(timeout=0.1)) is not None:
            found.append(bytes(message.value))
            await consumer.ack(message)
    return found


@with_node
async def test_it_needs_no_thread_and_no_socket(node: testing.Node, client: headpond.Client) -> None:
    before = threading.active_count()
    await send(client, "orders", b"one")
    assert await values_of(client, "orders") == [b"one"]
    assert threading.active_count() == before
    with pytest.raises(BadRequest):
        assert node.url


@with_node
async def test_an_acknowledged_message_survives_a_kill_and_is_stored_once(
    node: testing.Node, client: headpond.Client
) -> None:
    async with client.producer("orders") as producer:
        for number in range(5):
            await producer.send(b"%d" % number)
            waiting = asyncio.create_task(producer.send(b"and %d" % number))
            for _ in range(number):  # the kill finds the second one at different places on its way
                await asyncio.sleep(0)
            node.kill()
            await node.restart()
            await waiting
    wanted = [value for number in range(5) for value in (b"%d" % number, b"and %d" % number)]
    assert await values_of(client, "orders") == wanted


@with_node
async def test_a_kill_loses_what_was_not_synced(node: testing.Node, client: headpond.Client) -> None:
    await client.admin.create_topic("metrics", settings={"durability": "os"})
    async with client.producer("metrics") as producer:
        receipts = [await producer.send(value) for value in (b"with the new file", b"alone")]
        assert {each.durability for each in receipts} == {"os"}
        node.kill()
        await node.restart()
    assert await values_of(client, "metrics") == [b"with the new file"]


@with_node
async def test_no_client_finds_a_node_that_was_killed(node: testing.Node, client: headpond.Client) -> None:
    node.kill()
    with pytest.raises(Unavailable):
        await node.connect().open()
    await node.restart()
    async with node.connect() as other:
        assert other.connected


@with_node
async def test_settlements_survive_a_restart(node: testing.Node, client: headpond.Client) -> None:
    await send(client, "orders", b"one", b"two")
    async with client.consumer("orders", "billing") as consumer:
        message = await receive(consumer)
        await consumer.ack(message)
    await node.restart()
    assert await values_of(client, "orders", "billing") == [b"two"]


@with_node
async def test_a_cut_ends_every_connection(node: testing.Node, client: headpond.Client) -> None:
    async with node.connect() as other:
        node.cut()
        await send(client, "orders", b"one")
        assert await values_of(other, "orders") == [b"one"]
        assert (client.reconnects, other.reconnects) == (1, 1)


@with_node
async def test_the_clock_makes_a_delayed_message_due(node: testing.Node, client: headpond.Client) -> None:
    await send(client, "orders", b"one")
    async with client.consumer("orders", "billing") as consumer:
        first = await receive(consumer)
        await consumer.nack(first, delay=24 * 3600)
        await consumer.flush()
        node.clock.advance(23 * 3600)
        assert await consumer.receive(timeout=0.05) is None
        node.clock.advance(2 * 3600)
        again = await consumer.receive(timeout=5)
        assert again is not None and again.attempt == 2


@with_node
async def test_waits_that_begin_after_an_advance_take_their_own_time(
    node: testing.Node, client: headpond.Client
) -> None:
    node.clock.advance(3600)
    await send(client, "orders", b"one")
    async with client.consumer("orders", "billing") as consumer:
        for attempt in (1, 2):
            message = await consumer.receive(timeout=30)
            assert message is not None and message.attempt == attempt
            await consumer.nack(message, delay=0.05)


@with_node
async def test_the_clock_makes_retention_due(node: testing.Node, client: headpond.Client) -> None:
    await client.admin.create_topic("orders", settings={"hard_ttl": "1h"})
    await send(client, "orders", b"old")
    node.clock.advance(2 * 3600)
    await node.restart()
    await send(client, "orders", b"new")  # in another file
    node.clock.advance(3)
    assert await values_of(client, "orders") == [b"new"]


@with_node
async def test_the_clock_is_never_set_back(node: testing.Node, client: headpond.Client) -> None:
    before = node.clock.now()
    node.clock.advance(3600)
    node.kill()
    await node.restart()
    assert (node.clock.now() - before).total_seconds() >= 3600
    with pytest.raises(BadRequest):
        node.clock.advance(-1)


@with_node
async def test_a_slow_disk_delays_acknowledgements_and_nothing_else(
    node: testing.Node, client: headpond.Client
) -> None:
    async with client.producer("orders") as producer:
        await producer.send(b"one")
        node.slow_disk(60)
        waiting = producer.post(b"two")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert [each.topic for each in await client.admin.list_topics()]
        node.slow_disk(0)
        node.kill()
        await node.restart()
        assert (await waiting).entry == 1


@with_node
async def test_a_full_disk_refuses_sends_until_it_has_room(node: testing.Node, client: headpond.Client) -> None:
    async with client.producer("orders") as producer:
        await producer.send(b"one")  # its file has room for more
        node.full_disk()
        waiting = producer.post(b"two")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        node.full_disk(False)
        assert (await waiting).outcome == "stored"


@with_node
async def test_tokens_guard_it_like_any_node(node: testing.Node, client: headpond.Client) -> None:
    made = await client.admin.create_token("root", rights=["admin"], scopes=["*"])
    with pytest.raises(AccessRefused):
        await node.connect().open()
    async with node.connect(made.secret) as admin:
        assert admin.connected


async def test_a_killed_node_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.node() as node, node.connect() as client:
        await send(client, "orders", b"one")
        async with client.consumer("orders", "billing") as consumer:
            assert await consumer.receive(timeout=5) is not None
            node.kill()
            await asyncio.sleep(0.05)  # a running node would note that its consumer is gone
            await node.restart()
    assert [each.message for each in caplog.records if each.name == "headpond.node"] == []


async def test_a_node_that_listens_serves_programs_that_connect_themselves(tmp_path: Path) -> None:
    async with testing.node(listen=True) as first, testing.node(listen=True) as second:
        url = first.url
        async with first.connect() as client:
            async with client.producer("orders", copies=[second.url], refill=tmp_path) as producer:
                receipt = await producer.send(b"one")
            assert len(receipt.copies) == 2
        first.kill()
        await first.restart()
        assert first.url == url
        for each in (first, second):
            async with headpond.connect(each.url) as client:
                assert await values_of(client, "orders") == [b"one"]


def test_it_starts_with_its_first_client_and_stays_on_that_loop() -> None:
    node = testing.node()

    async def scenario() -> None:
        async with node.connect() as client:
            await send(client, "orders", b"one")

    asyncio.run(scenario())
    with pytest.raises(BadRequest, match="another event loop"):
        asyncio.run(scenario())


async def test_a_client_that_outlives_its_node_finds_none() -> None:
    async with testing.node() as node:
        client = await node.connect().open()
    await asyncio.sleep(0)
    assert not client.connected
    await client.close()
    with pytest.raises(Unavailable):
        await node.connect().open()
