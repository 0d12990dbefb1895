"""The refill sender: brings the files of earlier runs and ended blocks to their destinations, oldest first.

A manager without an encoder sends a file: nothing is in memory, all of it in the refill. Each destination goes
through the files at its own pace, and only through the segments that it is still owed. A file is removed when
every destination that it names has all of it. One that names a destination which this producer does not send to
stays and is reported (``foreign``), as is one that cannot be read (``unreadable``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from headpond.model.errors import DiskFull, StorageFailed
from headpond.model.identity import SegmentKey
from headpond.producer.exchange import Exchange, Parts
from headpond.producer.manager import Manager
from headpond.producer.refill.refill import Refill
from headpond.producer.spills import Job


class _Waiting:
    pass


WAITING: Final = _Waiting()
"""``stream``: there is a file, and it is not open yet."""
OPEN_AGAIN_S: Final = 1.0
OPEN_AGAIN_MAX: Final = 10
"""How often opening is tried while the disk fails; after that the file is for the next run."""


@dataclass(slots=True)
class OpenedFile:
    """A file that can be sent."""

    refill: Refill
    parts: Parts | None = None
    """For a file whose rows just got their shards: where the awaited ones are now."""


@dataclass(slots=True)
class Open(Job):
    """Reads a file's index; gives its rows their shards if they have none."""

    index: int
    path: str
    open: Callable[[str, frozenset[SegmentKey]], OpenedFile]
    awaited: frozenset[SegmentKey]
    """The segments of the file whose promises somebody holds."""
    opened: OpenedFile | None = None

    def run(self) -> None:
        self.opened = self.open(self.path, self.awaited)


class RefillSender:
    def __init__(
        self,
        paths: list[str],
        destinations: tuple[str, ...],
        open_file: Callable[[str, frozenset[SegmentKey]], OpenedFile],
        make_manager: Callable[[Refill], Manager],
    ) -> None:
        self.paths = paths
        self.at = [0] * len(destinations)
        """By destination: the file it is at."""
        self.managers: dict[int, Manager] = {}
        """Of the open files."""
        self.unreadable: list[tuple[str, str]] = []
        self.foreign: dict[str, int] = {}
        """Segments that wait for destinations which this producer does not send to."""
        self.again_at = inf
        """When opening is tried again after the disk failed."""
        self._destinations = destinations
        self._open_file = open_file
        self._make_manager = make_manager
        self._exchanges: dict[str, Exchange] = {}
        """By path: who waits for segments of a file that a manager of this run left."""
        self._opening: set[int] = set()
        self._failures: dict[int, int] = {}
        """By file: how often the disk failed while it was opened."""
        self._over: set[int] = set()
        """Files that are done with, or cannot be read."""
        self._jobs: list[Job] = []
        self._closing = False

    def shutdown(self) -> None:
        """Opens no further file; closes the open ones in good order."""
        self._closing = True
        for manager in self.managers.values():
            if not manager.closing:
                manager.shutdown()

    @property
    def finished(self) -> bool:
        """Whether no file is open or about to be."""
        return not self.managers and not self._opening

    def begin_with(self, paths: list[str]) -> None:
        """Adds files before any is opened, by age."""
        if paths:
            self.paths = sorted([*paths, *self.paths], key=lambda path: path.rpartition("/")[2])

    def add(self, manager: Manager) -> None:
        """A manager ended; its file, if it stayed, is the youngest."""
        path = manager.spills.left_path
        if path is not None:
            self.paths.append(path)
            self._exchanges[path] = manager.exchange

    def stream(self, destination: int) -> Manager | _Waiting | None:
        """The manager of the file that a destination is at; None when it is through with all files."""
        while (at := self.at[destination]) < len(self.paths):
            manager = self.managers.get(at)
            if at not in self._over:
                if manager is None:
                    self._want(at)
                    return WAITING
                if not manager.outlets[destination].through:
                    return manager
            self.at[destination] += 1
        return None

    def back_to(self, destination: int, manager: Manager) -> None:
        """A destination needs a file again that it was through with."""
        for at, each in self.managers.items():
            if each is manager:
                self.at[destination] = min(self.at[destination], at)

    def _want(self, at: int) -> None:
        if at not in self._opening and not self._closing and self.again_at == inf:
            self._opening.add(at)
            path = self.paths[at]
            awaited = self._exchanges[path].awaited() if path in self._exchanges else frozenset()
            self._jobs.append(Open(self._opened, at, path, self._open_file, awaited))

    def take_jobs(self) -> tuple[list[Job], list[Manager]]:
        """The work for the disk, in order, and the managers that ended."""
        for index in range(len(self._destinations)):
            self.stream(index)  # moves on, and wants the next file
        found, self._jobs = self._jobs, []
        ended: list[Manager] = []
        for at, manager in list(self.managers.items()):
            if not manager.closing and all(reached > at for reached in self.at):
                manager.shutdown()
            found += manager.take_jobs()
            if manager.finished:
                self._over.add(at)
                ended.append(self.managers.pop(at))
                self._exchanges[self.paths[at]] = manager.exchange
        return found, ended

    def wake(self, now: float) -> None:
        if self.again_at <= now:
            self.again_at = inf

    def _opened(self, job: Open, now: float) -> None:
        self._opening.discard(job.index)
        failures = self._failures.get(job.index, 0)
        if isinstance(job.error, StorageFailed | DiskFull) and failures < OPEN_AGAIN_MAX:
            self._failures[job.index] = failures + 1
            self.again_at = now + OPEN_AGAIN_S
            return
        if job.opened is None:
            self._over.add(job.index)
            self.unreadable.append((job.path, job.error.message if job.error is not None else "unreadable"))
            return
        refill = job.opened.refill
        for name in refill.destinations:
            if name not in self._destinations:
                owed = sum(end - first for _, first, end in refill.pending_runs(name))
                if owed:
                    self.foreign[name] = self.foreign.get(name, 0) + owed
        manager = self._make_manager(refill)
        manager.spills.lost += map(str, refill.damage)
        if (earlier := self._exchanges.pop(job.path, None)) is not None:
            if job.opened.parts is None:
                manager.exchange.follow(earlier)
            else:
                manager.exchange.follow_parts(earlier, manager.block, job.opened.parts)
        self.managers[job.index] = manager
        manager.begin(now)
        if self._closing:
            manager.shutdown()

    def forget(self) -> None:
        """The promises of segments in closed files will not be settled again."""
        for exchange in self._exchanges.values():
            exchange.forget()
