"""How a consumer handles deliveries, lost connections and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import headpond
from headpond.model.errors import Closed, SubscriptionBusy, SubscriptionNotFound, TimedOut
from headpond.wire.control.consuming import (
    Credit,
    Lost,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.frame import OVERHEAD_BYTES, FrameType, encode
from headpond.wire.record import RecordHeader
from tests.client.peer import TOPIC_UUID, Conversation, Peer, record, serving, until
from tests.client.reading import receive
from tests.client.test_connecting import quick

VALUES = [b"%d" % number for number in range(10)]


@asynccontextmanager
async def consuming(
    peer: Peer, **options: int | float | str
) -> AsyncIterator[tuple[headpond.Consumer, Conversation, int]]:
    """An open consumer, its conversation and its number. Leaving it waits for no answers."""
    async with quick(peer) as client:
        conversation = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s", close_timeout=0.01, **options).open())  # type: ignore[call-overload]
        ask = await conversation.subscribed()
        consumer = await opening
        try:
            yield consumer, conversation, ask.consumer
        finally:
            await asyncio.gather(consumer.close(), return_exceptions=True)


async def entries(consumer: headpond.Consumer, count: int) -> list[int]:
    return [(await receive(consumer)).entry for _ in range(count)]


async def test_only_the_rows_that_are_meant_are_handed_out() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        two = (record(VALUES, 100), record(VALUES, 110, segment=1))
        conversation.deliver(number, *two, spans=[(101, 103), (105, 106), (108, 112)], attempt=3)
        batches = consumer.batches()
        first, second = await anext(batches), await anext(batches)
        assert first.entries.to_pylist() == [101, 102, 105, 108, 109]
        assert first.arrow.column("value").to_pylist() == [b"1", b"2", b"5", b"8", b"9"]
        assert first.arrow.schema.names == ["value", "key", "id", "headers", "sent_at"]
        assert [message.value for message in second.messages()] == [b"0", b"1"]
        assert [message.identity.row for message in second.messages()] == [0, 1]
        assert (first.attempt, first.shard, len(first), second.origins[0].segment) == (3, 0, 5, 1)


async def test_credit_for_whole_frames_goes_back_as_batches_are_handed_out() -> None:
    async with serving() as peer, consuming(peer, credit_bytes=1000) as (consumer, conversation, number):
        frames = [record([b"x" * 200], entry) for entry in range(4)]
        for entry, frame in enumerate(frames):
            conversation.deliver(number, frame, spans=[(entry, entry + 1)])
        await entries(consumer, 1)
        credit = await conversation.next(Credit)
        assert credit.bytes == len(frames[0])
        await entries(consumer, 3)
        returned = [await conversation.next(Credit) for _ in range(3)]
        assert sum(credit.bytes for credit in returned) == sum(map(len, frames[1:]))


async def test_a_new_connection_is_not_owed_credit_for_the_old_one() -> None:
    async with serving() as peer, consuming(peer, credit_bytes=1000) as (consumer, first, number):
        first.deliver(number, record([b"x"], 0), spans=[(0, 1)])
        await entries(consumer, 1)  # handed out; too little to give credit back for yet
        first.abort()
        second = await peer.conversation()
        await second.subscribed()
        assert (await second.next(Credit)).bytes == 1000
        frame = record([b"x" * 200], 1)
        second.deliver(number, frame, spans=[(1, 2)])
        await entries(consumer, 1)
        assert (await second.next(Credit)).bytes == len(frame)


async def test_settlements_travel_as_ranges() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        messages = [await receive(consumer) for _ in range(10)]
        for place in (0, 1, 2, 7, 5, 4):
            await consumer.ack(messages[place])
        await consumer.skip(messages[9])
        await consumer.nack(messages[3], delay=2.5)
        await consumer.nack(messages[6])
        settle = await conversation.next(Settle)
        assert settle.acked == [(0, 3), (4, 6), (7, 8)]
        assert settle.skipped == [(9, 10)]
        assert settle.nacked == [(3, 2.5), (6, None)]


async def test_flush_waits_until_settlements_are_on_the_nodes_disk() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        await consumer.flush()  # nothing settled, nothing to wait for
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        message = await receive(consumer)
        await consumer.ack(message)
        flush = asyncio.create_task(consumer.flush())
        settle = await conversation.next(Settle)
        await asyncio.sleep(0.01)
        assert not flush.done()
        conversation.say(Settled(number, settle.number))
        await flush


async def test_after_a_reconnect_settlements_come_first_and_nothing_held_is_handed_out_twice() -> None:
    async with serving() as peer, consuming(peer, kind="shared") as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        first.deliver(number, record(VALUES, 10, segment=1), spans=[(10, 20)])
        held = [await receive(consumer) for _ in range(3)]
        await consumer.ack(held[0])
        await first.next(Settle)
        first.abort()

        second = await peer.conversation()
        ask = await second.subscribed()
        assert (ask.consumer, ask.subscription, ask.credit_bytes) == (number, "s", 0)
        assert ask.seen == [(0, 0, 3)]
        settle = await second.next(Settle)
        assert settle.acked == [(0, 1)]
        assert (await second.next(Credit)).bytes == 8 * 1024 * 1024
        second.deliver(number, record(VALUES, 0), spans=[(1, 10)], attempt=2)
        second.deliver(number, record(VALUES, 10, segment=1), spans=[(10, 20)], attempt=2)
        assert await entries(consumer, 17) == list(range(3, 20))
        assert await consumer.receive(0.01) is None
        await consumer.ack(held[1])
        assert (await second.next(Settle)).acked == [(1, 2)]


async def test_a_message_that_the_node_took_back_is_not_refused_to_it() -> None:
    async with serving() as peer, consuming(peer, kind="shared") as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        held = [await receive(consumer) for _ in range(2)]
        first.abort()

        second = await peer.conversation()
        await second.subscribed()
        await second.next(Credit)
        second.deliver(number, record(VALUES, 0), spans=[(0, 2)], attempt=2)  # it knows of no refusal
        await consumer.nack(held[0])
        assert await entries(consumer, 1) == [0]  # it has come again; the other one is still in hand
        await consumer.nack(held[1])
        assert (await second.next(Settle)).nacked == [(1, None)]


async def test_nothing_that_was_only_sent_ahead_is_handed_out_once_the_connection_is_lost() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        first.deliver(number, record(VALUES, 10, segment=1), spans=[(10, 20)])
        batches = consumer.batches()
        assert await entries(consumer, 3) == [0, 1, 2]
        first.abort()
        await until(lambda: not consumer._links[0].up)
        assert await consumer.receive(0.01) is None
        second = await peer.conversation()
        assert (await second.subscribed()).seen == [(0, 0, 3)]
        second.deliver(number, record(VALUES, 10, segment=1), spans=[(15, 20)])
        assert (await anext(batches)).entries.to_pylist() == [15, 16, 17, 18, 19], "others have the rest"


async def test_a_returning_consumer_names_only_messages_whose_settlement_is_not_confirmed() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        messages = [await receive(consumer) for _ in range(6)]
        await consumer.ack(messages[0])
        await consumer.skip(messages[2])
        settle = await first.next(Settle)
        first.say(Settled(number, settle.number))
        await consumer.flush()
        await consumer.ack(messages[4])
        first.abort()
        second = await peer.conversation()
        assert (await second.subscribed()).seen == [(0, 1, 2), (0, 3, 6)]
        assert (await second.next(Settle)).acked == [(4, 5)]


async def test_a_node_that_delivers_to_one_consumer_redelivers_on_purpose() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        assert await entries(consumer, 1) == [0]
        first.abort()
        second = await peer.conversation()
        await second.subscribed()
        second.deliver(number, record(VALUES, 0), spans=[(0, 1)], attempt=2)  # its deadline is over
        assert await entries(consumer, 1) == [0]


async def test_nothing_is_settled_before_the_node_said_that_the_consumer_is_subscribed() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        message = await receive(consumer)
        first.abort()
        second = await peer.conversation()
        ask = await second.next(Subscribe)
        await consumer.ack(message)
        consumer.send_settlements()
        await asyncio.sleep(0.01)
        assert second.said.empty()
        second.say(Subscribed(ask.consumer, ask.topic, TOPIC_UUID, 1, ask.kind, ask.mode, [0]))
        assert (await second.next(Settle)).acked == [(0, 1)]
        assert (await second.next(Credit)).bytes == 8 * 1024 * 1024


async def test_entries_given_back_may_come_again_after_a_reconnect() -> None:
    async with serving() as peer, consuming(peer, kind="shared") as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 2)])
        messages = [await receive(consumer) for _ in range(2)]
        await consumer.nack(messages[0])
        first.abort()
        second = await peer.conversation()
        await second.subscribed()
        second.deliver(number, record(VALUES, 0), spans=[(0, 2)], attempt=2)
        message = await receive(consumer)
        assert (message.entry, message.attempt) == (0, 2)
        assert await consumer.receive(0.01) is None


async def test_a_message_that_is_delivered_again_on_the_same_connection_is_handed_out_again() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        for attempt in (1, 2):
            conversation.deliver(number, record(VALUES, 0), spans=[(0, 1)], attempt=attempt)
        assert await entries(consumer, 2) == [0, 0]


async def test_settlements_made_while_the_node_is_away_are_not_lost() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        batch = await anext(consumer.batches())
        first.abort()
        await consumer.ack(batch)
        flush = asyncio.create_task(consumer.flush())
        second = await peer.conversation()
        await second.subscribed()
        settle = await second.next(Settle)
        assert settle.acked == [(0, 10)]
        second.say(Settled(number, settle.number))
        await flush


async def test_a_busy_subscription_is_tried_again_after_a_reconnect() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        first.abort()
        second = await peer.conversation()
        await second.next(Subscribe)
        second.refuse(number, "subscription-busy", retryable=True)
        await second.subscribed()
        second.deliver(number, record(VALUES, 0), spans=[(0, 1)])
        assert await entries(consumer, 1) == [0]


async def test_a_refused_subscription_is_raised_at_once() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s").open())
        ask = await conversation.next(Subscribe)
        conversation.refuse(ask.consumer, "subscription-busy", retryable=True)
        with pytest.raises(SubscriptionBusy):
            await opening


async def test_a_deleted_subscription_is_raised_from_every_wait() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 1)])
        message = await receive(consumer)
        await consumer.ack(message)
        waiting = asyncio.create_task(consumer.receive())
        flushing = asyncio.create_task(consumer.flush())
        await conversation.next(Settle)
        conversation.refuse(number, "subscription-not-found")
        for wait in (waiting, flushing):
            with pytest.raises(SubscriptionNotFound):
                await wait
        with pytest.raises(SubscriptionNotFound):
            await anext(aiter(consumer))


async def test_lost_entries_are_listed() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.say(Lost(number, 0, [(3, 5), (7, 8)], "damaged"))
        conversation.deliver(number, record(VALUES, 10), spans=[(10, 11)])
        assert await entries(consumer, 1) == [10]
        assert consumer.lost == [(0, 3, 5, "damaged"), (0, 7, 8, "damaged")]


async def test_a_record_that_cannot_be_read_is_reported_and_not_handed_out() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        body = RecordHeader(0, 10, b"b" * 16, 0, 0).encode() + b"not a segment"
        bad = encode(FrameType.SEGMENT, body)
        conversation.deliver(number, bad, record(VALUES, 10, segment=1), spans=[(0, 11)])
        assert await entries(consumer, 1) == [10]
        [lost] = consumer.lost
        assert lost[:3] == (0, 0, 10)
        assert "cannot be read" in lost.reason


async def test_a_delivery_cut_off_in_mid_frame_is_dropped_whole() -> None:
    async with serving() as peer, consuming(peer) as (consumer, first, number):
        frames = record(VALUES, 0), record(VALUES, 10, segment=1)
        first.deliver(number, frames[0], frames[1][: OVERHEAD_BYTES + 3], spans=[(0, 20)])
        assert await consumer.receive(0.02) is None
        first.abort()
        second = await peer.conversation()
        await second.subscribed()
        second.deliver(number, *frames, spans=[(0, 20)])
        assert await entries(consumer, 20) == list(range(20))


async def test_closing_flushes_then_leaves_and_ends_iteration() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()
        opening = asyncio.create_task(client.consumer("t", "s").open())
        ask = await conversation.subscribed()
        consumer = await opening
        conversation.deliver(ask.consumer, record(VALUES, 0), spans=[(0, 10)])
        message = await receive(consumer)
        await consumer.ack(message)
        closing = asyncio.create_task(consumer.close())
        settle = await conversation.next(Settle)
        conversation.say(Settled(ask.consumer, settle.number))
        await conversation.next(Unsubscribe)
        assert not closing.done()
        conversation.say(Unsubscribed(ask.consumer))
        await closing
        assert [message async for message in consumer] == []
        assert await consumer.receive() is None
        with pytest.raises(Closed):
            await consumer.ack(message)


async def test_closing_says_when_settlements_were_not_confirmed_in_time() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 10)])
        await consumer.ack(await anext(consumer.batches()))
        with pytest.raises(TimedOut):
            await consumer.close()


async def test_a_loop_that_was_left_continues_at_the_next_message() -> None:
    async with serving() as peer, consuming(peer) as (consumer, conversation, number):
        conversation.deliver(number, record(VALUES, 0), spans=[(0, 4)])
        async for message in consumer:
            if message.entry == 1:
                break
        assert await entries(consumer, 1) == [2]
        async for message in consumer:
            assert message.entry == 3
            break
