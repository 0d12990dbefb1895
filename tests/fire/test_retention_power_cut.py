"""The power fails while files are deleted: nothing else is lost, and every loss is reported exactly."""

from __future__ import annotations

import random

import msgspec
import pytest

from headpond.broker.settings import LogSettings
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.wire.control.catalog import CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    CreateSubscription,
    Deliver,
    ShowSubscription,
    Subscribe,
    SubscriptionInfo,
)
from headpond.wire.control.producing import Ack
from headpond.wire.frame import Frame
from headpond.wire.record import decode_record_header
from tests.fire.core_shell import SMALL_FILES, CoreShell
from tests.fire.raw_client import segment_frame, title_frame
from tests.fire.seeds import seeds

KEEPS: list[Keep] = ["none", "some", "all"]
SHARDS = 4
BLOCK = b"r" * 16
SETTINGS = msgspec.structs.replace(
    SMALL_FILES,
    threads=1,
    log=LogSettings(
        rotate_bytes=600, preallocate_bytes=512, index_every_bytes=512, commit_journal_bytes=4 * 1024
    ),
)


class DeletingWorld:
    """One producer, a subscription that reads nothing, files that live for a few seconds, and cuts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = MemoryDisk(seed)
        self.now_us = 1_000_000
        self.sent = [0] * SHARDS
        self.stored: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        """By shard: the first entry of each segment that was acknowledged."""
        self.open()

    def open(self) -> None:
        self.shell = CoreShell(self.disk, seed=7, settings=SETTINGS, now_us=self.now_us)
        self.client = self.shell.connect()
        rules = {"hard_ttl": 8.0}
        info = self.client.request(CreateTopic("t", SHARDS, exist_ok=True, settings=dict(rules)))
        self.uuid = read_result(info, TopicInfo).uuid
        self.client.request(CreateSubscription("t", "slow", exist_ok=True))

    def live(self) -> None:
        """Sends, deletes and runs disk work in any order, until the power is off."""
        while self._power():
            self.listen()  # frames sent before the power failed
            if self.random.random() < 0.4:
                self.send(self.random.randrange(SHARDS))
            elif self.random.random() < 0.3:
                self.shell.wait(self.random.randrange(1, 1_500_000))
                self.now_us = self.shell.now_us
            elif self.shell.pending:
                self.shell.work(self.random.randrange(len(self.shell.pending)))

    def _power(self) -> bool:
        try:
            self.disk.exists("")
        except OSError:
            return False
        return True

    def send(self, shard: int) -> None:
        segment = self.sent[shard]
        self.sent[shard] += 1
        self.client.send(title_frame(BLOCK, self.uuid, power=2), self.frame(shard, segment))

    def frame(self, shard: int, segment: int) -> bytes:
        return segment_frame([b"%d/%d" % (shard, segment)] * 3, shard=shard, segment=segment)

    def listen(self) -> None:
        for ack in self.client.take(Ack):
            for item in ack.items:
                assert item.outcome != "rejected", item
                if item.first_entry is not None:
                    self.stored[ack.shard].setdefault(item.segment, item.first_entry)

    def cut(self, keep: Keep) -> None:
        self.disk.crash(keep=keep)
        self.now_us += 10_000
        self.open()
        self.check()
        for shard in range(SHARDS):  # what had no answer is sent again
            again = [segment for segment in range(self.sent[shard]) if segment not in self.stored[shard]]
            frames = [self.frame(shard, segment) for segment in again]
            self.client.send(title_frame(BLOCK, self.uuid, power=2), *frames)
        self.shell.work_all()
        self.listen()

    def check(self) -> None:
        info = read_result(self.client.request(ShowTopic("t")), TopicInfo)
        slow = read_result(self.client.request(ShowSubscription("t", "slow")), SubscriptionInfo)
        found = self._read_all()
        for shard in info.shard_list:
            first, end = shard.entry_first, shard.entry_next
            assert shard.damaged == []
            assert found.get(shard.shard, []) == list(range(first, end)), "all that is kept can be read"
            for segment, entry in self.stored[shard.shard].items():
                assert entry + 3 <= end, f"segment {segment} was acknowledged and is not there"
            lost = [tuple(each[1:4]) for each in slow.lost_ranges if each[0] == shard.shard]
            assert lost == ([(0, first, "retention")] if first else []), (
                "what it lost is told, and nothing else"
            )

    def _read_all(self) -> dict[int, list[int]]:
        """By shard: the entries that a new subscription gets."""
        client = self.shell.connect()
        name = f"audit-{self.random.randrange(1 << 40)}"
        client.send(Subscribe(9, "t", name, "unique", "non_resilient", "earliest", 1 << 28))
        self.shell.work_all()
        found: dict[int, list[int]] = {}
        for frame in client.take(Frame):
            header = decode_record_header(frame.body)
            found.setdefault(frame.shard, []).extend(range(header.first_entry, header.end_entry))
        assert all(deliver.attempt == 1 for deliver in client.take(Deliver))
        client.send()
        return found


@pytest.mark.parametrize("seed", seeds(8))
def test_a_power_cut_while_files_are_deleted_loses_nothing_else_and_hides_no_loss(seed: int) -> None:
    world = DeletingWorld(seed)
    for cut in range(4):
        world.disk.cut_power_after(world.random.randrange(20, 400))
        world.live()
        world.cut(KEEPS[(seed + cut) % 3])


def test_the_cuts_fall_where_files_are_deleted() -> None:
    """Proves that some cuts above fall on unsynced data."""
    removed = 0
    for seed in range(4):
        world = DeletingWorld(seed)
        world.disk.cut_power_after(400)
        world.live()
        removed += sum(
            operation == "remove" and str(path).endswith(".log")
            for operation, path, *_ in world.disk.operations
        )
    assert removed > 20
