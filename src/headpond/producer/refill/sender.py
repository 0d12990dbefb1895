"""The refill sender: brings what earlier runs left on the disk to its destinations, oldest file first.

A file is sent by a manager that has no encoder: nothing is in memory, all of it in the refill. Each
destination goes through the files at its own pace, and only through what it is still owed: rejects plus
unacked. A file goes when every destination it names has all of it; one that names a destination which is not
sent to any more is kept and told (``foreign``), as is one that cannot be read (``unreadable``) or is older
than the node remembers (``outdated``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headpond.model.errors import HeadpondError
from headpond.model.ranges import RangeSet
from headpond.pipes.machines.machine import Jitter
from headpond.producer.encoder import Encoder
from headpond.producer.jobs import Job, Store
from headpond.producer.manager import Manager
from headpond.producer.policy import SendPolicy
from headpond.producer.refill.refill import Refill


class _Waiting:
    pass


WAITING: Final = _Waiting()
"""``stream``: there is a file, and it is not open yet."""


@dataclass(slots=True)
class Open:
    """Reads a file's index."""

    index: int
    path: str
    open: Callable[[str], Refill]
    refill: Refill | None = None
    error: HeadpondError | None = None

    def run(self, store: Store | None = None, /) -> None:
        self.refill = self.open(self.path)


def manager_of(
    refill: Refill,
    destinations: tuple[str, ...],
    *,
    policy: SendPolicy,
    store: Store | None,
    jitter: Jitter,
    make_encoder: Callable[[int, int], Encoder] | None = None,
    first: dict[int, int] | None = None,
) -> Manager:
    """A manager of what stands in a file. Without encoders it only sends; with them it goes on at ``first``."""
    first = dict(first or {})
    spilled: dict[int, RangeSet] = {}
    owed: dict[str, dict[int, int]] = {name: {} for name in destinations}
    for name in refill.destinations:
        for shard, start, end in refill.pending_runs(name):
            spilled.setdefault(shard, RangeSet()).add(start, end)
            first[shard] = max(first.get(shard, 0), end)
            if name in owed:
                owed[name].setdefault(shard, start)
    return Manager(
        refill.block,
        destinations,
        make_encoder,
        policy=policy,
        store=store,
        jitter=jitter,
        predecessor=refill.title.predecessor,
        schema=refill.title.schema,
        first=first,
        spilled=spilled,
        pending=owed,
        spilled_for=frozenset(refill.destinations),
    )


class RefillSender:
    def __init__(
        self,
        paths: list[str],
        destinations: tuple[str, ...],
        open_file: Callable[[str], Refill],
        make_manager: Callable[[Refill], Manager],
    ) -> None:
        self.paths = paths
        self.unreadable: list[tuple[str, str]] = []
        self.foreign: dict[str, int] = {}
        """Segments that wait for destinations which are not sent to."""
        self._destinations = destinations
        self._open_file = open_file
        self._make_manager = make_manager
        self._at = [0] * len(destinations)
        """By destination: the file it is at."""
        self._managers: dict[int, Manager] = {}
        self._opening: set[int] = set()
        self._over: set[int] = set()
        """Files that are done with, or cannot be read."""
        self._jobs: list[Open] = []
        self._ended: list[Manager] = []
        self._closing = False

    def shutdown(self) -> None:
        """No further file is opened; those that are open are closed in good order."""
        self._closing = True
        for manager in self._managers.values():
            if not manager.closing:
                manager.shutdown()

    @property
    def managers(self) -> list[Manager]:
        return list(self._managers.values())

    @property
    def finished(self) -> bool:
        """Whether no file is open or about to be."""
        return not self._managers and not self._opening

    def add(self, path: str) -> None:
        """One more file, the youngest."""
        self.paths.append(path)

    def stream(self, destination: int) -> Manager | _Waiting | None:
        """What a destination is to be sent now; None when it is through with all files."""
        while (at := self._at[destination]) < len(self.paths):
            manager = self._managers.get(at)
            if at not in self._over:
                if manager is None:
                    self._want(at)
                    return WAITING
                if not manager.through(destination):
                    return manager
            self._at[destination] += 1
        return None

    def back_to(self, destination: int, manager: Manager) -> None:
        """A destination is sent a file again that it was through with."""
        for at, each in self._managers.items():
            if each is manager:
                self._at[destination] = min(self._at[destination], at)

    def _want(self, at: int) -> None:
        if at not in self._opening and not self._closing:
            self._opening.add(at)
            self._jobs.append(Open(at, self.paths[at], self._open_file))

    def jobs(self) -> list[tuple[Manager | None, Job]]:
        for index in range(len(self._destinations)):
            self.stream(index)  # moves on, and wants the next file
        found: list[tuple[Manager | None, Job]] = [(None, job) for job in self._jobs]
        self._jobs = []
        for at, manager in list(self._managers.items()):
            if not manager.closing and all(reached > at for reached in self._at):
                manager.shutdown()
            found += [(manager, job) for job in manager.jobs()]
            if manager.finished:
                self._over.add(at)
                self._ended.append(self._managers.pop(at))
        return found

    def take_ended(self) -> list[Manager]:
        """Managers that are done with since this was last asked."""
        ended, self._ended = self._ended, []
        return ended

    def opened(self, job: Open) -> Manager | None:
        """A file was opened: its manager, or None if it cannot be sent."""
        self._opening.discard(job.index)
        if job.refill is None:
            self._over.add(job.index)
            self.unreadable.append((job.path, job.error.message if job.error is not None else "unreadable"))
            return None
        for name in job.refill.destinations:
            if name not in self._destinations:
                owed = sum(end - first for _, first, end in job.refill.pending_runs(name))
                if owed:
                    self.foreign[name] = self.foreign.get(name, 0) + owed
        manager = self._make_manager(job.refill)
        manager.spills.lost += map(str, job.refill.damage)
        self._managers[job.index] = manager
        if self._closing:
            manager.shutdown()
        return manager
