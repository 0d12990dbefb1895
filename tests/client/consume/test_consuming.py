"""Consuming from a real node."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import headpond
from headpond.model.errors import (
    BadRequest,
    SubscriptionBusy,
    TopicNotFound,
)
from tests.client.reading import receive


async def fill(client: headpond.Client, topic: str, count: int, first: int = 0, batch_rows: int = 5000) -> None:
    async with client.producer(topic, batch_rows=batch_rows) as producer:
        for number in range(first, first + count):
            producer.post(b"%d" % number)


async def numbers(consumer: headpond.Consumer, idle_s: float = 0.2) -> list[int]:
    """Receives and acknowledges messages until none comes for a while."""
    found = []
    while (message := await consumer.receive(idle_s)) is not None:
        found.append(int(message.value))
        await consumer.ack(message)
    return found


async def test_an_acknowledged_message_does_not_come_again(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 1000, batch_rows=64)
        async with client.consumer(topic, "s") as consumer:
            async for message in consumer:
                if message.entry % 3:
                    await consumer.ack(message)
                if message.entry == 999:
                    break
        async with client.consumer(topic, "s") as consumer:
            assert await numbers(consumer) == list(range(0, 1000, 3))
        async with client.consumer(topic, "s") as consumer:
            assert await consumer.receive(0.1) is None


@pytest.mark.parametrize("taken", ["receive", "iterate"])
@pytest.mark.parametrize("where", ["one node", "several"])
async def test_batches_continue_after_single_messages(
    shared_url: str, topic: str, taken: str, where: str
) -> None:
    url = shared_url if where == "one node" else f"{shared_url},127.0.0.1:1"
    async with headpond.connect(url) as client:
        await fill(client, topic, 20, batch_rows=10)
        async with client.consumer(topic, "s") as consumer:
            for entry in range(3):
                message = await (consumer.receive(5) if taken == "receive" else anext(consumer))
                assert message is not None and message.entry == entry
                await consumer.ack(message)
            batches = consumer.batches()
            rest = await anext(batches)
            assert [message.entry for message in rest.messages()] == [*range(3, 10)]
            await consumer.ack(rest)
            assert (await anext(consumer)).entry == 10
            last = await anext(batches)
            assert last.entries.to_pylist() == [*range(11, 20)]
            await consumer.ack(last, rows=[8])
        async with client.consumer(topic, "s") as consumer:
            assert await numbers(consumer) == [*range(10, 19)]


async def test_batches_are_acknowledged_whole_by_mask_or_by_row(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 30, batch_rows=10)
        async with client.consumer(topic, "s") as consumer:
            batches = consumer.batches()
            await consumer.ack(await anext(batches))
            await consumer.ack(await anext(batches), rows=[row % 2 == 0 for row in range(10)])
            await consumer.ack(await anext(batches), rows=pa.array([0, 9]))
            await consumer.flush()
            [info] = await client.admin.list_subscriptions(topic)
            assert (info.settled, info.in_flight) == (17, 13)
        async with client.consumer(topic, "s") as consumer:
            assert await numbers(consumer) == [11, 13, 15, 17, 19, *range(21, 29)]


@pytest.mark.parametrize("rows", [[True], [10], [-11], pa.array([True] * 9)])
async def test_rows_that_are_not_in_the_batch_are_refused(shared_url: str, topic: str, rows: object) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 10)
        async with client.consumer(topic, "s") as consumer:
            batch = await anext(consumer.batches())
            with pytest.raises(BadRequest):
                await consumer.ack(batch, rows=rows)
            with pytest.raises(BadRequest):
                await consumer.ack(b"not a message")  # type: ignore[arg-type]
            with pytest.raises(BadRequest):
                await consumer.nack(batch, delay=-1.0)


async def test_a_nack_brings_the_message_again_with_the_next_attempt(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3)
        async with client.consumer(topic, "s") as consumer:
            for _ in range(3):
                message = await receive(consumer)
                if message.entry == 1:
                    await consumer.nack(message, delay=0.01)
                else:
                    await consumer.ack(message)
            again = await receive(consumer)
            assert (again.entry, again.attempt) == (1, 2)
            await consumer.skip(again)
            await consumer.flush()
            [info] = await client.admin.list_subscriptions(topic)
            assert (info.settled, info.unacked) == (3, 0)


async def test_a_live_consumer_gets_what_is_sent_meanwhile(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.consumer(topic, "s") as consumer:
        assert await consumer.receive(0.01) is None
        async with client.producer(topic) as producer:
            for number in range(50):
                await producer.send(b"%d" % number)
                message = await receive(consumer)
                assert int(message.value) == number


@pytest.mark.parametrize(("start", "expected"), [("earliest", 0), ("latest", 20), (7, 7)])
async def test_a_new_subscription_starts_at_the_requested_position(
    shared_url: str, topic: str, start: str | int, expected: int
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 20)
        async with client.consumer(topic, "s", start=start) as consumer:
            await fill(client, topic, 5, first=20)
            assert await numbers(consumer) == list(range(expected, 25))


async def test_small_credit_still_delivers_everything(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3000, batch_rows=7)
        async with client.consumer(topic, "s", credit_bytes=1) as consumer:
            assert await numbers(consumer) == list(range(3000))


async def test_batches_taken_at_once_are_bounded_by_their_uncompressed_size(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            for _ in range(8):
                await producer.send(bytes(4_000_000))
        async with client.consumer(topic, "s") as consumer:
            await asyncio.sleep(0.3)  # all of it is there: 16 KB each
            sizes: list[int] = []
            while sum(sizes) < 30_000_000:
                sizes.append(sum(each.nbytes for each in await consumer.next_batches(64)))
            assert max(sizes) < 15_000_000


async def test_several_tasks_share_a_consumer(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 500, batch_rows=20)
        async with client.consumer(topic, "s") as consumer:
            found = await asyncio.gather(*(numbers(consumer) for _ in range(4)))
            assert sorted(number for some in found for number in some) == list(range(500))


async def test_opening_raises_the_refusal_of_the_node(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 1)
        with pytest.raises(BadRequest):
            await client.consumer(topic, "s", kind="round").open()  # type: ignore[call-overload]
        with pytest.raises(TopicNotFound):
            await client.consumer("nowhere", "s", create=False).open()
        with pytest.raises(BadRequest):
            await client.consumer(topic, "not a name").open()
        async with client.consumer(topic, "s", name="first"):
            with pytest.raises(SubscriptionBusy, match="first"):
                await client.consumer(topic, "s").open()


def test_deleting_a_topic_ends_its_consumer_with_an_error(shared_url: str, topic: str) -> None:
    async def scenario() -> None:
        async with headpond.connect(shared_url) as client:
            await fill(client, topic, 1)
            async with client.consumer(topic, "s") as consumer:
                assert await consumer.receive(5) is not None
                waiting = asyncio.create_task(consumer.receive())
                with pytest.raises(SubscriptionBusy):
                    await client.admin.delete_subscription(topic, "s")
                await client.admin.delete_topic(topic)
                with pytest.raises(TopicNotFound):
                    await waiting


async def test_a_deleted_subscription_starts_over(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3)
        for _ in range(2):
            async with client.consumer(topic, "s") as consumer:
                assert await numbers(consumer) == [0, 1, 2]
            await client.admin.delete_subscription(topic, "s")
        assert await client.admin.list_subscriptions(topic) == []


async def test_a_message_of_another_topic_is_not_settled_here(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        for name in (topic, f"{topic}.other"):
            await fill(client, name, 1)
        async with client.consumer(topic, "s") as one, client.consumer(f"{topic}.other", "s") as other:
            message = await receive(other)
            for settle in (one.ack, one.skip, one.nack):
                with pytest.raises(BadRequest, match="other"):
                    await settle(message)


async def test_a_wait_for_a_batch_may_be_given_up(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.consumer(topic, "s") as consumer:
        batches = consumer.batches()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(batches), 0.01)
        await fill(client, topic, 3)
        assert len(await asyncio.wait_for(anext(batches), 5)) == 3
