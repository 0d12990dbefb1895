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
5. **What cannot be read** from the refill is named in ``lost``, by segment, and never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.model.errors import Closed, PenstockError, from_code
from penstock.model.identity import SegmentKey
from penstock.model.ranges import RangeSet
from penstock.model.receipt import Durability, Fate, Outcome
from penstock.pipes.machine import Jitter
from penstock.transport.encoder import Encoder
from penstock.transport.exchange import AWAITED, Exchange, Promise
from penstock.transport.jobs import Finish, Job, Note, Read, Spill, Store
from penstock.transport.sender import Flight, Hole, Sender, Step
from penstock.wire.control import Ack, AckItem, encode_control
from penstock.wire.control import Hole as HoleFrame
from penstock.wire.frame import HEADER
from penstock.wire.title import Predecessor

READ_BYTES: Final = 4 * 1024 * 1024
READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""How much may be read from the refill for one destination and not be sent yet."""
NOTE_AFTER_S: Final = 0.25
"""How long acks of spilled segments may wait before the file is told."""
SPILL_AGAIN_AFTER_S: Final = 1.0
_DURABILITIES: Final = frozenset(Durability)
STALLED_AFTER_S: Final = 1.0
"""Memory is full: a destination that confirmed nothing for this long is taken for away."""


@dataclass(frozen=True, slots=True)
class Policy:
    window_bytes: int = 16 * 1024 * 1024
    """Bytes sent to a destination and not answered."""
    spill_after_s: float = 5.0
    durability: Durability = Durability.SYNC
    """Of the refill."""


class _Destination:
    """What a manager knows of one destination."""

    def __init__(self, name: str, window_bytes: int) -> None:
        self.name = name
        self.window_bytes = window_bytes
        self.up = False
        self.away_since: float | None = None
        """Since when it is down, as far as it is waited for; None while it is up."""
        self.gone = False
        """Away for longer than it is waited for: segments for it go to the refill at once."""
        self.refusal: PenstockError | None = None
        """Why it will take nothing of this block, ever."""
        self.progress_at = 0.0
        self.flight = Flight()
        self.senders: dict[int, Sender] = {}
        self.ready: dict[int, None] = {}
        """Shards that may have something to send, in the order of their turns."""
        self.read: dict[SegmentKey, bytes] = {}
        """Frames read from the refill and not sent yet."""
        self.read_bytes = 0
        self.reading: set[int] = set()
        self.deferred: set[int] = set()
        """Shards that wait until what was read before is sent."""
        self.snapshots: dict[int, bytes] = {}
        """By shard: what goes before the next segment."""
        self.offered_again = False
        """Whether the whole file was offered again on this connection."""
        self.lost_before: list[Hole] = []
        """What was declared lost of the block before this one."""


class Manager:
    def __init__(
        self,
        block: bytes,
        destinations: tuple[str, ...],
        make_encoder: Callable[[int, int], Encoder] | None,
        *,
        policy: Policy,
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
        self.exchange = Exchange(destinations, first)
        self.lost: list[str] = []
        """Segments that cannot be sent any more, and why, in words."""
        self.refused: dict[tuple[str, str], str] = {}
        """By destination and code: why segments that stand in the refill were refused for good."""
        self.bytes_put = 0
        """Bytes of frames ever put: the size of the block."""
        self.spilled_segments = 0
        self.spill_error: PenstockError | None = None
        """Why the refill takes nothing at present."""
        self.closing = False
        self.finished = False
        """Closed, and its file is as it is to be left."""
        self.left_path: str | None = None
        """The file that it left, if it left one."""
        self._make_encoder = make_encoder
        self._policy = policy
        self.store = store
        self._jitter = jitter
        self._first = dict(first or {})
        self._pending = pending or {}
        self._spilled_for = frozenset(destinations) if spilled_for is None else spilled_for
        self._encoders: dict[int, Encoder] = {}
        self._destinations = [_Destination(name, policy.window_bytes) for name in destinations]
        self._spilled: dict[int, RangeSet] = spilled or {}
        self._refill_next: dict[int, int] = {}
        """By shard: the segment that follows the last one written to the file."""
        self._jobs: list[Job] = []
        self._spilling: set[SegmentKey] = set()
        """What is being written to the refill."""
        self._spill_at: float | None = None
        """When to try again after the refill refused."""
        self._finishing = False
        self._note_at: float | None = None
        self._acked: list[tuple[SegmentKey, str]] = []
        """Answers that the file is to be told."""
        self._refused: list[tuple[SegmentKey, str, str, str]] = []

    # --- in -----------------------------------------------------------------------------------------

    def send(self, shard: int, rows: pa.RecordBatch, promise: Promise, now: float) -> SegmentKey:
        """Encodes rows and gives them to every destination. A fault of the rows is raised, and nothing sent."""
        assert not self.closing, "nothing is sent through a manager that closes"
        encoder = self._encoder(shard)
        frame, redundant = encoder.encode(rows)
        key = SegmentKey(shard, encoder.last_segment)
        self.exchange.put(key, frame, redundant, promise, now)
        self.bytes_put += len(frame)
        for index, destination in enumerate(self._destinations):
            if destination.refusal is not None:
                self.exchange.ack(key, index, _refusal(destination.name, destination.refusal))
            elif destination.gone:
                self.exchange.reject(key, index, self._policy.durability)
            else:
                destination.ready.setdefault(shard)
        return key

    def _encoder(self, shard: int) -> Encoder:
        encoder = self._encoders.get(shard)
        if encoder is None:
            assert self._make_encoder is not None, "a block found on the disk is only sent"
            encoder = self._encoders[shard] = self._make_encoder(shard, self._first.get(shard, 0))
        return encoder

    @property
    def segments_next(self) -> dict[int, int]:
        """One past the last number used, by shard."""
        return dict(self.exchange.next)

    # --- destinations -------------------------------------------------------------------------------

    def connected(self, destination: int, now: float, window_bytes: int | None = None) -> None:
        there = self._destinations[destination]
        there.up, there.gone, there.away_since, there.progress_at = True, False, None, now
        there.refusal, there.offered_again = None, False
        if window_bytes is not None:
            there.window_bytes = min(self._policy.window_bytes, window_bytes)
        there.read.clear()
        there.snapshots.clear()
        there.read_bytes = 0
        there.deferred.clear()
        for shard in self.exchange.next:
            self._sender(destination, shard)
        for sender in there.senders.values():
            sender.connected()
            there.ready.setdefault(sender.shard)

    def disconnected(self, destination: int, now: float, *, waited_for: bool = True) -> None:
        """``waited_for`` says whether it may be back soon; if not, its segments are spilled at once."""
        there = self._destinations[destination]
        there.up = False
        if there.away_since is None:
            there.away_since = now
            there.gone = not waited_for and self.store is not None
        for sender in there.senders.values():
            sender.disconnected()

    def refuse(self, destination: int, error: PenstockError) -> None:
        """It will take nothing of this block: all that is open there is refused, what is spilled stays."""
        there = self._destinations[destination]
        there.refusal = error
        for key in self.exchange.open_at(destination):
            self.exchange.ack(key, destination, _refusal(there.name, error))

    def _sender(self, destination: int, shard: int) -> Sender:
        there = self._destinations[destination]
        sender = there.senders.get(shard)
        if sender is None:
            first = self._pending.get(there.name, {}).get(shard, self._first.get(shard, 0))
            typed = self.schema is not None
            sender = there.senders[shard] = Sender(shard, first, there.flight, self._jitter, typed=typed)
            sender.up = there.up
        return sender

    def through(self, destination: int) -> bool:
        """Whether a destination has all that was ever sent through here, as far as it will ever have it."""
        there = self._destinations[destination]
        if there.refusal is not None:
            return True
        return all(
            self._sender(destination, shard).floor >= number for shard, number in self.exchange.next.items()
        )

    def is_gone(self, destination: int) -> bool:
        return self._destinations[destination].gone

    def is_drained(self) -> bool:
        """Whether nothing is left to do here: all are through, or away with what they lack in the refill."""
        indexes = range(len(self._destinations))
        if len(self.exchange):
            return False
        return all(self.through(index) or self.is_gone(index) for index in indexes)

    def eager(self, segments_max: int) -> bool:
        """Whether a small segment would leave at once, for a destination or the refill."""
        return all(
            not self._spilling
            if there.gone
            else there.flight.bytes < there.window_bytes and there.flight.segments < segments_max
            for there in self._destinations
            if there.refusal is None
        )

    def in_flight_bytes(self, destination: int) -> int:
        return self._destinations[destination].flight.bytes

    @property
    def resent(self) -> int:
        return sum(sender.resent for there in self._destinations for sender in there.senders.values())

    @property
    def holes(self) -> list[tuple[str, bytes, Hole]]:
        """By destination and block: what it said it lacks and nobody has any more."""
        found: list[tuple[str, bytes, Hole]] = []
        for there in self._destinations:
            if self.predecessor is not None:
                found += [(there.name, self.predecessor.block, hole) for hole in there.lost_before]
            for sender in there.senders.values():
                found += [(there.name, self.block, hole) for hole in sender.holes]
        return found

    # --- out ----------------------------------------------------------------------------------------

    def take(self, destination: int, bytes_max: int, now: float) -> list[bytes]:
        """What to write to a destination now, in order, shards in turn."""
        there = self._destinations[destination]
        out: list[bytes] = []
        if not there.up or there.refusal is not None or self.closing:
            return out  # what a manager that closes still owes is sent from its file
        while there.ready and bytes_max > 0 and there.flight.bytes < there.window_bytes:
            shard = next(iter(there.ready))
            del there.ready[shard]
            sender = self._sender(destination, shard)
            frames = self._pick(destination, there, sender, now)
            if frames:
                there.ready.setdefault(shard)
                out += frames
                bytes_max -= len(frames[-1])
        return out

    def _pick(self, destination: int, there: _Destination, sender: Sender, now: float) -> list[bytes]:
        """A shard's next segment with what must go before it; nothing while it is to be waited for."""
        while (segment := sender.wanted) is not None:
            key = SegmentKey(sender.shard, segment)
            frame = self._take_read(there, key, sender)
            in_memory = False
            if frame is None:
                found = self.exchange.get(key)
                if isinstance(found, bytes):
                    frame, in_memory = found, True
                elif found is AWAITED:
                    return []
            if frame is None:
                nearest = self._nearest(key)
                if nearest > segment:
                    sender.skip_to(nearest)
                    sender.fresh = True
                    continue
                self._read(destination, there, key, restore=sender.fresh and not sender.probes)
                return []
            return [*self._before(there, sender, key, in_memory=in_memory), sender.send(frame, now)]
        return []

    def _before(self, there: _Destination, sender: Sender, key: SegmentKey, *, in_memory: bool) -> list[bytes]:
        """What goes before a segment: a hole to declare, a snapshot."""
        before: list[bytes] = []
        snapshot = there.snapshots.pop(key.shard, None)
        encoder = self._encoders.get(key.shard)
        if encoder is not None and encoder.typed and in_memory:
            begins = key.segment == encoder.first_segment and key.segment > 0
            if snapshot is None and (sender.fresh or begins) and not sender.probes:
                snapshot = self.make_snapshot(key)
        if sender.declare(key.segment):
            before.append(encode_control(HoleFrame(self.block, key.shard, key.segment)))
        if snapshot is not None:
            before.append(snapshot)
        return before

    def make_snapshot(self, key: SegmentKey) -> bytes:
        """The SNAPSHOT frame at a segment in memory. Nothing is encoded meanwhile: one thread does both."""
        redundants = self.exchange.redundants(key)
        assert redundants is not None, "redundants are kept from the first segment in memory on"
        return self._encoders[key.shard].snapshot(redundants)

    def _nearest(self, key: SegmentKey) -> int:
        """The first segment at or behind ``key`` that there is."""
        nearest = self.exchange.next_in_memory(key)
        spilled = self._spilled.get(key.shard)
        if spilled is not None:
            found = spilled.overlap(key.segment, nearest)
            if found:
                nearest = found[0][0]
        return nearest

    def waits_for_predecessor(self, destination: int) -> bool:
        """Whether a destination takes nothing of this block before it has the earlier one."""
        senders = self._destinations[destination].senders.values()
        return self.predecessor is not None and any(sender.waits_for_predecessor for sender in senders)

    def offer_again(self, destination: int) -> bool:
        """A destination lost what it had confirmed: whether the file has something that is sent once more."""
        there = self._destinations[destination]
        if there.offered_again or self.closing or there.name not in self._spilled_for:
            return False
        there.offered_again = True
        offered = False
        for shard, spilled in self._spilled.items():
            sender = self._sender(destination, shard)
            first = next(iter(spilled), (sender.floor, 0))[0]
            if first < sender.floor:
                sender.begin_at(first)
                there.ready.setdefault(shard)
                offered = True
        return offered

    def declare_predecessor(self, destination: int) -> list[bytes]:
        """For a destination that waits for an earlier block of which nothing is left: it is declared lost."""
        there = self._destinations[destination]
        assert self.predecessor is not None
        for sender in there.senders.values():
            if sender.waits_for_predecessor:
                sender.waits_for_predecessor = False
                sender.held_until = None
                there.ready.setdefault(sender.shard)
        holes = [Hole(shard, 0, end) for shard, end in self.predecessor.segments_next.items() if end > 0]
        if self._predecessor_of is None or there.name in self._predecessor_of:
            there.lost_before += [hole for hole in holes if hole not in there.lost_before]
        return [encode_control(HoleFrame(self.predecessor.block, hole.shard, hole.end)) for hole in holes]

    # --- answers ------------------------------------------------------------------------------------

    def answer(self, destination: int, ack: Ack, now: float) -> None:
        there = self._destinations[destination]
        sender = there.senders.get(ack.shard)
        if sender is None:
            return
        for item in ack.items:
            step = sender.answer(item, now)
            if step is Step.DONE:
                there.progress_at = now
                self._done(destination, there, SegmentKey(ack.shard, item.segment), item, ack.durability, now)
            elif step is Step.AGAIN or step is Step.HELD:
                self._went_back(there, sender)
        if ack.shard in self.exchange.next or ack.shard in self._spilled:
            there.ready.setdefault(ack.shard)

    def _done(
        self,
        destination: int,
        there: _Destination,
        key: SegmentKey,
        item: AckItem,
        durability: str,
        now: float,
    ) -> None:
        if item.outcome == "rejected":
            fate = _refusal(there.name, from_code(item.code, item.message or item.code))
        else:
            given = Durability(durability) if durability in _DURABILITIES else None
            fate = Fate(Outcome(item.outcome), there.name, item.first_entry, given)
        self.exchange.ack(key, destination, fate)
        if there.name not in self._spilled_for:
            return
        spilled = self._spilled.get(key.shard)
        if key in self._spilling or (spilled is not None and key.segment in spilled):
            if fate.error is not None:
                self._refused.append((key, there.name, fate.error.code, fate.error.message))
                self.refused.setdefault((there.name, fate.error.code), fate.error.message)
            else:
                self._acked.append((key, there.name))
            if self._note_at is None:
                self._note_at = now + NOTE_AFTER_S

    def _went_back(self, there: _Destination, sender: Sender) -> None:
        """What was read ahead stays useful; what the file still has for a hole is sent after all."""
        there.snapshots.pop(sender.shard, None)
        spilled = self._spilled.get(sender.shard)
        if sender.lacking is not None and spilled is not None:
            found = spilled.overlap(sender.lacking, sender.cursor)
            if found:
                sender.rewind_to(found[0][0])

    # --- time ---------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        times: list[float | None] = [self._note_at, self._spill_at]
        for there in self._destinations:
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
        if self._spill_at is not None and self._spill_at <= now:
            self._spill_at = None
        if self._note_at is not None and self._note_at <= now:
            self._note()
        again: list[tuple[int, list[bytes]]] = []
        for index, there in enumerate(self._destinations):
            for sender in there.senders.values():
                if (wake_at := sender.wake_at) is not None and wake_at <= now:
                    frames = sender.wake(now)
                    if frames:
                        again.append((index, frames))
                    there.ready.setdefault(sender.shard)
        return again

    def _reject_overdue(self, now: float) -> None:
        for index, there in enumerate(self._destinations):
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
        for index, there in enumerate(self._destinations):
            if not there.up or now - there.progress_at >= STALLED_AFTER_S:
                self._reject_all(index)

    def hurry(self) -> None:
        """No more comes: what waits for a destination that is away goes to the refill now."""
        for index, there in enumerate(self._destinations):
            if self.store is not None and not there.up:
                there.gone = True
                self._reject_all(index)

    # --- the disk -----------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """What is to be done on the disk now, in order; asking takes it."""
        if self.store is not None and not self._finishing:
            self._spill()
            self._finish_file()
        jobs, self._jobs = self._jobs, []
        return jobs

    def job_ended(self, job: Job, now: float) -> None:
        if isinstance(job, Spill):
            self._spill_ended(job, now)
        elif isinstance(job, Read):
            self._read_ended(job)
        elif isinstance(job, Finish):
            self._finishing = False
            self.finished = self.closing
            self.left_path = job.left_path
            if job.error is not None:
                self.spill_error = job.error

    def _spill(self) -> None:
        if self._spilling or self._spill_at is not None:
            return
        keys = self.exchange.rejected()
        if not keys:
            self.spill_error = None
            return
        segments: list[tuple[SegmentKey, bytes, bytes | None]] = []
        rejects: list[tuple[SegmentKey, str]] = []
        acked: list[tuple[SegmentKey, str]] = []
        for key in keys:
            frame = self.exchange.get(key)
            assert isinstance(frame, bytes), "what is in the refill is not rejected again"
            encoder = self._encoders.get(key.shard)
            snapshot = None
            if encoder is not None and encoder.typed and self._refill_next.get(key.shard) != key.segment:
                snapshot = self.make_snapshot(key)
            self._refill_next[key.shard] = key.segment + 1
            segments.append((key, frame, snapshot))
            rejecting, through = self.exchange.claims(key)
            rejects += [(key, self._destinations[index].name) for index in rejecting]
            acked += [(key, self._destinations[index].name) for index in through]
        self._spilling = set(keys)
        self._jobs.append(Spill(segments, rejects, acked))

    def _spill_ended(self, job: Spill, now: float) -> None:
        self._spilling = set()
        self.spill_error = job.error
        for key in job.written:
            self._spilled.setdefault(key.shard, RangeSet()).add(key.segment, key.segment + 1)
        self.spilled_segments += len(job.written)
        self.exchange.written(job.written, self._policy.durability)
        if job.error is not None:
            self._refill_next.clear()
            self._spill_at = now + SPILL_AGAIN_AFTER_S

    def _note(self) -> None:
        self._note_at = None
        if self._spilled and not self._finishing:
            self._jobs.append(Note(*self._take_answers()))

    def _take_answers(self) -> tuple[list[tuple[SegmentKey, str]], list[tuple[SegmentKey, str, str, str]]]:
        acked, refused = self._acked, self._refused
        self._acked, self._refused = [], []
        return acked, refused

    def _finish_file(self) -> None:
        """Ends the file when every destination has all of it, or when the manager closes."""
        if self._spilling or self.finished:
            return
        if self.closing:
            if len(self.exchange):
                return  # something is still to be written
        elif not self._spilled or not self._all_have_the_file():
            return
        segments_next = self.segments_next if self.closing and self._make_encoder is not None else None
        self._jobs.append(Finish(*self._take_answers(), segments_next))
        self._finishing = True
        self._spilled.clear()
        self._refill_next.clear()
        self._note_at = None

    def _all_have_the_file(self) -> bool:
        return all(
            self._sender(index, shard).floor >= spilled.end
            for index in range(len(self._destinations))
            for shard, spilled in self._spilled.items()
        )

    def _read(self, destination: int, there: _Destination, key: SegmentKey, *, restore: bool) -> None:
        if key.shard in there.reading:
            return
        if there.read_bytes + len(there.reading) * READ_BYTES >= READ_AHEAD_BYTES and (
            there.read or there.reading
        ):
            there.deferred.add(key.shard)
            return
        there.reading.add(key.shard)
        self._jobs.append(Read(destination, key, READ_BYTES, restore))

    def _read_ended(self, job: Read) -> None:
        there = self._destinations[job.destination]
        shard = job.key.shard
        there.reading.discard(shard)
        sender = self._sender(job.destination, shard)
        if job.error is not None:
            self._lose([job.key], job.error)
        else:
            if job.snapshot is not None and sender.fresh:
                sender.rewind_to(_segment_of(job.snapshot))
                there.snapshots[shard] = job.snapshot
            for frame in job.frames:
                key = SegmentKey(shard, _segment_of(frame))
                if key.segment >= sender.cursor and key not in there.read:
                    there.read[key] = frame
                    there.read_bytes += len(frame)
        there.ready.setdefault(shard)

    def _lose(self, keys: Iterable[SegmentKey], error: PenstockError) -> None:
        for key in keys:
            self.lost.append(f"segment {key.segment} of shard {key.shard} cannot be sent: {error.message}")
            if key.shard in self._spilled:
                self._spilled[key.shard].discard(key.segment, key.segment + 1)

    def _take_read(self, there: _Destination, key: SegmentKey, sender: Sender) -> bytes | None:
        frame = there.read.pop(key, None)
        if frame is not None:
            begins_anew = self.schema is not None and sender.fresh and not sender.probes and key.segment > 0
            if begins_anew and key.shard not in there.snapshots:
                self._forget_read(there, key.shard, len(frame))
                return None
            there.read_bytes -= len(frame)
            if there.deferred and there.read_bytes < READ_AHEAD_BYTES // 2:
                there.ready.update(dict.fromkeys(there.deferred))
                there.deferred.clear()
        return frame

    def _forget_read(self, there: _Destination, shard: int, taken_bytes: int) -> None:
        """What was read for an earlier session is of no use to a decoder that begins anew."""
        mine = [key for key in there.read if key.shard == shard]
        there.read_bytes -= taken_bytes + sum(len(there.read.pop(key)) for key in mine)

    # --- the end ------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Nothing more is sent through here; what no destination confirmed goes to the refill."""
        self.closing = True
        if self.store is None:
            self.abandon(Closed("the producer was closed before this was confirmed"))
            self.finished = True
            return
        for index in range(len(self._destinations)):
            self._reject_all(index)

    def abandon(self, error: PenstockError) -> None:
        """Gives up what is in memory only: every promise of it hears why."""
        for there_index in range(len(self._destinations)):
            for key in self.exchange.open_at(there_index):
                self.exchange.give_up(key, _refusal(self._destinations[there_index].name, error))

    def expire(self, put_before: float, error: PenstockError) -> None:
        """Gives up what has waited in memory since before then."""
        for key, _ in self.exchange.older_than(put_before):
            self.exchange.give_up(key, _refusal(self._destinations[0].name, error))


def _refusal(destination: str, error: PenstockError) -> Fate:
    return Fate(Outcome.REJECTED, destination, error=error)


def _segment_of(frame: bytes) -> int:
    segment: int = HEADER.unpack_from(frame)[2]
    return segment
