"""The keeper: one manager that takes what is sent, perhaps an old one that drains, and the files left behind.

::

    left files (oldest first) ──▶ old manager ──▶ current manager          the order a destination gets them in

**Rotation** ends a block and begins another: after ``rotate_after_s`` (the first time after a random part of
it, so that many producers do not rotate together), when it holds ``block_bytes_max``, and after rejects, when
every destination is there again, so that a file does not live as long as the producer. The new block names
the old one as its predecessor. There are never more than two managers: while the old one drains nothing
rotates.

With ``ordered`` a destination gets a block only when it is through with everything before it; without, all flow
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.pipes.machines.machine import Jitter
from headpond.producer.exchange import Exchange, Promise
from headpond.producer.jobs import Job
from headpond.producer.manager import Manager
from headpond.producer.refill.index import SEGMENTS_MAX
from headpond.producer.refill.sender import Open, RefillSender
from headpond.producer.sender import SegmentHole
from headpond.wire.control.producing import Ack
from headpond.wire.title import Predecessor

BLOCK_SEGMENTS_MAX = SEGMENTS_MAX // 2
"""A block ends long before its file's index is full, for what is in memory then must still find room there."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a block ends; None for never."""

    after_s: float | None = 2 * 60 * 60.0
    block_bytes_max: int | None = 1024 * 1024 * 1024
    after_rejects: bool = True


class Burst(NamedTuple):
    """Frames of one block, for one destination, behind its title."""

    block: bytes
    predecessor: Predecessor | None
    schema: bytes | None
    frames: list[bytes]


class Keeper:
    def __init__(
        self,
        destinations: tuple[str, ...],
        make_manager: Callable[[Predecessor | None], Manager],
        current: Manager,
        left: RefillSender,
        *,
        rotation: Rotation,
        ordered: bool,
        jitter: Jitter,
        now: float,
    ) -> None:
        self.destinations = destinations
        self.current = current
        self.old: Manager | None = None
        self.left = left
        self.rotations = 0
        self._make_manager = make_manager
        self._rotation = rotation
        self._ordered = ordered
        self._up: dict[int, int | None] = {}
        """Destinations that are there, with the window each granted."""
        self._rotate_at = None if rotation.after_s is None else now + rotation.after_s * jitter()
        self._closing = False
        self._refusals: dict[int, HeadpondError] = {}
        """Destinations that take nothing, and why."""
        self._hindrances: dict[int, HeadpondError] = {}
        """Destinations that do not open the topic for now, and why."""
        self._retired = Retired()
        self._ended: list[Manager] = []
        for index in range(len(destinations)):
            current.disconnected(index, now, waited_for=False)

    # --- in -----------------------------------------------------------------------------------------

    def send(self, shard: int, rows: pa.RecordBatch, promise: Promise, now: float) -> tuple[bytes, SegmentKey]:
        """Gives rows to the current manager; the block and the key they got."""
        self._rotate_if_due(now)
        return self.current.block, self.current.send(shard, rows, promise, now)

    def _rotate_if_due(self, now: float) -> None:
        current = self.current
        rule = self._rotation
        if self.old is not None or self._closing or not current.bytes_put:
            return
        by_time = self._rotate_at is not None and now >= self._rotate_at
        by_size = rule.block_bytes_max is not None and (
            current.bytes_put >= rule.block_bytes_max or current.segments_put >= BLOCK_SEGMENTS_MAX
        )
        by_rejects = rule.after_rejects and current.spills.count > 0 and len(self._up) == len(self.destinations)
        if by_time or by_size or by_rejects:
            self.rotate(now)

    def rotate(self, now: float) -> None:
        """Begins a new block; the present one drains."""
        assert self.old is None, "one drains at a time"
        self.old = self.current
        predecessor = Predecessor(self.old.block, self.old.segments_next) if self._ordered else None
        self.current = self._make_manager(predecessor)
        self._introduce(self.current, now, self.old.is_gone)
        self.rotations += 1
        if self._rotation.after_s is not None:
            self._rotate_at = now + self._rotation.after_s

    # --- destinations -------------------------------------------------------------------------------

    @property
    def managers(self) -> list[Manager]:
        return [*self.left.managers, *([self.old] if self.old is not None else []), self.current]

    def connected(self, destination: int, now: float, window_bytes: int | None = None) -> None:
        self._up[destination] = window_bytes
        self._refusals.pop(destination, None)
        self._hindrances.pop(destination, None)
        for manager in self.managers:
            manager.connected(destination, now, window_bytes)

    def disconnected(self, destination: int, now: float) -> None:
        self._up.pop(destination, None)
        self._hindrances.pop(destination, None)
        for manager in self.managers:
            manager.disconnected(destination, now)

    def hinder(self, destination: int, error: HeadpondError) -> None:
        """It is there, but does not open the topic for now."""
        self._hindrances[destination] = error
        for manager in self.managers:
            manager.hinder(destination, error)

    def refuse(self, destination: int, error: HeadpondError) -> None:
        """It takes nothing until it is connected again."""
        self._refusals[destination] = error
        for manager in self.managers:
            manager.refuse(destination, error)

    def _introduce(self, manager: Manager, now: float, gone: Callable[[int], bool]) -> None:
        """Tells a new manager of the destinations as they stand."""
        for index in range(len(self.destinations)):
            if index in self._up:
                manager.connected(index, now, self._up[index])
            else:
                manager.disconnected(index, now, waited_for=not gone(index))
            if index in self._hindrances:
                manager.hinder(index, self._hindrances[index])
            if index in self._refusals:
                manager.refuse(index, self._refusals[index])

    def _streams(self, destination: int) -> Iterator[Manager]:
        """What a destination may be sent from now, in order."""
        left = self.left.stream(destination)
        if isinstance(left, Manager):
            yield left
        if left is not None and self._ordered:
            return
        if self.old is not None and not self.old.through(destination):
            yield self.old
            if self._ordered:
                return
        yield self.current

    def take(self, destination: int, bytes_max: int, now: float) -> list[Burst]:
        """What to write to a destination now, in order."""
        bursts: list[Burst] = []
        for manager in self._streams(destination):
            if self._ordered and manager.waits_for_predecessor(destination):
                if self._offer_predecessor(manager, destination):
                    manager.try_again(destination)
                    return bursts + self.take(destination, bytes_max, now)
                bursts += _lost_predecessor(manager, destination)
            frames = manager.take(destination, bytes_max, now)
            if frames:
                bursts.append(self._burst(manager, frames))
        return bursts

    def _offer_predecessor(self, manager: Manager, destination: int) -> bool:
        """Whether a file still has something of the block before, which a destination lost: then it is sent."""
        assert manager.predecessor is not None
        for earlier in self.managers:
            before = earlier is not manager and earlier.block == manager.predecessor.block
            if before and earlier.offer_again(destination):
                self.left.back_to(destination, earlier)
                return True
        return False

    def answer(self, destination: int, ack: Ack, now: float) -> None:
        for manager in self.managers:
            if manager.block == ack.block:
                manager.answer(destination, ack, now)

    @property
    def wake_at(self) -> float | None:
        times = [at for manager in self.managers if (at := manager.wake_at) is not None]
        return min(times, default=None)

    def wake(self, now: float) -> list[tuple[int, Burst]]:
        """Time has passed: by destination, what is to be written again."""
        again: list[tuple[int, Burst]] = []
        for manager in self.managers:
            for index, frames in manager.wake(now):
                again.append((index, self._burst(manager, frames)))
        self._rotate_if_due(now)
        return again

    def _burst(self, manager: Manager, frames: list[bytes]) -> Burst:
        predecessor = manager.predecessor if self._ordered else None
        return Burst(manager.block, predecessor, manager.schema, frames)

    def relieve(self, now: float) -> None:
        for manager in self.managers:
            manager.relieve(now)

    def eager(self, segments_max: int) -> bool:
        return self.current.eager(segments_max)

    # --- the disk -----------------------------------------------------------------------------------

    def jobs(self) -> list[tuple[Manager | None, Job]]:
        """What is to be done on the disk, in order, and for whom."""
        found: list[tuple[Manager | None, Job]] = list(self.left.jobs())
        for manager in self.left.take_ended():
            self._retire(manager)
        if (old := self.old) is not None:
            if not old.closing and old.is_drained():
                old.shutdown()
            found += [(old, job) for job in old.jobs()]
            if old.finished:
                self._retire(old)
                if old.spills.left_path is not None:
                    self.left.add(old.spills.left_path)
                self.old = None
        found += [(self.current, job) for job in self.current.jobs()]
        return found

    def _retire(self, manager: Manager) -> None:
        self._retired.add(manager)
        self._ended.append(manager)

    def job_ended(self, manager: Manager | None, job: Job, now: float) -> None:
        if manager is not None:
            manager.job_ended(job, now)
            return
        assert isinstance(job, Open)
        opened = self.left.opened(job)
        if opened is not None:
            self._introduce(opened, now, lambda index: True)
            if (earlier := self._retired.spilled.pop(opened.block, None)) is not None:
                opened.exchange.follow(earlier)

    def take_ended(self) -> list[Manager]:
        """Managers that are done with since this was last asked."""
        ended, self._ended = self._ended, []
        return ended

    def settled(self) -> bool:
        """Whether every destination that is there has all that was sent, by this run and by earlier ones."""
        return all(
            self.left.stream(index) is None
            and (self.old is None or self.old.through(index))
            and self.current.through(index)
            for index in self._up
        )

    # --- the end ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """What no destination confirmed goes to the refill; nothing more is sent."""
        self._closing = True
        self.left.shutdown()
        for manager in (self.old, self.current):
            if manager is not None and not manager.closing:
                manager.shutdown()

    @property
    def finished(self) -> bool:
        """Whether every file is as it is to be left."""
        return self.left.finished and self.old is None and self.current.finished

    def forget(self) -> None:
        """Nobody here hears any more what becomes of what is spilled."""
        for exchange in (*self._retired.spilled.values(), *(each.exchange for each in self.managers)):
            exchange.forget()

    # --- what is to be told -------------------------------------------------------------------------

    @property
    def resent(self) -> int:
        return self._retired.resent + sum(manager.resent for manager in self.managers)

    @property
    def spilled_segments(self) -> int:
        return self._retired.spilled_segments + sum(manager.spills.count for manager in self.managers)

    @property
    def holes(self) -> list[tuple[str, bytes, SegmentHole]]:
        """By destination and block: what it said it lacks and nobody has any more."""
        return list(dict.fromkeys([*self._retired.holes, *(h for each in self.managers for h in each.holes)]))

    @property
    def hindrances(self) -> dict[str, HeadpondError]:
        """By destination: why it takes nothing for now."""
        return {name: error for each in self.managers for name, error in each.hindrances.items()}

    @property
    def lost(self) -> list[str]:
        """What cannot be read from the refill any more, in words."""
        found = (f"block {each.block.hex()}: {lost}" for each in self.managers for lost in each.spills.lost)
        return [*self._retired.lost, *found]


def _lost_predecessor(manager: Manager, destination: int) -> list[Burst]:
    assert manager.predecessor is not None
    lost = manager.declare_predecessor(destination)
    return [Burst(manager.predecessor.block, None, manager.schema, lost)] if lost else []


class Retired:
    """What managers that are gone had counted and found."""

    def __init__(self) -> None:
        self.resent = 0
        self.spilled_segments = 0
        self.holes: list[tuple[str, bytes, SegmentHole]] = []
        self.lost: list[str] = []
        self.spilled: dict[bytes, Exchange] = {}
        """By block: who waits for what a file holds that was left, until it is opened again."""

    def add(self, manager: Manager) -> None:
        self.resent += manager.resent
        self.spilled_segments += manager.spills.count
        self.holes += manager.holes
        self.lost += [f"block {manager.block.hex()}: {lost}" for lost in manager.spills.lost]
        if manager.spills.left_path is not None:
            self.spilled[manager.block] = manager.exchange
