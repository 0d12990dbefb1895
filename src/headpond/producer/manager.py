"""The manager of one block: encoders, exchange, refill, and a sender for each destination and shard.

::

    send ──▶ encoder ──▶ exchange ──▶ sender ──▶ (frames for a destination)
                            ⇅                        │
                          refill  ◀── jobs ──┐   answer ◀── (the node's acks)
                                             └── rejected, read, statuses

It does no IO. Whoever runs it writes what ``take`` hands out, feeds ``answer``, runs ``jobs`` one after the
other on a thread and tells their end, and calls ``wake`` at ``wake_at``. All else follows:

1. **A destination that does not take a segment** within ``spill_after_s``, or has been away that long,
   rejects it: it is written to the refill (with a snapshot first where a reader would need one) and leaves
   memory. While the destination is away, new segments go there at once.
2. **A destination that comes back** is sent everything behind its last ack: from memory, else from the refill.
3. **An ack** is told to the exchange first and to the file later, because a segment leaves memory only when
   it is in the file.
4. **The file goes** when every destination has all of it.
5. **What cannot be read** from the refill is named in ``spills.lost``, by segment, and never sent.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headpond.model.errors import Closed, Fenced, HeadpondError, TimedOut, Unavailable, from_code
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.pipes.machines.machine import Jitter
from headpond.producer.exchange import Exchange, Promise
from headpond.producer.jobs import Finish, Job, Read, Spill, Store
from headpond.producer.outlet import Outlet
from headpond.producer.policy import SendPolicy
from headpond.producer.sender import SegmentHole, Sender, Step, fate_of, refusal
from headpond.producer.spills import Spills
from headpond.producer.supply import MakeEncoder, Supply
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.title import Predecessor

IN_ORDER: Final = frozenset({"gap", "snapshot", "predecessor"})
"""Refusals that only keep segments in their order."""
STALLED_AFTER_S: Final = 1.0
"""Memory is full: a destination that confirmed nothing for this long is taken for away."""


class Manager:
    def __init__(
        self,
        block: bytes,
        destinations: tuple[str, ...],
        make_encoder: MakeEncoder | None,
        *,
        policy: SendPolicy,
        store: Store | None,
        jitter: Jitter,
        predecessor: Predecessor | None = None,
        predecessor_of: frozenset[str] | None = None,
        schema: bytes | None = None,
        first: dict[int, int] | None = None,
        spilled: dict[int, RangeSet] | None = None,
        pending: dict[str, dict[int, int]] | None = None,
        spilled_for: frozenset[str] | None = None,
    ) -> None:
        """``first`` are the numbers that encoders go on from, ``spilled`` is what stands in the refill already,
        and ``pending`` by destination and shard the first segment that is still owed. ``predecessor_of`` are
        the destinations that the earlier block was for, ``spilled_for`` those of the file; None for all."""
        self.block = block
        self.predecessor = predecessor
        self._predecessor_of = predecessor_of
        self.schema = schema
        """Of a typed topic: the columns that the block is encoded with."""
        self.exchange = Exchange(destinations, first, self._why_spilled)
        owners = frozenset(destinations) if spilled_for is None else spilled_for
        self.spills = Spills(store, self.exchange, policy.durability, spilled or {}, owners)
        self.bytes_put = 0
        """Bytes of frames ever put: the size of the block."""
        self.segments_put = 0
        self.closing = False
        self.finished = False
        """Closed, and its file is as it is to be left."""
        self.taking_again: set[str] = set()
        """Destinations that took nothing for a while and do now; whoever tells of it takes them out."""
        self._make_encoder = make_encoder
        self._policy = policy
        self.store = store
        self._jitter = jitter
        self._first = dict(first or {})
        self._pending = pending or {}
        self._supply = Supply(
            block, self.exchange, self.spills, make_encoder, self._first, typed=schema is not None
        )
        self._outlets = [Outlet(name, policy.window_bytes) for name in destinations]
        self._jobs: list[Job] = []

    # --- in -----------------------------------------------------------------------------------------

    def send(self, shard: int, rows: pa.RecordBatch, promise: Promise, now: float) -> SegmentKey:
        """Encodes rows and gives them to every destination. A fault of the rows is raised, and nothing sent."""
        assert not self.closing, "nothing is sent through a manager that closes"
        encoder = self._supply.encoder(shard)
        frame, redundant = encoder.encode(rows)
        key = SegmentKey(shard, encoder.last_segment)
        self.exchange.put(key, frame, redundant, promise, now)
        self.bytes_put += len(frame)
        self.segments_put += 1
        for index, destination in enumerate(self._outlets):
            if destination.refusal is not None:
                self.exchange.ack(key, index, refusal(destination.name, destination.refusal))
            elif destination.gone:
                self.exchange.reject(key, index, self._policy.durability)
            else:
                destination.ready.setdefault(shard)
        return key

    @property
    def segments_next(self) -> dict[int, int]:
        """One past the last number used, by shard."""
        return dict(self.exchange.next)

    # --- destinations -------------------------------------------------------------------------------

    def connected(self, destination: int, now: float, window_bytes: int | None = None) -> None:
        there = self._outlets[destination]
        granted = there.window_bytes if window_bytes is None else min(self._policy.window_bytes, window_bytes)
        there.connected(now, granted)
        for shard in self.exchange.next:
            self._sender(destination, shard)
        for sender in there.senders.values():
            sender.connected()
            there.ready.setdefault(sender.shard)

    def disconnected(self, destination: int, now: float, *, waited_for: bool = True) -> None:
        """``waited_for`` says whether it may be back soon; if not, its segments are spilled at once."""
        there = self._outlets[destination]
        there.up = there.unopened = False
        if there.away_since is None:
            there.away_since = now
            there.gone = not waited_for and self.store is not None
        for sender in there.senders.values():
            sender.disconnected()

    def hinder(self, destination: int, error: HeadpondError) -> None:
        """The node is there, but does not open the topic for now."""
        there = self._outlets[destination]
        there.hindrance, there.unopened = error, True

    def refuse(self, destination: int, error: HeadpondError) -> None:
        """It will take nothing of this block: all that is open there is refused, what is spilled stays."""
        there = self._outlets[destination]
        there.refusal = error
        kept = isinstance(error, Fenced) and self.store is not None
        for key in self.exchange.open_at(destination):
            if kept:
                self.exchange.keep(key, destination, refusal(there.name, error), self._policy.durability)
            else:
                self.exchange.ack(key, destination, refusal(there.name, error))

    def _sender(self, destination: int, shard: int) -> Sender:
        there = self._outlets[destination]
        sender = there.senders.get(shard)
        if sender is None:
            first = self._pending.get(there.name, {}).get(shard, self._first.get(shard, 0))
            typed = self.schema is not None
            sender = there.senders[shard] = Sender(shard, first, there.flight, self._jitter, typed=typed)
            sender.up = there.up
        return sender

    def through(self, destination: int) -> bool:
        """Whether a destination has all that was ever sent through here, as far as it will ever have it."""
        there = self._outlets[destination]
        if there.refusal is not None:
            return True
        return all(
            self._sender(destination, shard).floor >= number for shard, number in self.exchange.next.items()
        )

    def is_gone(self, destination: int) -> bool:
        return self._outlets[destination].gone

    def is_drained(self) -> bool:
        """Whether nothing is left to do here: all are through, or away with what they lack in the refill."""
        indexes = range(len(self._outlets))
        if len(self.exchange):
            return False
        return all(self.through(index) or self.is_gone(index) for index in indexes)

    def eager(self, segments_max: int) -> bool:
        """Whether a small segment would leave at once, for a destination or the refill."""
        return all(
            not self.spills.writing if there.gone else there.has_room and there.flight.segments < segments_max
            for there in self._outlets
            if there.refusal is None
        )

    def in_flight_bytes(self, destination: int) -> int:
        return self._outlets[destination].flight.bytes

    @property
    def resent(self) -> int:
        return sum(sender.resent for there in self._outlets for sender in there.senders.values())

    @property
    def holes(self) -> list[tuple[str, bytes, SegmentHole]]:
        """By destination and block: what it said it lacks and nobody has any more."""
        found: list[tuple[str, bytes, SegmentHole]] = []
        for there in self._outlets:
            if self.predecessor is not None:
                found += [(there.name, self.predecessor.block, hole) for hole in there.lost_before]
            for sender in there.senders.values():
                found += [(there.name, self.block, hole) for hole in sender.holes]
        return found

    # --- out ----------------------------------------------------------------------------------------

    def take(self, destination: int, bytes_max: int, now: float) -> list[bytes]:
        """What to write to a destination now, in order, shards in turn."""
        there = self._outlets[destination]
        out: list[bytes] = []
        if not there.up or there.refusal is not None or self.closing:
            return out  # what a manager that closes still owes is sent from its file
        while there.ready and bytes_max > 0 and there.has_room:
            shard = next(iter(there.ready))
            del there.ready[shard]
            sender = self._sender(destination, shard)
            frames = self._supply.pick(destination, there, sender, now, self._jobs)
            if frames:
                if sender.cursor < self.exchange.next[shard]:
                    there.ready.setdefault(shard)
                out += frames
                bytes_max -= len(frames[-1])
        return out

    def waits_for_predecessor(self, destination: int) -> bool:
        """Whether a destination takes nothing of this block before it has the earlier one."""
        return self.predecessor is not None and self._outlets[destination].waits_for_predecessor

    def offer_again(self, destination: int) -> bool:
        """A destination lost what it had confirmed: whether the file has something that is sent once more."""
        there = self._outlets[destination]
        if there.offered_again or self.closing or there.name not in self.spills.names:
            return False
        there.offered_again = True
        offered = False
        for shard, spilled in self.spills.ranges.items():
            sender = self._sender(destination, shard)
            first = next(iter(spilled), (sender.floor, 0))[0]
            if first < sender.floor:
                sender.begin_at(first)
                there.ready.setdefault(shard)
                offered = True
        return offered

    def try_again(self, destination: int) -> None:
        """What waited for the earlier block need not any more."""
        self._outlets[destination].try_again()

    def declare_predecessor(self, destination: int) -> list[bytes]:
        """For a destination that waits for an earlier block of which nothing is left: it is declared lost."""
        assert self.predecessor is not None
        owed = self._predecessor_of is None or self.exchange.destinations[destination] in self._predecessor_of
        return self._outlets[destination].declare_lost(self.predecessor, owed=owed)

    # --- answers ------------------------------------------------------------------------------------

    def answer(self, destination: int, ack: Ack, now: float) -> None:
        there = self._outlets[destination]
        sender = there.senders.get(ack.shard)
        if sender is None:
            return
        for item in ack.items:
            step = sender.answer(item, now)
            if step is Step.DONE:
                there.progress_at = now
                if there.hindrance is not None:
                    there.hindrance = None
                    self.taking_again.add(there.name)
                self._done(destination, SegmentKey(ack.shard, item.segment), item, ack.durability, now)
            elif step is Step.AGAIN or step is Step.HELD:
                if item.code not in IN_ORDER:
                    there.hindrance = from_code(item.code, item.message or item.code)
                self._supply.went_back(there, sender)
        if sender.cursor < self.exchange.next.get(ack.shard, 0):
            there.ready.setdefault(ack.shard)

    def _done(self, index: int, key: SegmentKey, item: AckItem, durability: str, now: float) -> None:
        fate = fate_of(self.exchange.destinations[index], item, durability)
        self.exchange.ack(key, index, fate)
        self.spills.answered(key, fate.destination, fate, now)

    def _why_spilled(self, destination: int) -> HeadpondError:
        there = self._outlets[destination]
        if not there.up and not there.unopened:
            return Unavailable(f"{there.name} is out of reach")
        if there.hindrance is not None:
            return there.hindrance
        if self.closing:
            return Closed(f"the producer was closed before {there.name} confirmed it")
        return TimedOut(f"{there.name} did not confirm it within {self._policy.spill_after_s:g} s")

    @property
    def hindrances(self) -> dict[str, HeadpondError]:
        """By destination: why it takes nothing for now."""
        return {there.name: there.hindrance for there in self._outlets if there.hindrance is not None}

    # --- time ---------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        times: list[float | None] = [self.spills.wake_at]
        for there in self._outlets:
            times += [sender.wake_at for sender in there.senders.values()]
            if self.store is not None and there.away_since is not None and not there.gone:
                times.append(there.away_since + self._policy.spill_after_s)
        if self.store is not None and (oldest := self.exchange.oldest_at) is not None:
            times.append(oldest + self._policy.spill_after_s)
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> list[tuple[int, list[bytes]]]:
        """Time has passed: by destination, what is to be written again."""
        if self.store is not None:
            self._reject_overdue(now)
        if (note := self.spills.wake(now)) is not None:
            self._jobs.append(note)
        again: list[tuple[int, list[bytes]]] = []
        for index, there in enumerate(self._outlets):
            for sender in there.senders.values():
                if (wake_at := sender.wake_at) is not None and wake_at <= now:
                    frames = sender.wake(now)
                    if frames:
                        again.append((index, frames))
                    there.ready.setdefault(sender.shard)
        return again

    def _reject_overdue(self, now: float) -> None:
        for index, there in enumerate(self._outlets):
            waited = there.away_since is not None and now - there.away_since >= self._policy.spill_after_s
            if waited and not there.gone:
                there.gone = True
                self._reject_all(index)
        for key, destinations in self.exchange.older_than(now - self._policy.spill_after_s):
            for index in destinations:
                self.exchange.reject(key, index, self._policy.durability)

    def _reject_all(self, destination: int) -> None:
        for key in self.exchange.open_at(destination):
            self.exchange.reject(key, destination, self._policy.durability)

    def relieve(self, now: float) -> None:
        """Memory is full: what waits for a destination that does not move goes to the refill now."""
        if self.store is None:
            return
        for index, there in enumerate(self._outlets):
            if not there.up or now - there.progress_at >= STALLED_AFTER_S:
                self._reject_all(index)

    def hurry(self) -> None:
        """No more comes: what waits for a destination that is away goes to the refill now."""
        for index, there in enumerate(self._outlets):
            if self.store is not None and not there.up:
                there.gone = True
                self._reject_all(index)

    # --- the disk -----------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """What is to be done on the disk now, in order; asking takes it."""
        spills = self.spills
        if self.store is not None and not spills.finishing:
            spill = spills.spill(self._supply.snapshot_for_refill)
            self._jobs += [spill] if spill is not None else []
            if self._ends_file():
                continuable = self.closing and self._make_encoder is not None
                self._jobs.append(spills.finish(self.segments_next if continuable else None))
        jobs, self._jobs = self._jobs, []
        return jobs

    def job_ended(self, job: Job, now: float) -> None:
        if isinstance(job, Spill):
            self.spills.spill_ended(job, now)
        elif isinstance(job, Read):
            self._outlets[job.destination].read_ended(job, self._sender(job.destination, job.key.shard))
            if job.error is not None:
                self.spills.lose(job.key, job.error)
        elif isinstance(job, Finish):
            self.spills.finish_ended(job)
            self.finished = self.closing

    def _ends_file(self) -> bool:
        """Whether every destination has all of the file, or the manager closes and all is written."""
        if self.spills.writing or self.finished:
            return False
        if self.closing:
            return not len(self.exchange)
        return bool(self.spills.ranges) and all(
            self._sender(index, shard).floor >= spilled.end
            for index in range(len(self._outlets))
            for shard, spilled in self.spills.ranges.items()
        )

    # --- the end ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Nothing more is sent through here; what no destination confirmed goes to the refill."""
        self.closing = True
        if self.store is None:
            self.abandon(Closed("the producer was closed before this was confirmed"))
            self.finished = True
            return
        for index in range(len(self._outlets)):
            self._reject_all(index)

    def abandon(self, error: HeadpondError) -> None:
        """Gives up what is in memory only: every promise of it hears why."""
        for there_index in range(len(self._outlets)):
            for key in self.exchange.open_at(there_index):
                self.exchange.give_up(key, refusal(self._outlets[there_index].name, error))

    def expire(self, put_before: float, error: HeadpondError) -> None:
        """Gives up what has waited in memory since before then."""
        for key, _ in self.exchange.older_than(put_before):
            self.exchange.give_up(key, refusal(self._outlets[0].name, error))
