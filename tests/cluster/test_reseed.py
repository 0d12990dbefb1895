"""A reseed: the folder of one member becomes the content of its group."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headpond
from headpond.cluster.apply import Applier, Position, load_position
from headpond.cluster.inquiry import inquire
from headpond.cluster.jetstream import JetStream
from headpond.cluster.journal import StreamState
from headpond.cluster.reseed import ReseedJournal, reseed, reseeded
from tests.client.reading import receive
from tests.cluster.folders import FolderDisk, Rig, change, contents
from tests.cluster.group import GROUP, RealGroup
from tests.cluster.nats import NatsCluster

TOPIC = "orders"
seqs = st.integers(0, 10**12)


@given(seqs, st.integers(0, 1000), st.lists(seqs, min_size=1))
def test_the_stream_continues_behind_every_folder_in_a_new_epoch(
    seq: int, epoch: int, others: list[int]
) -> None:
    found = reseeded(Position(seq, 3, epoch, 7, 9), others)
    assert found.seq > max([seq, *others]) + 1, "the next record leaves a gap in every other folder"
    assert found == Position(found.seq, 0, epoch + 1, 7, 0, released=True)


class ListJournal:
    """A stream that is a list of records, the first one with sequence 1."""

    def __init__(self, records: list[bytes]) -> None:
        self._records = records
        self.skipped_to = 0

    async def read(self, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        return [(seq, raw) for raw in self._records[seq - 1 : seq]]

    async def read_leader(self, seq: int) -> bytes | None:
        return self._records[seq - 1] if seq <= len(self._records) else None

    async def state(self) -> StreamState:
        return StreamState(1, len(self._records), 0, 0)

    async def skip_to(self, seq: int) -> None:
        self.skipped_to = seq


def reseed_list(journal: ListJournal, disk: FolderDisk, position: Position) -> Position:
    used: ReseedJournal = journal  # type: ignore[assignment]  # the part of one that a reseed uses
    return asyncio.run(reseed(used, disk, position, []))


def changed(seed: int) -> Rig:
    chance, rig = Random(seed), Rig()
    for _ in range(60):
        change(rig.disk, chance)
        rig.send()
    rig.confirm()
    return rig


@pytest.mark.parametrize("seed", range(5))
def test_a_folder_behind_a_sound_stream_loses_nothing(seed: int) -> None:
    rig, disk = changed(seed), FolderDisk()
    applier = Applier(disk, Position())
    for number, raw in enumerate(rig.stream[: len(rig.stream) // 2], 1):
        applier.apply(number, raw)
    applier.checkpoint()
    applier.close()
    journal = ListJournal(rig.stream)
    found = reseed_list(journal, disk, applier.position)
    assert contents(disk) == contents(rig.base)
    assert journal.skipped_to == found.seq
    assert load_position(disk) == found


def test_records_that_do_not_fit_the_folder_are_left_out() -> None:
    rig = changed(1)
    before = contents(rig.base)
    at = msgspec.structs.replace(rig.applier.position, seq=0)
    found = reseed_list(ListJournal(changed(2).stream), rig.base, at)
    assert contents(rig.base) == before
    assert found.epoch == at.epoch + 1


@pytest.mark.timeout(180)
def test_all_members_continue_with_the_folder_that_is_chosen(tmp_path: Path) -> None:
    asyncio.run(lose_the_stream_and_reseed(tmp_path))


async def lose_the_stream_and_reseed(folder: Path) -> None:
    async with NatsCluster(folder / "nats") as nats, RealGroup(folder / "group", nats) as group:
        await group.active()
        async with headpond.connect(group.url, wait=False) as client, client.producer(TOPIC) as producer:
            await client.admin.create_topic(TOPIC, exist_ok=True)
            sent = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(10)))
        assert {receipt.outcome.value for receipt in sent} == {"stored"}
        await all_have_applied(nats)
        for member in group.members:
            await asyncio.to_thread(group.kill, member)
        await lose_stream(nats)
        words = ["cluster", "reseed", "--data", str(group.data("m2"))]
        words += ["--cluster", nats.url, "--group", GROUP, "--yes"]
        await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "headpond", *words], check=True)
        for member in group.members:
            group.start(member)
        assert await group.active() == "m2"
        await group.all_alike()
        values: set[object] = set()
        async with (
            headpond.connect(group.url, wait=False) as client,
            client.consumer(TOPIC, subscription="s") as consumer,
        ):
            while len(values) < 10:
                message = await receive(consumer)
                values.add(message.value)
        assert values == {b"%d" % number for number in range(10)}


async def all_have_applied(nats: NatsCluster) -> None:
    """Returns when the folder of every member has the records that are in the stream now."""
    async with inquire(nats.url, GROUP) as inquiry:
        last_seq = (await inquiry.status()).stream.last_seq
        while True:
            members = (await inquiry.status()).members
            if len(members) == 3 and min(each.seq for each in members) >= last_seq:
                return


async def lose_stream(nats: NatsCluster) -> None:
    """All servers lose their disks; the stream is created again, empty."""
    for name, server in nats.servers.items():
        nats.kill(name)
        (server.folder / "store").rename(server.folder / "lost")
    for name in nats.servers:
        nats.start(name)
    await asyncio.to_thread(nats.wait_ready)
    await (await JetStream.connect(nats.url, GROUP, "observer")).close()
