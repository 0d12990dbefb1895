"""Folders in memory, and a stream that confirms what it is asked to, for tests of a member's machines."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headpond.cluster.apply import Applier, Position
from headpond.cluster.outbox import ToSend
from headpond.cluster.replicated_disk import ReplicatedDisk
from headpond.storage.disk import Disk
from headpond.storage.memory_disk import MemoryDisk

NAMES = ("a", "b", "f/a", "f/b", "f/g/c")


class FolderDisk(MemoryDisk):
    """A disk in memory for a member."""

    def measure(self, after_s: float = 0.0) -> None: ...

    def when_durable(self, then: Callable[[OSError | None], None]) -> None:
        then(None)


class Rig:
    """The active member's disk, with a stream in a list."""

    def __init__(self, base: FolderDisk | None = None) -> None:
        self.base = base or FolderDisk()
        self.stream: list[bytes] = []
        self.applier = Applier(self.base, Position())
        self.disk = ReplicatedDisk(self.base, self.applier, lambda: None)
        self._sent: list[ToSend] = []

    def send(self) -> None:
        """Records go to the stream; nothing is confirmed yet."""
        for sent in self.disk.outbox.take():
            assert sent.expected_seq == len(self.stream)
            self.stream.append(sent.raw)
            self._sent.append(sent)

    def confirm(self, count: int = 1_000_000) -> None:
        """The stream confirms records, and the folder gets them."""
        for _ in range(min(count, len(self._sent))):
            sent = self._sent.pop(0)
            for confirmed in self.disk.outbox.confirm(sent, sent.expected_seq + 1):
                self.disk.durable(confirmed.number)
                self.disk.apply(confirmed)


def change(disk: Disk, chance: Random) -> None:
    """One random change; one that is not possible does nothing."""
    path, other = chance.sample(NAMES, 2)
    kind = chance.choice(("create", "write", "write", "write", "truncate", "rename", "remove", "remove_tree"))
    there = disk.exists(path)
    if kind == "create" and not there:
        disk.create(path).close()
    elif kind == "remove_tree" and chance.random() < 0.3:
        disk.remove_tree("f")
    elif not there:
        return
    elif kind == "rename":
        disk.rename(path, other)
    elif kind == "remove":
        disk.remove(path)
    else:
        file = disk.open(path, writable=True)
        if kind == "write":
            data = chance.randbytes(chance.randrange(1, 40))
            file.write_at(chance.randrange(60), [data[:3], data[3:]])
        else:
            file.truncate(chance.randrange(60))
        file.close()


def contents(disk: Disk) -> dict[str, bytes]:
    """Every file, as a reader of the disk sees it."""
    found: dict[str, bytes] = {}
    for path in NAMES:
        if disk.exists(path):
            file = disk.open(path)
            found[path] = file.read_at(0, file.size())
            file.close()
    return found
