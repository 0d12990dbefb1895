"""A stream over TCP whose messages are in a folder: they outlive the process, and are confirmed when synced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headpond.model.errors import BadRequest, DataLocked, StorageFailed, TimedOut
from headpond.pipes.drivers import store, tcp
from headpond.pipes.drivers.receiver import PipeReceiver
from headpond.pipes.machines.packet import seal
from headpond.storage.os_disk import OsDisk, OsDiskFile
from tests.client.peer import until
from tests.client.test_connecting import closed_port
from tests.pipes.drivers.child import Child
from tests.pipes.drivers.ends import QUICK

ROUTE = "stream | dedup"


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def send(receiver: PipeReceiver, payloads: list[bytes], route: str = ROUTE) -> None:
    async with tcp.connect(route, *receiver.address, backoff=QUICK) as sender:
        await sender.send_many(payloads)
        await sender.flush()


async def read(receiver: PipeReceiver, count: int) -> list[bytes]:
    """Reads without confirming."""
    items = [await receiver.receive(timeout=10) for _ in range(count)]
    return [item.payload for item in items if item is not None]


@pytest.mark.parametrize(("route", "again"), [("stream", 4), (ROUTE, 0)])
async def test_the_next_process_delivers_messages_that_the_program_had_not_confirmed(
    tmp_path: Path, route: str, again: int
) -> None:
    """With pipes over the stream it begins at a run's start: a message that a pipe dropped has no place."""
    async with tcp.listen(route, store=tmp_path) as receiver:
        await send(receiver, numbers(0, 10), route)
        for _ in range(4):
            item = await receiver.receive(timeout=10)
            assert item is not None
            receiver.confirm(item)
        await receiver.flush()
        assert await read(receiver, 2) == numbers(4, 2)
    async with tcp.listen(route, store=tmp_path) as receiver:  # and its sender is not there
        assert await read(receiver, 10 - again) == numbers(again, 10 - again)
        assert await receiver.receive(timeout=0) is None


async def test_a_killed_receiver_loses_nothing_that_was_confirmed_to_the_sender(tmp_path: Path) -> None:
    port = await closed_port()
    async with Child("store-tcp", ROUTE, port, tmp_path) as first:
        sender = await tcp.connect(ROUTE, "127.0.0.1", port, backoff=QUICK, connect_timeout=20)
        sending = asyncio.create_task(sender.send_many(numbers(0, 20_000)))
        await until(lambda: sender.stats.confirmed > 1000)
        await first.kill()
        confirmed = sender.stats.confirmed
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await sender.abort()  # so that no sender sends anything again
    async with tcp.listen(ROUTE, store=tmp_path) as receiver:
        assert await read(receiver, confirmed) == numbers(0, confirmed)


async def test_a_long_backlog_is_delivered_in_order(tmp_path: Path) -> None:
    payloads = numbers(0, 50_000)
    async with tcp.listen(ROUTE, store=tmp_path) as receiver:
        await send(receiver, payloads)
    async with tcp.listen(ROUTE, store=tmp_path) as receiver:
        assert await read(receiver, len(payloads)) == payloads


async def test_repeats_in_the_store_that_a_pipe_drops_do_not_stop_the_delivery(tmp_path: Path) -> None:
    folder = store.StreamStore(OsDisk(tmp_path))
    await folder.open(lambda error: None)
    entries = folder.entries_of("")
    for first, count in ((0, 3000), (0, 3000), (3000, 10)):
        entries.append(seal(1, range(first, first + count), numbers(first, count)))
    await folder.close()
    async with tcp.listen(ROUTE, store=tmp_path) as receiver:
        assert await read(receiver, 3010) == numbers(0, 3010)


def test_confirmed_messages_leave_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "COMPACT_MIN_BYTES", 100_000)

    async def scenario() -> None:
        async with tcp.listen("stream", store=tmp_path) as receiver:
            reading = asyncio.create_task(discard(receiver))
            for _ in range(20):
                await send(receiver, [bytes(1000)] * 100, "stream")
            await until(lambda: receiver.stats.delivered == 2000)
            await receiver.flush()
            reading.cancel()

    async def discard(receiver: PipeReceiver) -> None:
        async for _ in receiver:
            pass

    asyncio.run(scenario())
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.journal")) < 500_000


async def test_messages_are_not_confirmed_and_the_receiver_stops_when_a_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: OsDiskFile) -> None:
        raise OSError(28, "No space left on device")

    async with tcp.listen("stream", store=tmp_path) as receiver:
        await send(receiver, numbers(0, 3), "stream")
        monkeypatch.setattr(OsDiskFile, "sync", fail)
        sender = await tcp.connect("stream", *receiver.address, backoff=QUICK)
        await sender.send(b"lost")
        with pytest.raises(StorageFailed, match="No space left"):
            await read(receiver, 4)
        with pytest.raises(TimedOut):
            await sender.close(timeout=0.1)
        assert sender.stats.confirmed == 0


async def test_a_store_that_is_full_makes_the_sender_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.StreamStore.__init__, "__defaults__", (2500,))
    async with (
        tcp.listen("stream", store=tmp_path) as receiver,
        tcp.connect("stream", *receiver.address, backoff=QUICK) as sender,
    ):
        await sender.send_many([bytes(1000)] * 3)
        await until(lambda: sender.stats.confirmed == 2)
        assert [notice.what for notice in receiver.notices] == ["storage full"]
        for _ in range(2):
            item = await receiver.receive(timeout=10)
            assert item is not None
            receiver.confirm(item)
        await sender.flush()


@pytest.mark.parametrize("route", ["resend_many", "stream(commit=false)"])
def test_a_route_without_a_committed_position_takes_no_store(tmp_path: Path, route: str) -> None:
    with pytest.raises(BadRequest, match="a store is for a stream that commits"):
        tcp.listen(route, store=tmp_path)


async def test_two_receivers_do_not_share_a_store(tmp_path: Path) -> None:
    async with tcp.listen(ROUTE, store=tmp_path):
        with pytest.raises(DataLocked):
            await tcp.listen(ROUTE, store=tmp_path)
