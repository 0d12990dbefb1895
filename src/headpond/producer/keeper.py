"""The keeper: the present block's manager, managers of earlier blocks that drain, and the files left behind.

A destination gets them in this order::

    left files (oldest first) ──▶ draining managers ──▶ current manager

**Rotation** ends a block and begins another: after ``after_s`` (the first time after a random part of it, so
that many producers do not rotate together), when it holds ``block_bytes_max``, and after rejects, when every
destination is there again, so that a file does not live as long as the producer. The new block names the old
one as its predecessor. While a manager drains nothing rotates.

**A producer that starts before a node says how many shards the topic has** takes rows without a shard. When the
number is known (``learn``), the rows in memory get their shards and go into a new block, and the file is left
to the refill sender, which gives its rows their shards when it opens the file.

With ``ordered`` a destination gets a block only when it is through with everything before it; without, all flow
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import pyarrow as pa

from headpond.model.errors import HeadpondError
from headpond.producer.encoder import Sharder
from headpond.producer.exchange import SegmentPromise
from headpond.producer.manager import Manager
from headpond.producer.outlet import DestinationState
from headpond.producer.refill.index import SEGMENTS_MAX
from headpond.producer.refill_sender import RefillSender
from headpond.producer.sender import Jitter, SegmentHole, refusal
from headpond.producer.spills import Job
from headpond.wire.control.producing import Ack
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.segment import decode_plain
from headpond.wire.title import Predecessor

BLOCK_SEGMENTS_MAX = SEGMENTS_MAX // 2
"""A block ends long before the index of its file is full, to have room for the segments in memory."""
UNSHARDED_BYTES_MAX = 64 * 1024 * 1024
"""A block without shards ends earlier, so that giving its rows their shards takes little time."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a block ends; None for never."""

    after_s: float | None = 2 * 60 * 60.0
    block_bytes_max: int | None = 1024 * 1024 * 1024
    after_rejects: bool = True


class Burst(NamedTuple):
    """Frames of one block for one destination, to be written after its title."""

    block: bytes
    predecessor: Predecessor | None
    schema: bytes | None
    frames: list[bytes]


class Keeper:
    def __init__(
        self,
        states: Sequence[DestinationState],
        make_manager: Callable[[Predecessor | None], Manager],
        current: Manager,
        left: RefillSender,
        *,
        known: bool,
        rotation: Rotation,
        ordered: bool,
        jitter: Jitter,
        now: float,
    ) -> None:
        """``known``: a node has said how many shards the topic has, and ``current`` is for them."""
        self.states = states
        """Of the destinations, in their order."""
        self.current = current
        self.draining: list[Manager] = []
        """Managers of earlier blocks, oldest first."""
        self.left = left
        self.rotations = 0
        self._make_manager = make_manager
        self._known = known
        self._renews = False
        """Whether a new block, for another number of shards, is to begin."""
        self._sharder: Sharder | None = None
        """For rows that were gathered before the number of shards was known."""
        self._rotation = rotation
        self._ordered = ordered
        self._rotate_at = inf if rotation.after_s is None else now + rotation.after_s * jitter()
        self._bytes_due = min(rotation.block_bytes_max or UNSHARDED_BYTES_MAX, UNSHARDED_BYTES_MAX)
        """From this size on, the rules of the rotation are looked at."""
        self._closing = False
        self._ended: list[Manager] = []
        self._ended_resent = 0
        self._ended_holes: list[tuple[str, bytes, SegmentHole]] = []
        self._ended_lost: list[str] = []

    # --- in -----------------------------------------------------------------------------------------

    def send(self, promise: SegmentPromise, rows: pa.RecordBatch | bytes, now: float) -> None:
        """Gives rows, or a plain segment of them, to the present block. Rows at fault raise, unsent."""
        current = self.current
        if now >= self._rotate_at or current.bytes_put >= self._bytes_due or current.spills.count:
            self._rotate_if_due(now)
            current = self.current
        if promise.shard is None and current.shards is not None:
            self._send_parts(promise, decode_plain(rows) if isinstance(rows, bytes) else rows, now)
        else:
            current.send(promise, rows, now)

    def _send_parts(self, promise: SegmentPromise, rows: pa.RecordBatch, now: float) -> None:
        """Sends rows that have no shard yet, by shard."""
        assert self._sharder is not None, "the number of shards is known"
        pieces = self._sharder.split(rows)
        parts = [promise.part(shard, piece.num_rows, places) for shard, piece, places in pieces]
        for part, (_, piece, _) in zip(parts, pieces, strict=True):
            try:
                self.current.send(part, piece, now)
            except HeadpondError as error:
                part.free()
                for index, state in enumerate(self.states):
                    part.settle(index, refusal(state.name, error))

    def _rotate_if_due(self, now: float) -> None:
        current = self.current
        rule = self._rotation
        if self.draining or self._closing or self._renews or not current.bytes_put:
            return
        if not self._known and len(current.exchange):
            return  # a block for other shards would take the rows in memory from the present one only
        by_time = now >= self._rotate_at
        bytes_max = rule.block_bytes_max
        if bytes_max is not None and current.shards is None:
            bytes_max = min(bytes_max, UNSHARDED_BYTES_MAX)
        by_size = bytes_max is not None and (
            current.bytes_put >= bytes_max or current.segments_put >= BLOCK_SEGMENTS_MAX
        )
        by_rejects = rule.after_rejects and current.spills.count > 0 and all(each.up for each in self.states)
        if by_time or by_size or by_rejects:
            named = self._ordered and current.shards is not None
            self._begin_block(Predecessor(current.block, current.segments_next) if named else None, now)
            self.rotations += 1
            if rule.after_s is not None:
                self._rotate_at = now + rule.after_s

    def _begin_block(self, predecessor: Predecessor | None, now: float) -> None:
        self.draining.append(self.current)
        self.current = self._make_manager(predecessor)
        self.current.begin(now)

    # --- the topic ----------------------------------------------------------------------------------

    def learn(self, now: float, *, renew: bool) -> None:
        """A node says how many shards the topic has; ``renew`` if the present block is not for that number."""
        self._known = True
        self._renews = renew
        if renew:
            for manager in self.draining:
                if not manager.closing:
                    manager.shutdown()
        self._renew(now)

    def _renew(self, now: float) -> None:
        """Begins a block for the right number of shards, as soon as it is certain which rows the file has."""
        old = self.current
        if not self._renews or old.spills.rolling_back or old.spills.writing:
            return
        if old.spills.uncertain:
            if (job := old.spills.roll_back()) is not None:
                old.jobs.append(job)
            return
        self._renews = False
        self._begin_block(None, now)
        assert self.current.shards is not None, "a node said so"
        self._sharder = Sharder(self.current.shards.bit_length() - 1)
        plain = old.schema is None and self.current.schema is None
        in_memory = old.exchange.withdraw() if plain else []
        old.shutdown()
        for frame, promise in in_memory:
            self._send_parts(promise, decode_plain(frame[HEADER_BYTES : -TRAILER.size]), now)

    # --- destinations -------------------------------------------------------------------------------

    @property
    def managers(self) -> list[Manager]:
        return [*self.left.managers.values(), *self.draining, self.current]

    def connected(self, destination: int, now: float, window_bytes: int | None = None) -> None:
        self.states[destination].connected(window_bytes)
        for manager in self.managers:
            manager.outlets[destination].connected(now)

    def disconnected(self, destination: int, now: float) -> None:
        self.states[destination].disconnected(now)
        for manager in self.managers:
            manager.outlets[destination].disconnected()

    def hinder(self, destination: int, error: HeadpondError) -> None:
        """The node is there, but does not open the topic for now."""
        state = self.states[destination]
        state.hindrance, state.unopened = error, True

    def refuse(self, destination: int, error: HeadpondError) -> None:
        """The destination takes nothing until it is connected again."""
        self.states[destination].refusal = error
        for manager in self.managers:
            manager.refuse(destination, error)

    def is_eager(self, segments_max: int) -> bool:
        """Whether a small segment would leave at once; if not, rows had better wait and share one."""
        outlets = self.current.outlets
        if len(outlets) == 1:
            return outlets[0].is_eager(segments_max)
        return all(outlet.is_eager(segments_max) for outlet in outlets)

    # --- out ----------------------------------------------------------------------------------------

    def take(self, destination: int, bytes_max: int, now: float) -> list[Burst]:
        """The frames to write to a destination now, in order."""
        bursts: list[Burst] = []
        only_current = not self.draining and self.left.at[destination] >= len(self.left.paths)
        for manager in (self.current,) if only_current else self._streams(destination):
            outlet = manager.outlets[destination]
            if self._ordered and manager.predecessor is not None and outlet.waits_for_predecessor:
                if self._offer_predecessor(manager, destination):
                    outlet.try_again()
                    return bursts + self.take(destination, bytes_max, now)
                lost = manager.declare_predecessor(destination)
                if lost:
                    bursts.append(Burst(manager.predecessor.block, None, manager.schema, lost))
            # The segments that a closing manager still owes are sent from its file; those of a block for
            # another number of shards are not sent at all.
            held = manager.closing or (self._renews and manager is self.current)
            frames = [] if held else outlet.take(bytes_max, now, manager.jobs)
            if frames:
                predecessor = manager.predecessor if self._ordered else None
                bursts.append(Burst(manager.block, predecessor, manager.schema, frames))
        return bursts

    def _streams(self, destination: int) -> Sequence[Manager]:
        """The managers that may send to a destination now, in order."""
        found: list[Manager] = []
        left = self.left.stream(destination)
        if isinstance(left, Manager):
            found.append(left)
        if left is not None and self._ordered:
            return found
        for manager in self.draining:
            if manager.shards is None or not manager.outlets[destination].through:
                found.append(manager)
                if self._ordered:
                    return found
        return [*found, self.current]

    def _offer_predecessor(self, manager: Manager, destination: int) -> bool:
        """Whether a file has something of the block before, which a destination lost: then it is sent again."""
        assert manager.predecessor is not None
        for earlier in self.managers:
            before = earlier is not manager and earlier.block == manager.predecessor.block
            if before and not earlier.closing and earlier.outlets[destination].offer_again():
                self.left.back_to(destination, earlier)
                return True
        return False

    def answer(self, destination: int, ack: Ack, now: float) -> None:
        if ack.block == self.current.block:
            self.current.outlets[destination].answer(ack, now)
        for manager in (*self.left.managers.values(), *self.draining):
            if manager.block == ack.block:  # that all runs may share
                manager.outlets[destination].answer(ack, now)

    @property
    def rests(self) -> bool:
        """Whether there is certainly nothing to ``take`` and no job."""
        busy = self.draining or self._renews or self.left.managers or self.left.paths
        return not busy and self.current.rests

    @property
    def wake_at(self) -> float:
        """When ``wake`` is due; infinite while nothing waits for time to pass."""
        soonest = min(self.current.wake_at, self.left.again_at)
        for state in self.states:
            soonest = min(soonest, state.spill_at)
        for manager in (*self.left.managers.values(), *self.draining):
            soonest = min(soonest, manager.wake_at)
        return soonest

    def wake(self, now: float) -> list[tuple[int, Burst]]:
        """Time has passed: by destination, the frames to write again."""
        for index, state in enumerate(self.states):
            if state.spill_at <= now:
                state.give_up()
                for manager in self.managers:
                    manager.reject_all(index)
        again: list[tuple[int, Burst]] = []
        for manager in self.managers:
            predecessor = manager.predecessor if self._ordered else None
            for index, frames in manager.wake(now):
                again.append((index, Burst(manager.block, predecessor, manager.schema, frames)))
        self.left.wake(now)
        self._renew(now)
        self._rotate_if_due(now)
        return again

    def relieve(self, now: float) -> None:
        """Memory is full."""
        for manager in self.managers:
            manager.relieve(now)

    # --- the disk -----------------------------------------------------------------------------------

    def take_jobs(self) -> list[Job]:
        """The work for the disk, in order; ``job_ended`` follows for each."""
        found: list[Job] = []
        if self.draining:
            found += self._drain()  # first, because it may leave a file
        if self._known and (self.left.managers or min(self.left.at) < len(self.left.paths)):
            jobs_left, ended = self.left.take_jobs()
            found += jobs_left
            for manager in ended:
                self._retire(manager)
        if self._renews:  # nothing is spilled until it is certain which rows the file has
            jobs, self.current.jobs = self.current.jobs, []
        else:
            jobs = self.current.take_jobs()
        return found + jobs if found else jobs

    def _drain(self) -> list[Job]:
        found: list[Job] = []
        for manager in self.draining:
            if not manager.closing and (manager.shards is None or manager.is_drained()):
                manager.shutdown()
            found += manager.take_jobs()
        while self.draining and self.draining[0].finished:  # in order, so that files are left in order
            manager = self.draining.pop(0)
            self._retire(manager)
            self.left.add(manager)
        return found

    def _retire(self, manager: Manager) -> None:
        self._ended.append(manager)
        self._ended_resent += manager.resent
        self._ended_holes += manager.holes
        self._ended_lost += _lost_of(manager)

    def job_ended(self, job: Job, now: float) -> None:
        job.on_end(job, now)
        self._renew(now)

    def take_ended(self) -> list[Manager]:
        """The managers that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def settled(self) -> bool:
        """Whether every destination that is there has all that this run and earlier ones sent."""
        return not self._renews and all(
            self.left.stream(index) is None
            and all(manager.outlets[index].through for manager in (*self.draining, self.current))
            for index, state in enumerate(self.states)
            if state.up
        )

    # --- the end ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The segments that no destination confirmed go to the refill; nothing more is sent."""
        self._closing = True
        self._renews = False
        self.left.shutdown()
        for manager in (*self.draining, self.current):
            if not manager.closing:
                manager.shutdown()

    @property
    def finished(self) -> bool:
        """Whether every file is in its final state."""
        return self.left.finished and not self.draining and self.current.finished

    def forget(self) -> None:
        """The promises of spilled segments will not be settled again."""
        self.left.forget()
        for manager in self.managers:
            manager.exchange.forget()

    # --- for people ---------------------------------------------------------------------------------

    @property
    def resent(self) -> int:
        return self._ended_resent + sum(manager.resent for manager in self.managers)

    @property
    def holes(self) -> list[tuple[str, bytes, SegmentHole]]:
        """By destination and block: the segments that it lacks and nobody has."""
        found = [hole for manager in self.managers for hole in manager.holes]
        return list(dict.fromkeys([*self._ended_holes, *found]))

    @property
    def hindrances(self) -> dict[str, HeadpondError]:
        """By destination: why it takes nothing for now."""
        return {state.name: state.hindrance for state in self.states if state.hindrance is not None}

    @property
    def lost(self) -> list[str]:
        """The segments that can no longer be read from the refill, in words."""
        return [*self._ended_lost, *(lost for manager in self.managers for lost in _lost_of(manager))]

    @property
    def refill_error(self) -> HeadpondError | None:
        """Why the refill takes nothing at present."""
        return next((each.spills.error for each in self.managers if each.spills.error is not None), None)


def _lost_of(manager: Manager) -> list[str]:
    return [f"block {manager.block.hex()}: {lost}" for lost in manager.spills.lost]
