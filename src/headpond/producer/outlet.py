"""An outlet: the way of one block to one destination. It picks the next frames, and takes the answers.

A segment is in memory (the exchange), in the refill, or gone. The decoder of a typed topic needs a snapshot
where a session, an encoder or a run of the file begins.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from headpond.model.errors import HeadpondError, from_code
from headpond.model.identity import SegmentKey
from headpond.producer.encoder import Encoder
from headpond.producer.exchange import AWAITED, Exchange
from headpond.producer.sender import InFlight, Jitter, SegmentHole, Sender, Step, fate_of
from headpond.producer.spills import Job, Read, Spills
from headpond.wire.control.codec import encode_control
from headpond.wire.control.producing import Ack, Hole
from headpond.wire.frame import HEADER
from headpond.wire.title import Predecessor

READ_BYTES: Final = 4 * 1024 * 1024
READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""How much may be read from the refill for one destination and not be sent yet."""
IN_ORDER: Final = frozenset({"gap", "snapshot", "predecessor"})
"""Refusals that only keep segments in their order."""


class DestinationState:
    """Whether a destination takes segments at present; the outlets of all blocks share it."""

    def __init__(self, name: str, window_bytes: int, spill_after_s: float) -> None:
        """``spill_after_s`` is infinite without a refill."""
        self.name = name
        self.up = False
        self.window_bytes = window_bytes
        """Bytes of a block that may be sent and not answered."""
        self.spill_at = inf
        """When it counts as ``gone``, while it is down and still waited for."""
        self.gone = spill_after_s < inf
        """Away for longer than it is waited for: segments for it go to the refill at once."""
        self.refusal: HeadpondError | None = None
        """Why it takes nothing until it is connected again."""
        self.hindrance: HeadpondError | None = None
        """Why it took nothing the last time: a refusal that can pass, such as ``disk-full``."""
        self.unopened = False
        """Whether the node is there and does not open the topic for now: ``hindrance`` says why."""
        self.takes_again = False
        """Whether it took nothing for a while and does now; the log entry about it clears this."""
        self._window_bytes_max = window_bytes
        self._spill_after_s = spill_after_s

    def connected(self, window_bytes: int | None) -> None:
        """``window_bytes`` is what the node grants."""
        self.up, self.gone, self.spill_at = True, False, inf
        self.refusal, self.unopened = None, False
        if window_bytes is not None:
            self.window_bytes = min(self._window_bytes_max, window_bytes)

    def disconnected(self, now: float) -> None:
        if self.up:
            self.spill_at = now + self._spill_after_s
        self.up = self.unopened = False

    def give_up(self) -> None:
        """It is no longer waited for."""
        self.gone, self.spill_at = True, inf


class Outlet:
    def __init__(
        self,
        index: int,
        state: DestinationState,
        block: bytes,
        exchange: Exchange,
        spills: Spills,
        encoders: dict[int, Encoder],
        make_snapshot: Callable[[SegmentKey], bytes | None],
        *,
        first: dict[int, int],
        jitter: Jitter,
        typed: bool,
    ) -> None:
        """``first`` has by shard the first segment that the destination does not have."""
        self.state = state
        self.progress_at = 0.0
        self.flight = InFlight()
        self.senders: dict[int, Sender] = {}
        self.lost_before: list[SegmentHole] = []
        """The segments of the block before this one that were declared lost."""
        self._index = index
        self._block = block
        self._exchange = exchange
        self._spills = spills
        self._encoders = encoders
        self._make_snapshot = make_snapshot
        self._first = first
        self._jitter = jitter
        self._typed = typed
        self.ready: dict[int, None] = {}
        """Shards that may have something to send, in the order of their turns."""
        self._snapshots: dict[int, bytes] = {}
        """By shard: the snapshot that is sent before the next segment."""
        self._breaks: dict[int, int] = {}
        """By shard: the segment of the file that has the next snapshot."""
        self._offered_again = False
        """Whether the whole file was offered again on this connection."""
        self._read_ahead: dict[SegmentKey, bytes] = {}
        """Frames read from the refill and not sent yet."""
        self._read_bytes = 0
        self._reading: set[int] = set()
        self._deferred: set[int] = set()
        """Shards that wait until earlier read frames are sent."""

    # --- the connection -----------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        self.progress_at = now
        self._offered_again = False
        self._read_ahead.clear()
        self._snapshots.clear()
        self._breaks.clear()
        self._read_bytes = 0
        self._deferred.clear()
        for shard in self._exchange.next:
            self.sender(shard)
        for sender in self.senders.values():
            sender.connected()
            self.ready.setdefault(sender.shard)

    def disconnected(self) -> None:
        for sender in self.senders.values():
            sender.disconnected()

    def sender(self, shard: int) -> Sender:
        sender = self.senders.get(shard)
        if sender is None:
            first = self._first.get(shard, 0)
            sender = self.senders[shard] = Sender(shard, first, self.flight, self._jitter, typed=self._typed)
            sender.up = self.state.up
        return sender

    @property
    def through(self) -> bool:
        """Whether the destination has all that was ever put, as far as it will ever have it."""
        if self.state.refusal is not None:
            return True
        return all(self.sender(shard).floor >= number for shard, number in self._exchange.next.items())

    def is_eager(self, segments_max: int) -> bool:
        """Whether a small segment would leave at once, for the destination or the refill."""
        state = self.state
        if state.refusal is not None:
            return True
        if state.gone:
            return not self._spills.writing
        return self.flight.bytes < state.window_bytes and self.flight.segments < segments_max

    # --- sending ------------------------------------------------------------------------------------------

    def take(self, bytes_max: int, now: float, jobs: list[Job]) -> list[bytes]:
        """The frames to write now, in order, shards in turn; adds jobs that read more."""
        out: list[bytes] = []
        ready, state = self.ready, self.state
        if not ready or not state.up or state.refusal is not None:
            return out
        while ready and bytes_max > 0 and self.flight.bytes < state.window_bytes:
            shard = next(iter(ready))
            del ready[shard]
            sender = self.senders.get(shard) or self.sender(shard)
            frames = self._pick(sender, now, jobs)
            if frames:
                if sender.cursor < self._exchange.next[shard]:
                    ready[shard] = None
                out += frames
                bytes_max -= len(frames[-1])
        return out

    def _pick(self, sender: Sender, now: float, jobs: list[Job]) -> list[bytes]:
        """A shard's next segment with the frames that must go before it; nothing while it has to wait."""
        while (segment := sender.wanted) is not None:
            if self._typed and not self._is_ready_for(sender, segment):
                return []
            key = SegmentKey(sender.shard, segment)
            frame = self._take_read(key, sender) if self._read_ahead else None
            found = self._exchange.get(key) if frame is None else None
            if found is AWAITED:
                return []
            if frame is None and found is None:
                nearest = self._nearest(key)
                if nearest > segment:
                    sender.cursor, sender.fresh = nearest, True
                    continue
                self._read_from(key, jobs, restore=sender.fresh and not sender.probes)
                return []
            before: list[bytes] = []
            if self._typed or sender.lacking is not None:
                before = self._before(sender, key, in_memory=found is not None)
            sent = frame if frame is not None else found
            assert isinstance(sent, bytes)
            sender.send(sent, now)
            return [*before, sent]
        return []

    def _nearest(self, key: SegmentKey) -> int:
        """The first existing segment from ``key`` on."""
        in_memory = self._exchange.next_in_memory(key)
        spilled = self._spills.first_between(key.shard, key.segment, in_memory)
        return in_memory if spilled is None else spilled

    def _is_ready_for(self, sender: Sender, segment: int) -> bool:
        """In a typed topic: whether a segment can go now, or must wait for the answers to those before it.

        A snapshot means to the node that nothing before it will come; so it goes only when all before it is
        confirmed.
        """
        encoder = self._encoders.get(sender.shard)
        begins = encoder is not None and segment == encoder.first_segment
        if segment > 0 and (begins or segment == self._breaks.get(sender.shard)):
            sender.fresh = True
        return not sender.fresh or sender.floor == segment

    def _before(self, sender: Sender, key: SegmentKey, *, in_memory: bool) -> list[bytes]:
        """The frames before a segment: a declared hole, a snapshot."""
        before: list[bytes] = []
        snapshot = self._snapshots.pop(key.shard, None)
        if in_memory and snapshot is None and sender.fresh and not sender.probes:
            snapshot = self._make_snapshot(key)
        if sender.declare(key.segment):
            before.append(encode_control(Hole(self._block, key.shard, key.segment)))
        if snapshot is not None:
            before.append(snapshot)
        return before

    # --- reading ahead ------------------------------------------------------------------------------------

    def _read_from(self, key: SegmentKey, jobs: list[Job], *, restore: bool) -> None:
        """Adds the job that reads from ``key`` on, unless one is under way or the shard has to wait."""
        if key.shard in self._reading:
            return
        ahead_bytes = self._read_bytes + len(self._reading) * READ_BYTES
        if ahead_bytes >= READ_AHEAD_BYTES and (self._read_ahead or self._reading):
            self._deferred.add(key.shard)
            return
        self._reading.add(key.shard)
        assert self._spills.store is not None, "a segment that is not in memory is in the file"
        jobs.append(Read(self._read_ended, self._spills.store, key, READ_BYTES, restore))

    def _read_ended(self, job: Read, now: float) -> None:
        """Keeps the read frames; a snapshot begins the session at its segment."""
        shard = job.key.shard
        sender = self.sender(shard)
        self._reading.discard(shard)
        self.ready.setdefault(shard)
        if job.error is not None:
            self._spills.lose(job.key, job.error)
            return
        if job.stopped_at is not None:
            self._breaks[shard] = job.stopped_at
        if job.snapshot is not None and sender.fresh:
            sender.rewind_to(_segment_of(job.snapshot))
            self._snapshots[shard] = job.snapshot
        for frame in job.frames:
            key = SegmentKey(shard, _segment_of(frame))
            if key.segment >= sender.cursor and key not in self._read_ahead:
                self._read_ahead[key] = frame
                self._read_bytes += len(frame)

    def _take_read(self, key: SegmentKey, sender: Sender) -> bytes | None:
        """The frame, if it was read ahead."""
        frame = self._read_ahead.pop(key, None)
        if frame is None:
            return None
        self._read_bytes -= len(frame)
        begins = self._typed and sender.fresh and not sender.probes and key.segment > 0
        if begins and key.shard not in self._snapshots:
            # A new decoder cannot use frames that were read for an earlier session.
            for stale in [each for each in self._read_ahead if each.shard == key.shard]:
                self._read_bytes -= len(self._read_ahead.pop(stale))
            return None
        if self._deferred and self._read_bytes < READ_AHEAD_BYTES // 2:
            self.ready.update(dict.fromkeys(self._deferred))
            self._deferred.clear()
        return frame

    # --- answers and time ---------------------------------------------------------------------------------

    def answer(self, ack: Ack, now: float) -> None:
        shard, state = ack.shard, self.state
        sender = self.senders.get(shard)
        if sender is None:
            return
        for item in ack.items:
            step = sender.answer(item, now)
            if step is Step.DONE:
                self.progress_at = now
                if state.hindrance is not None:
                    state.hindrance, state.takes_again = None, True
                key = SegmentKey(shard, item.segment)
                fate = fate_of(state.name, item, ack.durability)
                self._exchange.ack(key, self._index, fate)
                if self._spills.ranges or self._spills.writing:
                    self._spills.answered(key, fate, now)
            elif step is not Step.NOTHING:
                if item.code not in IN_ORDER:
                    state.hindrance = from_code(item.code, item.message or item.code)
                self._went_back(sender)
        if sender.cursor < self._exchange.next.get(shard, 0):
            self.ready[shard] = None

    def _went_back(self, sender: Sender) -> None:
        """Frames that were read ahead stay useful; segments of a hole that the file has are sent after all."""
        self._snapshots.pop(sender.shard, None)
        if sender.lacking is not None:
            found = self._spills.first_between(sender.shard, sender.lacking, sender.cursor)
            if found is not None:
                sender.rewind_to(found)

    def wake(self, now: float) -> list[bytes]:
        """Time has passed: the frames to write again."""
        again: list[bytes] = []
        for sender in self.senders.values():
            if sender.wake_at <= now:
                again += sender.wake(now)
                self.ready.setdefault(sender.shard)
        return again

    # --- the block before -----------------------------------------------------------------------------------

    @property
    def waits_for_predecessor(self) -> bool:
        """Whether the destination takes nothing of this block before it has the earlier one."""
        return any(sender.waits_for_predecessor for sender in self.senders.values())

    def try_again(self) -> None:
        """Segments need no longer wait for the earlier block."""
        for sender in self.senders.values():
            if sender.waits_for_predecessor:
                sender.waits_for_predecessor = False
                sender.held_until = None
                self.ready.setdefault(sender.shard)

    def declare_lost(self, block: Predecessor, *, owed: bool) -> list[bytes]:
        """The frames that declare an earlier block lost; its holes are named if it was for this destination."""
        self.try_again()
        holes = [SegmentHole(shard, 0, end) for shard, end in block.segments_next.items() if end > 0]
        if owed:
            self.lost_before += [hole for hole in holes if hole not in self.lost_before]
        return [encode_control(Hole(block.block, hole.shard, hole.end)) for hole in holes]

    def offer_again(self) -> bool:
        """The destination lost confirmed segments: whether the file has some, which are sent once more."""
        if self._offered_again or self.state.name not in self._spills.names:
            return False
        self._offered_again = True
        offered = False
        for shard, spilled in self._spills.ranges.items():
            sender = self.sender(shard)
            first = next(iter(spilled), (sender.floor, 0))[0]
            if first < sender.floor:
                sender.begin_at(first)
                self.ready.setdefault(shard)
                offered = True
        return offered


def _segment_of(frame: bytes) -> int:
    segment: int = HEADER.unpack_from(frame)[2]
    return segment
