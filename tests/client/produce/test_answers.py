"""How a producer handles answers: good, bad, late and missing ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from headpond.model.errors import (
    BadSegment,
    Closed,
    Conflict,
    TimedOut,
)
from headpond.model.receipt import Outcome
from headpond.wire.control.codec import encode_control
from headpond.wire.control.producing import Ack, AckItem, BlockEnd, Hole
from headpond.wire.frame import Frame
from tests.client.peer import serving, until
from tests.client.test_connecting import quick


async def test_a_duplicate_is_a_receipt_that_names_the_first_copy() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        conversation = await peer.conversation()
        promise = producer.post(b"a")
        frame, _ = await conversation.values()
        conversation.answer(frame, "duplicate", first_entry=41)
        receipt = await promise
        assert (receipt.outcome, receipt.entry, receipt.stored) == (Outcome.DUPLICATE, 41, True)
        assert producer.stats.duplicate == 1


async def test_a_gap_sends_again_from_the_expected_segment_with_the_same_bytes() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"%d" % number) for number in range(3)]
        first = [await conversation.next(Frame) for _ in range(3)]
        conversation.answer(first[0])
        conversation.reject(first[1], "gap", expected=1)
        conversation.reject(first[2], "gap", expected=1)
        again = [await conversation.next(Frame) for _ in range(2)]
        assert again == first[1:]
        for frame in again:
            conversation.answer(frame)
        entries = [(await promise).entry for promise in promises]
        assert entries == [0, 100, 200]
        assert producer.stats.resent == 2


@pytest.mark.parametrize("code", ["disk-full", "storage-failed", "predecessor", "stopping", "limit"])
async def test_a_retryable_refusal_is_tried_again_in_order(code: str) -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"a"), producer.post(b"b")]
        first = [await conversation.next(Frame) for _ in range(2)]
        conversation.reject(first[0], code)
        conversation.reject(first[1], "gap", expected=0)
        again = [await conversation.next(Frame) for _ in range(2)]
        assert [frame.segment for frame in again] == [0, 1]
        for frame in again:
            conversation.answer(frame)
        assert [(await promise).entry for promise in promises] == [0, 100]


async def test_a_node_that_refuses_for_now_is_named_in_receipt_stats_and_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving() as peer,
        quick(peer) as client,
        client.producer("t", refill=tmp_path, spill_after=0.05, close_timeout=0.1) as producer,
    ):
        conversation = await peer.conversation()
        promise = producer.post(b"a")
        first = await conversation.next(Frame)
        while not promise.done():
            conversation.reject(first, "disk-full")
            first = await conversation.next(Frame)
        receipt = await promise
        assert receipt.outcome is Outcome.SPILLED and receipt.reason is not None
        assert receipt.reason.code == "disk-full"
        (hindrance,) = producer.stats.hindrances
        assert "disk-full" in hindrance
        conversation.answer(first)
        await promise.confirmed()
        assert producer.stats.hindrances == ()
        await until(lambda: any("takes messages again" in text for text in caplog.messages))
    warned = [text for text in caplog.messages if "takes nothing for now (disk-full" in text]
    assert len(warned) == 1


async def test_a_node_that_cannot_open_the_topic_for_now_is_named_in_receipt_stats_and_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as peer, quick(peer) as client:
        peer.hindrance = "disk-full"
        async with client.producer("t", refill=tmp_path) as producer:
            (hindrance,) = producer.stats.hindrances
            assert "disk-full" in hindrance
            receipt = await producer.send(b"a")
            assert receipt.outcome is Outcome.SPILLED and receipt.reason is not None
            assert receipt.reason.code == "disk-full"
            peer.hindrance = ""
            conversation = await peer.conversation()
            conversation.answer(await conversation.next(Frame))
            await until(lambda: any("takes messages again" in text for text in caplog.messages))
            assert producer.stats.hindrances == ()
    warned = [text for text in caplog.messages if "takes nothing for now (disk-full" in text]
    assert len(warned) == 1


async def test_the_receipt_of_a_message_spilled_while_the_node_is_away_has_the_reason(tmp_path: Path) -> None:
    async with (
        headpond.connect("headpond://127.0.0.1:1", wait=False) as client,
        client.producer("t", refill=tmp_path, close_timeout=0.1) as producer,
    ):
        receipt = await producer.send(b"a")
        assert receipt.reason is not None and receipt.reason.code == "unavailable"


async def test_a_final_refusal_is_raised_with_its_receipt_and_the_next_message_is_stored() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        bad, good = producer.post(b"bad"), producer.post(b"good")
        conversation.reject(await conversation.next(Frame), "conflict")
        conversation.answer(await conversation.next(Frame))
        with pytest.raises(Conflict) as caught:
            await bad
        assert caught.value.receipt.outcome is Outcome.REJECTED
        assert caught.value.receipt.identity.segment == 0
        assert (await good).stored
        assert (producer.stats.rejected, producer.stats.stored) == (1, 1)
        await producer.flush()  # the failure was seen: it is not raised again


async def test_a_failure_that_nobody_awaited_is_raised_by_flush_and_once_only() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"a"), producer.post(b"b"), producer.post(b"c")]
        conversation.reject(await conversation.next(Frame), "bad-segment")
        with pytest.raises(BadSegment):
            await promises[1]
        with pytest.raises(BadSegment, match="2 posted messages failed"):
            await producer.flush()
        await producer.flush()


async def test_a_failure_that_nobody_awaited_is_raised_by_closing() -> None:
    async with serving() as peer, quick(peer) as client:
        producer = await client.producer("t").open()
        conversation = await peer.conversation()
        producer.post(b"a")
        conversation.reject(await conversation.next(Frame), "bad-segment")
        with pytest.raises(BadSegment):
            await producer.close()


async def test_after_a_lost_connection_the_same_segments_come_again_behind_a_title() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        first = await peer.conversation()
        promises = [producer.post(b"%d" % number) for number in range(3)]
        frames = [await first.next(Frame) for _ in range(3)]
        first.answer(frames[1])
        assert (await promises[1]).entry == 100
        first.abort()
        second = await peer.conversation()
        again = [await second.next(Frame) for _ in range(2)]
        assert again == [frames[0], frames[2]]
        assert second.block == first.block
        second.answer(again[0], "duplicate", first_entry=0)
        second.answer(again[1])
        assert [(await promise).outcome for promise in promises] == ["duplicate", "stored", "stored"]
        assert producer.stats.reconnects == 1


async def test_an_answer_cut_off_in_mid_frame_counts_as_none() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        first = await peer.conversation()
        promise = producer.post(b"a")
        frame = await first.next(Frame)
        assert first.block is not None
        whole = encode_control(Ack(first.block, 0, "sync", [AckItem(0, "stored", 7)]))
        first.write(whole[:-3])
        await asyncio.sleep(0.01)
        assert not promise.done()
        first.abort()
        second = await peer.conversation()
        assert await second.next(Frame) == frame
        second.answer(frame, "duplicate", first_entry=7)
        assert (await promise).entry == 7


async def test_answers_that_come_twice_out_of_order_or_to_strangers_are_harmless() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"%d" % number) for number in range(3)]
        frames = [await conversation.next(Frame) for _ in range(3)]
        conversation.say(Ack(b"s" * 16, 0, "sync", [AckItem(0, "stored", 5)]))
        for frame in (frames[2], frames[0], frames[0], frames[2], frames[1], frames[1]):
            conversation.answer(frame)
        assert [(await promise).entry for promise in promises] == [0, 100, 200]
        assert producer.stats.stored == 3


async def test_a_message_that_is_never_answered_times_out_and_later_ones_still_arrive() -> None:
    async with (
        serving() as peer,
        quick(peer) as client,
        client.producer("t", timeout=0.05, refill=None) as producer,
    ):
        conversation = await peer.conversation()
        with pytest.raises(TimedOut):
            await producer.send(b"old")
        promise = producer.post(b"new")
        assert (await conversation.next(Frame)).segment == 0
        frame = await conversation.next(Frame)
        conversation.reject(frame, "gap", expected=0)
        assert (await conversation.next(Hole)).segment == 1
        conversation.answer(await conversation.next(Frame))
        assert (await promise).entry == 100
        assert producer.memory_bytes == 0


async def test_messages_time_out_while_the_node_is_away() -> None:
    async with serving() as peer, quick(peer, min_s=60, random=1.0) as client:
        producer = await client.producer("t", timeout=0.05, refill=None).open()
        (await peer.conversation()).abort()
        await asyncio.sleep(0.01)
        with pytest.raises(TimedOut) as caught:
            await producer.send(b"a")
        assert caught.value.receipt.outcome == "rejected"
        assert producer.stats.rejected == 1


async def test_the_end_of_a_block_names_the_next_segments() -> None:
    async with serving(shards=2) as peer, quick(peer) as client:
        async with client.producer("t", batch_rows=1) as producer:
            conversation = await peer.conversation()
            for number in range(3):
                producer.post(b"%d" % number)
            for _ in range(3):
                conversation.answer(await conversation.next(Frame))
        end = await conversation.next(BlockEnd)
        assert end.block == producer.block
        assert sorted(end.segments_next.values()) == [1, 2]


async def test_two_producers_on_one_connection_change_titles() -> None:
    async with (
        serving() as peer,
        quick(peer) as client,
        client.producer("a") as one,
        client.producer("b") as two,
    ):
        conversation = await peer.conversation()
        for producer in (one, two, two, one):
            promise = producer.post(b"x")
            frame = await conversation.next(Frame)
            assert conversation.block == producer.block
            conversation.answer(frame)
            await promise
        assert conversation.titles == 3


async def test_closing_is_bounded_and_says_how_many_are_unconfirmed() -> None:
    async with serving() as peer, quick(peer) as client:
        producer = await client.producer("t", close_timeout=0.05, refill=None).open()
        producer.post(b"a")
        producer.post(b"b")
        with pytest.raises(TimedOut, match="2 posted messages failed"):
            await producer.close()
        with pytest.raises(Closed):
            producer.post(b"c")


async def test_an_exception_in_the_block_is_not_hidden_and_posted_messages_are_still_sent() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()

        async def answer() -> None:
            conversation.answer(await conversation.next(Frame))

        answering = asyncio.create_task(answer())
        producer = client.producer("t")

        async def fail() -> None:
            async with producer:
                producer.post(b"a")
                raise KeyError("the application's own")

        with pytest.raises(KeyError):
            await fail()
        await answering
        assert producer.stats.stored == 1


async def test_closing_ends_every_wait_for_room() -> None:
    async with serving() as peer, quick(peer) as client:
        producer = await client.producer("t", memory_max=100, close_timeout=0.02, refill=None).open()
        sends = [asyncio.create_task(producer.send(b"x" * 100)) for _ in range(5)]
        await asyncio.sleep(0.01)
        await producer.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(result) for result in results] == [TimedOut, Closed, Closed, Closed, Closed]


async def test_giving_up_one_wait_leaves_the_other_rows_of_the_segment() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        conversation = await peer.conversation()
        waits = [asyncio.create_task(producer.send(b"%d" % number)) for number in range(3)]
        frame = await conversation.next(Frame)
        waits[1].cancel()
        conversation.answer(frame)
        assert [(await wait).entry for wait in (waits[0], waits[2])] == [0, 2]
        with pytest.raises(asyncio.CancelledError):
            await waits[1]


async def test_refusals_of_a_whole_window_start_one_clock() -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"%d" % number) for number in range(5)]
        for frame in [await conversation.next(Frame) for _ in range(5)]:
            conversation.reject(frame, "storage-failed")
        for frame in [await conversation.next(Frame) for _ in range(5)]:
            conversation.answer(frame)
        for promise in promises:
            await promise
        await asyncio.sleep(0.02)  # clocks of a millisecond would have run out
    assert faults == []
