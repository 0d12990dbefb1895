"""The manager of one block: encoders, exchange, refill, and an outlet for each destination.

::

    send ──▶ encoder ──▶ exchange ──▶ outlet ──▶ (frames for a destination)
                            ⇅            ▲ │
                          refill  ◀── jobs └── answer ◀── (the node's acks)

It does no IO. The keeper passes its decisions on: frames to write, jobs for the thread of the disk, and the
time of the next ``wake``.

1. **A destination that does not take a segment** within ``spill_after_s``, or was away for that long, rejects
   it: the segment is written to the refill (after a snapshot where a reader needs one) and leaves memory. While
   the destination is away, new segments go there at once.
2. **A destination that comes back** is sent everything after its last ack: from memory, else from the refill.
3. **An ack** reaches the exchange first and the file later, because a segment leaves memory only when the file
   has it.
4. **The file is removed** when every destination has all of it.
5. **A segment that cannot be read** from the refill is named in ``spills.lost`` and never sent.

Before the number of shards is known, rows are segments of a block *without shards* (``shards`` None): it goes
to the refill and never to a destination. The rows get shard, block and number later (``refill_sender``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headpond.model.errors import Closed, Fenced, HeadpondError, TimedOut, Unavailable
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.model.receipt import Durability
from headpond.producer.encoder import Encoder
from headpond.producer.exchange import Exchange, SegmentPromise
from headpond.producer.numbers import Numbers
from headpond.producer.outlet import DestinationState, Outlet
from headpond.producer.sender import Jitter, SegmentHole, refusal
from headpond.producer.spills import Finish, Job, Spills, Store
from headpond.wire.title import Predecessor

STALLED_AFTER_S: Final = 1.0
"""Memory is full: a destination that confirmed nothing for this long counts as away."""

MakeEncoder = Callable[[int, int], Encoder]
"""The encoder of a shard, beginning at a segment."""


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """How long a producer waits for its destinations, and how much it sends ahead."""

    window_bytes: int = 16 * 1024 * 1024
    """Bytes sent to a destination and not answered."""
    spill_after_s: float = 5.0
    durability: Durability = Durability.SYNC
    """Of the refill."""


class Manager:
    def __init__(
        self,
        block: bytes,
        states: Sequence[DestinationState],
        make_encoder: MakeEncoder | None,
        *,
        shards: int | None,
        policy: SendPolicy,
        store: Store | None,
        jitter: Jitter,
        predecessor: Predecessor | None = None,
        predecessor_of: frozenset[str] | None = None,
        schema: bytes | None = None,
        numbers: Numbers | None = None,
        first: dict[int, int] | None = None,
        spilled: dict[int, RangeSet] | None = None,
        pending: dict[str, dict[int, int]] | None = None,
        spilled_for: frozenset[str] | None = None,
    ) -> None:
        """``states`` are the destinations, and ``first`` the numbers that encoders begin with. ``spilled`` are
        the segments already in the refill, and ``pending`` has by destination and shard the first segment that
        is still owed. ``predecessor_of`` are the destinations of the earlier block, ``spilled_for`` those of
        the file; None for all. ``numbers`` reserves numbers before they are used."""
        self.block = block
        self.shards = shards
        """None: its rows have no shard yet."""
        self.predecessor = predecessor
        self.schema = schema
        """Of a typed topic: the columns that the block is encoded with."""
        self.store = store
        first = dict(first or {})
        names = tuple(state.name for state in states)
        self.exchange = Exchange(names, first, self._why_spilled, policy.durability)
        owners = frozenset(names) if spilled_for is None else spilled_for
        self.spills = Spills(store, self.exchange, spilled or {}, owners)
        self.bytes_put = 0
        """Bytes of frames ever put: the size of the block."""
        self.segments_put = 0
        self.closing = False
        self.finished = False
        """Closed, and its file is in its final state."""
        self.jobs: list[Job] = []
        """Work for the thread of the disk that ``take_jobs`` hands out."""
        self._predecessor_of = predecessor_of
        self._make_encoder = make_encoder
        self._policy = policy
        self._numbers = numbers
        self._first = first
        self._encoders: dict[int, Encoder] = {}
        self.outlets = [
            Outlet(
                index,
                state,
                block,
                self.exchange,
                self.spills,
                self._encoders,
                self._make_snapshot,
                first={**first, **(pending or {}).get(state.name, {})},
                jitter=jitter,
                typed=schema is not None,
            )
            for index, state in enumerate(states)
        ]

    # --- in -----------------------------------------------------------------------------------------

    def send(self, promise: SegmentPromise, rows: pa.RecordBatch | bytes, now: float) -> None:
        """Encodes rows for every destination and numbers them. Rows at fault raise, and nothing is sent."""
        assert not self.closing, "a manager that closes takes nothing"
        shard = promise.shard or 0
        encoder = self._encoders.get(shard)
        if encoder is None:
            assert self._make_encoder is not None, "a block found on the disk is only sent"
            encoder = self._encoders[shard] = self._make_encoder(shard, self._first.get(shard, 0))
        if self._numbers is not None:
            self._numbers.reserve(shard, encoder.last_segment + 1)
        frame, redundant = encoder.encode(rows)
        key = SegmentKey(shard, encoder.last_segment)
        if self.shards is not None:
            promise.block, promise.segment = self.block, key.segment
        self.exchange.put(key, frame, redundant, promise, now)
        self.bytes_put += len(frame)
        self.segments_put += 1
        for index, outlet in enumerate(self.outlets):
            state = outlet.state
            if state.refusal is not None:
                self.exchange.ack(key, index, refusal(state.name, state.refusal))
            elif state.gone:
                self.exchange.reject(key, index)
            else:
                outlet.ready[shard] = None

    @property
    def segments_next(self) -> dict[int, int]:
        """One past the last number used, by shard."""
        return dict(self.exchange.next)

    def _make_snapshot(self, key: SegmentKey) -> bytes | None:
        """The SNAPSHOT frame at a segment in memory; None for a plain topic."""
        encoder = self._encoders.get(key.shard)
        if encoder is None or not encoder.typed:
            return None
        return encoder.snapshot(self.exchange.redundants(key))

    # --- destinations -------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Begins to send to the destinations that are there."""
        for outlet in self.outlets:
            if outlet.state.up:
                outlet.connected(now)

    def refuse(self, destination: int, error: HeadpondError) -> None:
        """The destination takes nothing: open segments are refused, spilled ones stay."""
        fate = refusal(self.exchange.destinations[destination], error)
        for key in self.exchange.open_at(destination):
            if isinstance(error, Fenced) and self.store is not None:
                self.exchange.keep(key, destination, fate)
            else:
                self.exchange.ack(key, destination, fate)

    def is_drained(self) -> bool:
        """Whether nothing is left to do: destinations have all, or are away and the refill has it for them."""
        return not len(self.exchange) and all(outlet.through or outlet.state.gone for outlet in self.outlets)

    @property
    def resent(self) -> int:
        return sum(sender.resent for outlet in self.outlets for sender in outlet.senders.values())

    @property
    def holes(self) -> list[tuple[str, bytes, SegmentHole]]:
        """By destination and block: the segments that it lacks and nobody has."""
        found: list[tuple[str, bytes, SegmentHole]] = []
        for outlet in self.outlets:
            name = outlet.state.name
            if self.predecessor is not None:
                found += [(name, self.predecessor.block, hole) for hole in outlet.lost_before]
            for sender in outlet.senders.values():
                found += [(name, self.block, hole) for hole in sender.holes]
        return found

    def declare_predecessor(self, destination: int) -> list[bytes]:
        """For a destination that waits for an earlier block of which nothing is left: declares it lost."""
        assert self.predecessor is not None
        outlet = self.outlets[destination]
        owed = self._predecessor_of is None or outlet.state.name in self._predecessor_of
        return outlet.declare_lost(self.predecessor, owed=owed)

    def _why_spilled(self, destination: int) -> HeadpondError:
        state = self.outlets[destination].state
        if not state.up and not state.unopened:
            return Unavailable(f"{state.name} is out of reach")
        if state.hindrance is not None:
            return state.hindrance
        if self.closing:
            return Closed(f"the producer was closed before {state.name} confirmed it")
        return TimedOut(f"{state.name} did not confirm it within {self._policy.spill_after_s:g} s")

    # --- time ---------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        soonest = min(self.spills.note_at, self.spills.again_at)
        for outlet in self.outlets:
            for sender in outlet.senders.values():
                soonest = min(soonest, sender.wake_at)
        if self.store is not None:
            soonest = min(soonest, self.exchange.oldest_at + self._policy.spill_after_s)
        return soonest

    def wake(self, now: float) -> list[tuple[int, list[bytes]]]:
        """Time has passed: by destination, the frames to write again."""
        if self.store is not None:
            for key, destinations in self.exchange.older_than(now - self._policy.spill_after_s):
                for index in destinations:
                    self.exchange.reject(key, index)
        if (note := self.spills.wake(now)) is not None:
            self.jobs.append(note)
        return [(index, frames) for index, outlet in enumerate(self.outlets) if (frames := outlet.wake(now))]

    def reject_all(self, destination: int) -> None:
        """All segments that are open at a destination go to the refill."""
        for key in self.exchange.open_at(destination):
            self.exchange.reject(key, destination)

    def relieve(self, now: float) -> None:
        """Memory is full: segments for a destination that does not move go to the refill now."""
        if self.store is None:
            return
        for index, outlet in enumerate(self.outlets):
            if not outlet.state.up or now - outlet.progress_at >= STALLED_AFTER_S:
                self.reject_all(index)

    def hurry(self) -> None:
        """The producer closes: segments for a destination that is away go to the refill now."""
        for index, outlet in enumerate(self.outlets):
            if self.store is not None and not outlet.state.up:
                outlet.state.give_up()
                self.reject_all(index)

    # --- the disk -----------------------------------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether there is certainly nothing to send to any destination, and no job."""
        if self.closing or self.jobs or not self._refill_rests:
            return False
        for outlet in self.outlets:
            if outlet.ready or (self.predecessor is not None and outlet.waits_for_predecessor):
                return False
        return True

    @property
    def _refill_rests(self) -> bool:
        return not (self.spills.ranges or self.exchange.to_write or self.spills.error is not None)

    def take_jobs(self) -> list[Job]:
        """Hands out the work for the disk, in order."""
        spills = self.spills
        if self.store is not None and not spills.finishing and (self.closing or not self._refill_rests):
            spill = spills.spill(self._make_snapshot)
            self.jobs += [spill] if spill is not None else []
            if self._ends_file():
                continuable = self.closing and self._make_encoder is not None and self.shards is not None
                segments_next = self.segments_next if continuable else None
                self.jobs.append(spills.finish(segments_next, self._finish_ended))
        jobs, self.jobs = self.jobs, []
        return jobs

    def _finish_ended(self, job: Finish, now: float) -> None:
        self.spills.finish_ended(job)
        # A file may have ended because all of it was delivered, just before the manager began to close.
        self.finished = self.closing and not len(self.exchange)

    def _ends_file(self) -> bool:
        """Whether every destination has all of the file, or the manager closes and all is written."""
        if self.spills.writing or self.finished:
            return False
        if self.closing:
            return not len(self.exchange)
        return bool(self.spills.ranges) and all(
            outlet.sender(shard).floor >= spilled.end
            for outlet in self.outlets
            for shard, spilled in self.spills.ranges.items()
        )

    # --- the end ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Takes nothing more; the segments that no destination confirmed go to the refill."""
        self.closing = True
        if self.store is None:
            self.abandon(Closed("the producer was closed before this was confirmed"))
            self.finished = True
            return
        for index in range(len(self.outlets)):
            self.reject_all(index)

    def give_back(self) -> None:
        """The run ends in good order: reserved numbers that it did not use are free again."""
        if self._numbers is not None:
            self._numbers.give_back(self.segments_next)

    def abandon(self, error: HeadpondError) -> None:
        """Gives up the segments that are in memory only: their promises are settled with the error."""
        for index, name in enumerate(self.exchange.destinations):
            for key in self.exchange.open_at(index):
                self.exchange.give_up(key, refusal(name, error))

    def expire(self, put_before: float, error: HeadpondError) -> None:
        """Gives up the segments in memory that were put before then."""
        for key, _ in self.exchange.older_than(put_before):
            self.exchange.give_up(key, refusal(self.exchange.destinations[0], error))
