"""Many busy logs of a node share a sync, and a failing disk loses nothing that was acknowledged."""

from __future__ import annotations

import errno
import random

import msgspec
import pytest

from headpond.broker.settings import LogSettings
from headpond.storage.commit_journal import FOLDER, SUFFIX
from headpond.storage.memory_disk import MemoryDisk, Operation
from headpond.wire.control.catalog import CreateTopic, ShardInfo, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack
from headpond.wire.frame import FrameType, encode
from tests.fire.core_shell import SMALL_FILES, CoreShell
from tests.fire.raw_client import segment_body, title_frame

SHARDS = 8
BLOCK = b"b" * 16
PAUSE_US = 1_000_000
"""Longer than a lane waits after a failed write."""
ROUNDS = msgspec.structs.replace(
    SMALL_FILES,
    threads=1,
    log=LogSettings(
        rotate_bytes=4096, preallocate_bytes=1024, index_every_bytes=512, commit_journal_bytes=6 * 1024
    ),
)
"""Two busy logs make a round, and a handful of rounds a checkpoint."""


class BusyNode:
    """A topic with many shards, and a producer that sends each segment until it is stored."""

    def __init__(self, seed: int = 1, shards: int = SHARDS) -> None:
        self.random = random.Random(seed)
        self.disk = MemoryDisk(seed)
        self.shards = range(shards)
        self.stored = [0 for _ in self.shards]
        """By shard: how many segments the node has acknowledged."""
        self._open()

    def _open(self) -> None:
        self.shell = CoreShell(self.disk, seed=1, settings=ROUNDS)
        self.client = self.shell.connect()
        created = self.client.request(CreateTopic("t", len(self.shards), exist_ok=True))
        self.uuid = read_result(created, TopicInfo).uuid

    def send(self, body: bytes | None = None) -> None:
        """The next segment of each shard."""
        frames = [
            encode(FrameType.SEGMENT, body or segment_body([b"%d" % shard * 40]), shard=shard, segment=segment)
            for shard, segment in enumerate(self.stored)
        ]
        self.client.send(title_frame(BLOCK, self.uuid, power=len(self.shards).bit_length() - 1), *frames)

    def answers(self) -> list[str]:
        found = [(ack.shard, item) for ack in self.client.take(Ack) for item in ack.items]
        for shard, item in found:
            if item.outcome != "rejected":
                self.stored[shard] = item.segment + 1
        return [item.outcome for _, item in found]

    def turn(self) -> None:
        """Sends to all shards; the work of the disk runs in any order."""
        self.send()
        for _ in range(self.random.randrange(40)):
            if self.shell.pending:
                self.shell.work(self.random.randrange(len(self.shell.pending)))
        self.answers()

    def cut(self) -> None:
        """The power fails; what was acknowledged is there, and what was not is taken again."""
        self.disk.crash(keep="none")
        self._open()
        infos = self.shard_list()
        assert [each.damaged for each in infos] == [[]] * len(infos)
        assert all(each.entry_next >= stored for each, stored in zip(infos, self.stored, strict=True))
        self.send()
        self.shell.work_all()
        assert "rejected" not in self.answers()
        assert [each.entry_next for each in self.shard_list()] == self.stored

    def shard_list(self) -> list[ShardInfo]:
        return read_result(self.client.request(ShowTopic("t")), TopicInfo).shard_list


def test_many_busy_logs_are_made_durable_with_one_sync() -> None:
    node = BusyNode()
    node.turn()
    node.shell.work_all()
    node.answers()
    node.send()
    node.disk.operations.clear()
    node.shell.work_all()
    synced = [str(path) for operation, path, *_ in node.disk.operations if operation == "sync"]
    assert len({path for path in synced if path.endswith(".log")}) <= 2, "one that was under way, one new file"
    assert any(path.endswith(SUFFIX) for path in synced)


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "create", "sync_folder"])
@pytest.mark.parametrize("place", [f"{FOLDER}/", "topics/"])
def test_a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged(
    operation: Operation, place: str
) -> None:
    for seed in range(4):
        node = BusyNode(seed)
        for _ in range(12):
            node.disk.fail_next(
                operation, errno.EIO, node.random.randint(1, 2), place, after=node.random.randrange(8)
            )
            for _ in range(4):
                node.turn()
            node.shell.wait(PAUSE_US)
        node.disk.fail_never()
        node.cut()


def test_a_node_that_stopped_in_good_order_leaves_no_commit_journal_behind() -> None:
    node = BusyNode()
    for _ in range(3):
        node.turn()
    node.shell.work_all()
    assert node.disk.list(FOLDER), "there is one while the node runs"
    node.answers()
    node.shell.core.close()
    assert node.disk.list(FOLDER) == []
    node.cut()


@pytest.mark.parametrize("operation", ["preallocate", "create"])
def test_a_round_for_which_there_was_no_room_holds_up_nothing(operation: Operation) -> None:
    """No log could reserve room, or the journal got no file; then the logs begin files of the same names."""
    node = BusyNode(shards=2)
    node.send(b"no segment at all")  # refused for good: recorded, without an entry
    node.shell.work_all()
    assert node.answers() == ["rejected"] * 2
    node.stored = [1] * 2
    large = segment_body([b"more than there is reserved" * 40])
    node.disk.fail_next(operation, errno.ENOSPC, 2)
    node.disk.fail_next("write", errno.ENOSPC, 2, "topics/")
    node.send(large)
    node.shell.work_all()
    assert node.answers() == ["rejected"] * 2
    node.disk.fail_never()
    for _ in range(3):
        node.shell.wait(PAUSE_US)
        node.send(large)
        node.shell.work_all()
        node.answers()
    assert node.stored == [4] * 2
    node.disk.crash(keep="none")
    node._open()
    assert [(shard.entry_next, shard.damaged) for shard in node.shard_list()] == [(3, [])] * 2


@pytest.mark.parametrize("stopped", [False, True])
def test_a_file_in_the_journal_is_not_replaced_before_the_journal_is_done_with_it(*, stopped: bool) -> None:
    """A log file without entries is followed by one of the same name; a replay must not write into that."""
    node = BusyNode(shards=2)
    for segment in range(3):  # refused for good: recorded, without an entry
        node.stored = [segment] * 2
        node.send(b"no segment at all" * (1 + segment))
        node.shell.work_all()
        assert node.answers() == ["rejected"] * 2
    assert node.shell.core.stores.rounds.rounds, "some of it went through the journal"
    node.stored = [3] * 2
    node.disk.fail_next("sync", errno.EIO, 2)
    node.send()
    node.shell.work_all()
    assert node.answers() == ["rejected"] * 2
    node.shell.wait(PAUSE_US)
    node.send(segment_body([b"a message that takes the place of the refusals" * 9]))
    if stopped:
        node.shell.core.close()
    while node.stored != [4] * 2 and not stopped:
        node.shell.work(len(node.shell.pending) - 1)  # the newest first: no checkpoint unless it is waited for
        node.answers()
    node.disk.crash(keep="none")
    node._open()
    stored = 0 if stopped else 1
    assert [(shard.entry_next, shard.damaged) for shard in node.shard_list()] == [(stored, [])] * 2
    assert node.shell.core.stores.recovered == []


def test_a_flipped_bit_in_the_journal_costs_one_write_and_the_log_names_it() -> None:
    """Nothing in the log itself shows that its last write is missing, also not at the second opening."""
    node = BusyNode()
    for _ in range(3):
        node.turn()
    node.shell.work_all()
    node.answers()
    path = next(path for path in node.disk.paths() if path.endswith(SUFFIX))
    node.disk.crash(keep="none")
    losses = 0
    for offset in range(0, len(node.disk.contents(path).rstrip(b"\0")), 7):
        disk = node.disk.copy()
        disk.flip(path, offset, offset % 8)
        found = " ".join(CoreShell(disk, seed=1, settings=ROUNDS).core.stores.recovered)
        again = CoreShell(disk, seed=1, settings=ROUNDS)
        infos = read_result(again.connect().request(ShowTopic("t")), TopicInfo).shard_list
        assert [shard.entry_next for shard in infos] == node.stored
        damaged = [shard for shard in infos if shard.damaged]
        assert len(damaged) <= 1
        assert not damaged or "the commit journal is damaged" in found
        losses += len(damaged)
    assert losses, "some flips hit a write"
