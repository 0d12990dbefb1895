"""A backup of a busy node has everything that was acknowledged, whatever the disk did before and does after."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from headpond.node.backup import is_left_out
from headpond.storage.disk import Disk, DiskFile
from headpond.storage.memory_disk import MemoryDisk, Operation
from headpond.wire.control.backup import BeginBackup
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import Request, Response, read_result
from tests.broker.test_commit_rounds import PAUSE_US, ROUNDS, BusyNode
from tests.fire.core_shell import CoreShell

TURNS_MAX = 200


class HeldFiles:
    """Open files instead of links: they can be read when they are removed, and grow when they are written."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[DiskFile, int]] = {}

    def hold(self, lengths: Mapping[str, int], disk: Disk) -> str:
        assert isinstance(disk, MemoryDisk)
        for path in disk.paths():
            if not is_left_out(path):
                file = disk.open(path)
                self.files[path] = file, min(file.size(), lengths.get(path, file.size()))
        return "held"

    def release(self, disk: Disk) -> None:
        self.files.clear()

    def copy(self) -> MemoryDisk:
        disk = MemoryDisk()
        for path, (file, length) in self.files.items():
            copied = disk.create(path)
            copied.write_at(0, [file.read_at(0, length)])
        return disk


class BackedUpNode(BusyNode):
    def _open(self) -> None:
        self.held = HeldFiles()
        self.shell = CoreShell(self.disk, seed=1, settings=ROUNDS, cut=self.held)
        self.client = self.shell.connect()
        created = self.client.request(CreateTopic("t", len(self.shards), exist_ok=True))
        self.uuid = read_result(created, TopicInfo).uuid

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()
        self.shell.wait(PAUSE_US)

    def back_up(self) -> list[int]:
        """How many segments of each shard were acknowledged before the backup, which runs under load."""
        before = list(self.stored)
        self.client.send(Request(99, BeginBackup()))
        for _ in range(TURNS_MAX):
            if self.client.take(Response):
                return before
            self.turn()
        raise AssertionError("the backup did not begin")

    def check(self, expected: list[int]) -> None:
        self.disk.fail_never()
        self.shell = CoreShell(self.held.copy(), seed=2, settings=ROUNDS)
        self.client = self.shell.connect()
        infos = self.shard_list()
        assert [each.damaged for each in infos] == [[]] * len(infos)
        assert all(each.entry_next >= stored for each, stored in zip(infos, expected, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_a_backup_under_load_has_what_was_acknowledged_before_it(seed: int) -> None:
    node = BackedUpNode(seed)
    node.turns(seed)
    expected = node.back_up()
    node.turns(8)  # files grow, end and are replaced
    node.check(expected)
    assert node.shell.core.stores.recovered == []


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "create"])
@pytest.mark.parametrize("place", ["commits/", "topics/"])
def test_so_it_is_if_the_disk_fails_now_and_then(operation: Operation, place: str) -> None:
    for seed in range(3):
        node = BackedUpNode(seed)
        for _ in range(3):
            after = node.random.randrange(8)
            node.disk.fail_next(operation, errno.EIO, node.random.randint(1, 2), place, after=after)
            node.turns(4)
        expected = node.back_up()
        node.turns(4)
        node.check(expected)


def test_no_write_begins_while_the_files_are_linked() -> None:
    node = BackedUpNode()
    node.turns(2)
    node.shell.work_all()
    node.client.send(Request(99, BeginBackup()))
    node.send()
    assert len(node.shell.pending) == 1, "the links of the backup alone"
    node.shell.work()
    assert node.shell.pending and node.client.take(Response) == [], "the writes, the log of administration too"
    node.shell.work_all()
    assert node.client.take(Response)


def test_the_links_wait_for_the_writes_under_way() -> None:
    node = BackedUpNode()
    node.turns(2)
    node.shell.work_all()
    node.send()
    under_way = len(node.shell.pending)
    node.client.send(Request(99, BeginBackup()))
    for left in range(under_way, 0, -1):
        assert (len(node.shell.pending), node.held.files) == (left, {})
        node.shell.work()
    node.shell.work()
    assert node.held.files
