"""Connections that are lost while others read the same subscription: nothing settled comes again anywhere."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import headpond
import headpond.sync
from headpond.client.link.link import Link
from headpond.client.options import KindName, ModeName
from headpond.model.errors import SubscriptionBusy
from tests.client.consume.cells import QUICK, connected, cut, each_cell, fill, numbers, take
from tests.client.peer import until
from tests.client.reading import receive
from tests.fire.real_node import RealNode


async def opened(client: headpond.Client, topic: str, kind: KindName, mode: ModeName) -> headpond.Consumer:
    """A consumer; of a unique subscription as soon as the one before it has lost its lease."""
    while True:
        try:
            return await client.consumer(topic, "s", kind=kind, mode=mode, policy=QUICK).open()
        except SubscriptionBusy:
            await asyncio.sleep(0.02)


def hold_up(link: Link) -> asyncio.Event:
    """A client does not connect again before the event that is returned."""
    go, connect = asyncio.Event(), link._connect

    async def wait_and_connect() -> None:
        await go.wait()
        await connect()

    link._connect = wait_and_connect  # type: ignore[method-assign]
    return go


@each_cell
async def test_a_message_that_another_consumer_settled_meanwhile_is_not_handed_out(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with connected(shared_url, 3) as (admin, first, second):
        await fill(admin, topic, 20, rows=20)
        one = await opened(first, topic, kind, mode)
        in_hand = await receive(one)
        go = hold_up(first.link)
        cut(first)
        other = await opened(second, topic, kind, mode)
        found = await take(other, 20)
        assert sorted(numbers(found)) == list(range(20))
        assert next(each.attempt for each in found if each.entry == in_hand.entry) == 2
        await other.close()  # its acknowledgements are on the disk
        go.set()
        await until(lambda: first.connected)
        assert await one.receive(0.2) is None
        await one.close()


def test_the_blocking_consumer_drops_messages_that_its_program_did_not_get(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, headpond.sync.connect(shared_url) as other:
        with client.producer(topic, batch_rows=5) as producer:
            for number in range(20):
                producer.post(b"%d" % number)
        with client.consumer(topic, "s", kind="shared") as consumer:
            in_hand = consumer.receive(5)
            assert in_hand is not None
            client._background.run(lose(client._twin))
            with other.consumer(topic, "s", kind="shared") as second:
                found = [second.receive(5) for _ in range(20)]
                for message in found:
                    assert message is not None
                    second.ack(message)
                assert {message.entry for message in found if message is not None} == set(range(20))
            assert consumer.receive(0.1) is None


async def lose(client: headpond.Client) -> None:
    hold_up(client.link)
    cut(client)


@each_cell
async def test_a_restored_old_copy_gets_no_settlements_of_messages_that_it_does_not_have(
    node: RealNode, topic: str, kind: KindName, mode: ModeName, tmp_path: Path
) -> None:
    async with connected(node.url, 2) as (admin, client):
        await fill(admin, topic, 10, rows=10)
        consumer = await opened(client, topic, kind, mode)
        await take(consumer, 10)
        await consumer.flush()
        shutil.copytree(node.data, tmp_path / "copy")
        await fill(admin, topic, 10, rows=10, first=100)
        in_hand = [await consumer.receive(5) for _ in range(1 if mode == "resilient" else 4)]
        node.kill()
        shutil.rmtree(node.data)
        shutil.copytree(tmp_path / "copy", node.data)
        go = hold_up(client.link)
        await consumer.ack(in_hand[0])  # type: ignore[arg-type]
        node.start()
        async with connected(node.url, 1) as (producer,):
            await fill(producer, topic, 10, rows=10, first=200)
        go.set()
        found = await take(consumer, 10)
        for message in in_hand:
            assert message is not None
            await consumer.nack(message)
        await consumer.flush()
        assert sorted(numbers(found)) == list(range(200, 210)), "each of them was handed out"
        assert consumer.dropped == 1 + len(in_hand)
        info = await admin.admin.show_subscription(topic, "s")
        assert (info.acked, info.nacked, info.unsettled) == (20, 0, 0)
        await consumer.close()


async def test_a_failover_consumer_that_stood_by_does_not_get_again_what_its_program_has(
    shared_url: str, topic: str
) -> None:
    async with connected(shared_url, 3) as (admin, first, second):
        await fill(admin, topic, 5, rows=5)
        one = await opened(first, topic, "failover", "non_resilient")
        in_hand = await receive(one)
        go = hold_up(first.link)
        cut(first)
        other = await opened(second, topic, "failover", "non_resilient")
        await until(lambda: other.active)
        go.set()
        await until(lambda: first.connected and not one.active)
        await other.close()
        await until(lambda: one.active)
        found = await take(one, 4)
        assert sorted(each.entry for each in found) == [1, 2, 3, 4], "the program has entry 0"
        assert await one.receive(0.2) is None
        await one.ack(in_hand)
        await one.flush()
        info = await admin.admin.show_subscription(topic, "s")
        assert info.settled == 5, "the settlement of the message in hand counts"
