"""The two ends of a pipe in one process: room, flushing, confirming, failing and closing."""

from __future__ import annotations

import asyncio

import pytest

from headpond.model.errors import BadRequest, Closed, PipeFull, SegmentTooLarge, TimedOut
from headpond.pipes.drivers import lane, memory
from headpond.pipes.drivers.memory import CarryOn
from headpond.pipes.drivers.receiver import INBOX_MAX, PipeReceiver
from headpond.pipes.drivers.sender import PAYLOAD_BYTES_MAX
from headpond.pipes.machines.compose import ReceiverStack
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.stream import Entries, StoredStream
from tests.client.peer import until
from tests.pipes.drivers.ends import reading


def lose_everything(packet: Packet, carry_on: CarryOn) -> None:
    pass


async def test_a_send_waits_while_the_pipe_has_no_room() -> None:
    sender, receiver = memory.pair("resend_many(window=8, confirm=settled)")
    async with receiver, sender:
        for number in range(8):
            await sender.send(b"%d" % number)
        ninth = asyncio.create_task(sender.send(b"8"))
        first = await receiver.receive()
        assert first is not None and first.payload == b"0"
        assert not ninth.done()
        assert sender.stats.accepted == 8
        receiver.confirm(first)
        await ninth
        assert sender.stats.accepted == 9
        await sender.abort()


async def test_waiting_senders_get_their_turn_one_after_the_other() -> None:
    sender, receiver = memory.pair("sequential(buffer=1)")
    async with receiver, sender, reading(receiver) as got:
        await asyncio.gather(*(sender.send(b"%d" % number) for number in range(50)))
        await sender.flush()
        assert got == list(range(50))


async def test_payloads_sent_together_stay_together_when_several_callers_wait_for_room() -> None:
    intruders: list[asyncio.Task[None]] = []

    def intrude(packet: Packet, carry_on: CarryOn) -> None:
        carry_on(packet)
        if packet.kind == Kind.CONFIRM and len(intruders) < 3:
            # It runs right after the confirm has made room, and before the one who waited for that.
            intruders.append(asyncio.create_task(sender.send(b"1000")))

    sender, receiver = memory.pair("resend_many(window=7) | continuous(gaps=false)", between=intrude)
    async with receiver, sender, reading(receiver) as got:
        await sender.send_many([b"%d" % number for number in range(100)])
        await asyncio.gather(*intruders)
        await sender.flush()
        assert got == [*range(100), 1000, 1000, 1000]


async def test_a_receiver_that_is_not_read_takes_a_bounded_number() -> None:
    sender, receiver = memory.pair("index")
    async with receiver, sender:
        sending = asyncio.create_task(sender.send_many([b"%d" % number for number in range(5 * INBOX_MAX)]))
        await until(lambda: receiver.stats.delivered >= INBOX_MAX)
        for _ in range(100):
            await asyncio.sleep(0)
        assert receiver.stats.delivered < 2 * INBOX_MAX
        assert not sending.done()
        got = [int((await anext(receiver.items())).payload) for _ in range(5 * INBOX_MAX)]
        await sending
        assert got == list(range(5 * INBOX_MAX))


async def test_flush_waits_for_earlier_messages_and_not_for_later_ones() -> None:
    sender, receiver = memory.pair("resend_many(confirm=settled)")
    async with receiver, sender:
        await sender.send(b"before")
        flushing = asyncio.create_task(sender.flush())
        first = await receiver.receive()
        await sender.send(b"after")
        second = await receiver.receive()
        assert first is not None and second is not None
        receiver.confirm(second)
        await until(lambda: sender.stats.confirmed == 1)
        assert not flushing.done()
        receiver.confirm(first)
        await flushing


async def test_the_plain_loop_confirms_a_message_when_it_asks_for_the_next() -> None:
    sender, receiver = memory.pair("resend_many(confirm=settled)")
    async with receiver, sender:
        await sender.send_many([b"a", b"b"])
        loop = aiter(receiver)
        assert await anext(loop) == b"a"
        await asyncio.sleep(0.01)
        assert sender.stats.confirmed == 0
        assert await anext(loop) == b"b"
        await until(lambda: sender.stats.confirmed == 1)
        receiver.confirm()
        await sender.flush()


async def test_a_message_that_failed_comes_again_even_through_dedup() -> None:
    sender, receiver = memory.pair("resend_many(confirm=settled) | dedup")
    async with receiver, sender:
        await sender.send(b"fragile")
        first = await receiver.receive()
        assert first is not None
        receiver.fail(first)
        again = await receiver.receive(20)
        assert again is not None
        assert (again.payload, again.number, again.epoch) == (b"fragile", first.number, first.epoch)
        receiver.confirm(again)
        await sender.flush()


async def test_runs_are_confirmed_as_a_whole() -> None:
    sender, receiver = memory.pair("resend_many(confirm=settled)")
    async with receiver, sender:
        await sender.send_many([b"%d" % number for number in range(100)])
        run = await anext(receiver.runs())
        assert list(run.payloads) == [b"%d" % number for number in range(100)]
        receiver.confirm(run)
        await sender.flush()
        assert sender.stats.confirmed == 100


async def test_confirms_of_unknown_messages_are_ignored_and_counted() -> None:
    def lie(packet: Packet, carry_on: CarryOn) -> None:
        carry_on(packet)
        if packet.kind == Kind.CONFIRM:
            carry_on(packet)
            carry_on(packet._replace(numbers=(10**6,)))
            carry_on(packet._replace(epoch=packet.epoch + 1))

    sender, receiver = memory.pair("resend_many", between=lie)
    async with receiver, sender, reading(receiver) as got:
        await sender.send(b"1")
        await sender.flush()
        await until(lambda: sender.stats.confirms_ignored == 3)
        assert got == [1]
        assert sender.stats.confirmed == 1


async def test_closing_says_how_much_is_not_confirmed() -> None:
    sender, receiver = memory.pair("resend_many", between=lose_everything)
    async with receiver:
        await sender
        await sender.send_many([b"a", b"b", b"c"])
        with pytest.raises(TimedOut, match="3 messages"):
            await sender.close(timeout=0.02)
        with pytest.raises(Closed):
            await sender.send(b"d")


async def test_an_empty_wait_returns_nothing_and_loses_nothing() -> None:
    sender, receiver = memory.pair("resend_many")
    async with receiver, sender:
        assert await receiver.receive(timeout=0.01) is None
        await sender.send(b"")
        item = await receiver.receive()
        assert item is not None and item.payload == b""
    assert await receiver.receive() is None
    assert [payload async for payload in receiver] == []


async def test_a_payload_that_is_not_bytes_is_refused_before_anything_is_sent() -> None:
    sender, receiver = memory.pair("resend_many")
    async with receiver, sender:
        with pytest.raises(BadRequest, match="str"):
            await sender.send("text")  # type: ignore[arg-type]
        with pytest.raises(SegmentTooLarge):
            await sender.send_many([b"fits", bytes(PAYLOAD_BYTES_MAX + 1)])
        assert sender.stats.accepted == 0


async def test_an_end_that_is_not_open_says_so() -> None:
    sender, receiver = memory.pair("resend_many")
    with pytest.raises(Closed, match="not open"):
        await sender.send(b"a")
    assert await receiver.receive() is None
    await sender.close()
    await receiver.close()


def test_a_route_that_cannot_be_is_refused_when_the_pipe_is_made() -> None:
    with pytest.raises(BadRequest, match="resend_mny"):
        memory.pair("resend_mny")
    with pytest.raises(BadRequest, match="stands first"):
        memory.pair("dedup | stream")


# --- a stream's storage beside its receiver ---------------------------------------------------------


async def test_committed_messages_are_trimmed() -> None:
    sender, receiver = memory.pair("stream")
    async with receiver, sender, reading(receiver) as got:
        for _ in range(20):
            await sender.send_many([b"1"] * 1024)
        await sender.flush()
        await until(lambda: len(got) == 20 * 1024)
        assert len(entries_of(receiver).payloads) < 2048
        assert entries_of(receiver).first > 18 * 1024


async def test_a_storage_without_commit_fills_up_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "STORED_MAX", 10)
    sender, receiver = memory.pair("stream(commit=false)")
    async with receiver, sender, reading(receiver) as got:
        await sender.send_many([b"%d" % number for number in range(12)])
        await until(lambda: len(got) == 10)
        assert [notice.what for notice in receiver.notices] == ["storage full"]
        assert sender.stats.confirmed == 10
        await sender.abort()


async def test_a_stored_message_that_is_refused_stops_the_receiver_and_is_not_committed() -> None:
    def overtaken(packet: Packet, carry_on: CarryOn) -> None:
        if packet.kind == Kind.DATA and 0 in packet.numbers:
            asyncio.get_running_loop().call_later(0.1, carry_on, packet)
        else:
            carry_on(packet)

    sender, receiver = memory.pair("stream | continuous(gaps=false, queue=2)", between=overtaken)
    async with receiver, sender:
        for number in range(5):
            await sender.send(b"%d" % number)
            await asyncio.sleep(0.001)
        with pytest.raises(PipeFull, match="no room for message 3"):
            await receiver.receive(5)
        assert [notice.what for notice in receiver.notices] == ["refused", "refused"]
        assert len(entries_of(receiver).payloads) >= 2, "the refused messages are still stored"
        await sender.abort()


def entries_of(receiver: PipeReceiver) -> Entries:
    machine = receiver._source.lanes[0]._runner.machine
    assert isinstance(machine, ReceiverStack) and isinstance(machine.layers[0], StoredStream)
    return machine.layers[0].entries


@pytest.mark.parametrize("route", ["channel(loss=0.5)", "resend_many | worker(fail=0.1)"])
def test_a_made_up_channel_or_worker_is_refused_between_programs(route: str) -> None:
    with pytest.raises(BadRequest, match="describes its channel or its worker"):
        memory.pair(route)


async def test_a_message_given_up_after_its_last_try_ends_the_wait_and_is_reported() -> None:
    sender, receiver = memory.pair("resend_many(tries=1, timeout=1)", between=lose_everything)
    async with receiver, sender:
        await sender.send(b"lost")
        await sender.flush()
        assert (sender.stats.given_up, sender.stats.confirmed, sender.stats.unconfirmed) == (1, 0, 0)
        assert [notice.what for notice in sender.notices] == ["given up"]
