"""How a consumer's reading ends: by another topic, by a refusal, by being closed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

import headpond
from headpond.client.options import ConsumerOptions
from headpond.model.errors import BadRequest, SubscriptionBusy, SubscriptionNotFound, TimedOut, TopicMismatch
from headpond.wire.control.consuming import Settle, Settled, Subscribe, Subscribed, Unsubscribe, Unsubscribed
from tests.client.consume.test_sessions import VALUES, consuming, entries
from tests.client.peer import TOPIC_UUID, Conversation, record, serving
from tests.client.reading import receive
from tests.client.test_connecting import quick
from tests.fire.real_node import RealNode


async def left(conversation: Conversation, number: int) -> list[tuple[int, int, int]] | None:
    """Waits until the consumer leaves; returns what its application saw."""
    goodbye = await conversation.next(Unsubscribe)
    assert goodbye.consumer == number
    return goodbye.seen


async def ended(consumer: headpond.Consumer, error: type[headpond.HeadpondError]) -> str:
    """Waits until reading raises ``error``; returns its message."""
    with pytest.raises(error) as caught:
        await asyncio.wait_for(anext(aiter(consumer)), 10)
    return caught.value.message


async def test_a_reconnecting_consumer_names_the_topic_that_it_read() -> None:
    async with serving() as peer, consuming(peer) as (_, first, _):
        first.abort()
        ask = await (await peer.conversation()).next(Subscribe)
        assert ask.topic_uuid == TOPIC_UUID
        assert not ask.create_topic


async def test_a_first_subscribing_that_was_cut_off_names_no_topic() -> None:
    async with serving() as peer, quick(peer) as client:
        first = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s").open())
        assert (await first.next(Subscribe)).topic_uuid is None
        first.abort()
        ask = await (second := await peer.conversation()).subscribed()
        assert ask.topic_uuid is None
        assert ask.create_topic
        consumer = await opening
        closing = asyncio.create_task(consumer.close())
        await left(second, ask.consumer)
        second.say(Unsubscribed(ask.consumer))
        await closing


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "welcomed"])
async def test_another_topic_of_the_same_name_ends_the_consumer_and_gets_no_settlements(refused: bool) -> None:
    """The topic was replaced: the node may notice it, or leave that to the client."""
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        messages = [await receive(consumer) for _ in range(5)]
        for message in messages[:3]:
            await consumer.ack(message)
        flush = asyncio.create_task(consumer.flush())
        await first.next(Settle)
        first.abort()
        second = await peer.conversation()
        ask = await second.next(Subscribe)
        if refused:
            second.refuse(number, "topic-mismatch")
        else:
            second.say(Subscribed(number, ask.topic, b"v" * 16, 1, ask.kind, ask.mode, [0]))
        with pytest.raises(TopicMismatch, match="3 settlements were not confirmed"):
            await flush
        assert await left(second, number) == []
        second.deliver(number, record([b"other"] * 10, 0), spans=[(0, 10)])
        with pytest.raises(TopicMismatch):
            await consumer.ack(messages[4])
        with pytest.raises(TopicMismatch):
            await consumer.flush()
        assert "3 settlements" in await ended(consumer, TopicMismatch)


async def test_nothing_can_be_settled_or_flushed_after_the_end() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 1)])
        message = await receive(consumer)
        conversation.refuse(number, "subscription-not-found")
        await ended(consumer, SubscriptionNotFound)
        for settling in (consumer.ack(message), consumer.skip(message), consumer.nack(message)):
            with pytest.raises(SubscriptionNotFound):
                await settling
        with pytest.raises(SubscriptionNotFound):
            await asyncio.wait_for(consumer.flush(), 10)
        await consumer.close()  # nothing was left unsaid


async def test_closing_raises_what_kept_settlements_from_the_disk() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 2)])
        await consumer.ack(await anext(consumer.batches()))
        await conversation.next(Settle)
        conversation.refuse(number, "subscription-not-found")
        await ended(consumer, SubscriptionNotFound)
        with pytest.raises(SubscriptionNotFound, match="2 settlements"):
            await consumer.close()


async def test_a_consumer_raises_the_first_final_refusal() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.refuse(number, "subscription-not-found")
        conversation.refuse(number, "bad-request")
        conversation.refuse(number, "subscription-busy", retryable=True)
        await left(conversation, number)
        await ended(consumer, SubscriptionNotFound)
        await ended(consumer, SubscriptionNotFound)


@pytest.mark.parametrize("delay", [-0.001, 366 * 86400.0 + 1, float("inf"), float("nan")])
async def test_a_delay_that_no_node_takes_is_refused_here(delay: float) -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 1)])
        message = await receive(consumer)
        with pytest.raises(BadRequest, match="delay"):
            await consumer.nack(message, delay=delay)
        await consumer.nack(message, delay=366 * 86400.0)
        assert (await conversation.next(Settle)).nacked == [(0, 366 * 86400.0)]


async def test_a_consumer_whose_settlement_was_refused_leaves_the_subscription_to_others() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        message = await receive(consumer)
        await consumer.ack(message)
        await conversation.next(Settle)
        conversation.refuse(number, "bad-request")
        with pytest.raises(BadRequest, match="1 settlement was not confirmed"):
            await consumer.close()
        assert await left(conversation, number) in ([(0, 0, 1)], [(0, 0, 10)])


async def test_closing_that_times_out_still_leaves() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        message = await receive(consumer)
        await consumer.ack(message)
        with pytest.raises(TimedOut):
            await consumer.close()
        assert await left(conversation, number) == [(0, 0, 1)]


async def test_closing_that_is_cancelled_still_leaves() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s").open())
        number = (await conversation.subscribed()).consumer
        consumer = await opening
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        await consumer.ack(await anext(consumer.batches()))
        closing = asyncio.create_task(consumer.close())
        await conversation.next(Settle)
        closing.cancel()
        assert await left(conversation, number) == [(0, 0, 10)]
        with pytest.raises(asyncio.CancelledError):
            await closing


async def test_a_consumer_leaves_once() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        with pytest.raises(TimedOut):
            await consumer.close()  # no UNSUBSCRIBED comes
        await left(conversation, number)
        await consumer.close()
    with pytest.raises(AssertionError, match="ended"):
        await conversation.next(Unsubscribe)


async def test_a_consumer_that_waits_for_a_busy_subscription_stops_trying_when_closed() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.abort()
        second = await peer.conversation()
        await second.next(Subscribe)
        second.refuse(number, "subscription-busy", retryable=True)
        await second.next(Subscribe)
        closing = asyncio.create_task(consumer.close())
        await left(second, number)
        second.refuse(number, "subscription-busy", retryable=True)
        second.say(Unsubscribed(number))
        await closing
    with pytest.raises(AssertionError, match="ended"):
        await second.next(Subscribe)


async def test_messages_to_a_closed_consumer_are_ignored() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s", close_timeout=0.01).open())
        number = (await conversation.subscribed()).consumer
        with pytest.raises(TimedOut):
            await (await opening).close()
        conversation.refuse(number, "bad-request")
        conversation.say(Settled(number, 7), Unsubscribed(number))
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        again = asyncio.create_task(client.consumer("t", "s", close_timeout=0.01).open())
        next_number = (await conversation.subscribed()).consumer
        conversation.deliver(next_number, record(VALUES, 0), spans=[(0, 1)])
        assert await entries(await again, 1) == [0]
        assert client.link.reconnects == 0
        await asyncio.gather((await again).close(), return_exceptions=True)


async def test_a_subscription_can_be_opened_again_after_closing_timed_out(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"1")
        consumer = await client.consumer(topic, "s", close_timeout=1e-9).open()
        message = await receive(consumer)
        await consumer.ack(message)
        with pytest.raises(TimedOut):
            await consumer.close()
        async with client.consumer(topic, "s") as again:
            with pytest.raises(SubscriptionBusy):
                await client.consumer(topic, "s").open()
            assert await again.receive(0.05) is None  # the settlement came before


def test_more_credit_than_a_node_grants_is_refused_here() -> None:
    with pytest.raises(BadRequest, match="credit_bytes"):
        ConsumerOptions(credit_bytes=2**30 + 1)
    assert ConsumerOptions(credit_bytes=2**30).credit_bytes == 2**30


def test_a_consumer_that_fails_over_to_another_nodes_topic_settles_nothing_there(tmp_path: Path) -> None:
    async def fill(url: str, values: list[bytes]) -> None:
        async with headpond.connect(url) as client, client.producer("t") as producer:
            for value in values:
                producer.post(value)

    async def scenario(one: RealNode, other: RealNode) -> None:
        await fill(one.url, VALUES)
        await fill(other.url, VALUES)
        async with headpond.connect([one.url, other.url]) as client:
            consumer = await client.consumer("t", "s").open()
            messages = [await receive(consumer) for _ in range(10)]
            one.kill()
            for message in messages[:3]:
                await consumer.ack(message)
            assert await entries(consumer, 10) == list(range(10))
            await asyncio.wait_for(consumer.flush(), 10)
            assert (await client.admin.show_subscription("t", "s")).settled == 0, "entries there are others"
            await consumer.close()
            async with client.consumer("t", "s") as again:
                assert await entries(again, 10) == list(range(10))

    with RealNode(tmp_path / "one") as one, RealNode(tmp_path / "other") as other:
        asyncio.run(scenario(one, other))


async def test_a_consumer_can_be_opened_again_after_a_refusal_and_after_it_was_closed(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            for value in (b"0", b"1"):
                await producer.send(value)
        consumer = client.consumer(topic, "s")
        async with client.consumer(topic, "s"):
            with pytest.raises(SubscriptionBusy):
                await consumer.open()
        for value in (b"0", b"1"):
            async with consumer:
                message = await consumer.receive(10)
                assert message is not None and message.value == value
                await consumer.ack(message)
            assert await consumer.receive(0.1) is None, "it is closed"


async def test_a_consumer_that_the_program_dropped_is_closed_with_its_client(
    shared_url: str, topic: str
) -> None:
    async def take_one(client: headpond.Client) -> weakref.ref[headpond.Consumer]:
        consumer = await client.consumer(topic, "s").open()
        message = await receive(consumer)
        await consumer.ack(message)
        return weakref.ref(consumer)

    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"0")
        dropped = await take_one(client)
        gc.collect()
        assert dropped() is not None, "the client closes it, and so needs it"
    async with headpond.connect(shared_url) as client:
        info = await client.admin.show_subscription(topic, "s")
        assert (info.acked, info.consumers) == (1, [])
