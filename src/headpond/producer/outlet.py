"""An outlet: what a manager knows of one destination, and what it has read from the refill for it."""

from __future__ import annotations

from typing import Final

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.producer.jobs import Read
from headpond.producer.sender import Flight, SegmentHole, Sender
from headpond.wire.control.codec import encode_control
from headpond.wire.control.producing import Hole
from headpond.wire.frame import HEADER
from headpond.wire.title import Predecessor

READ_BYTES: Final = 4 * 1024 * 1024
READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""How much may be read from the refill for one destination and not be sent yet."""


class Outlet:
    def __init__(self, name: str, window_bytes: int) -> None:
        self.name = name
        self.window_bytes = window_bytes
        self.up = False
        self.away_since: float | None = None
        """Since when it is down, as far as it is waited for; None while it is up."""
        self.gone = False
        """Away for longer than it is waited for: segments for it go to the refill at once."""
        self.refusal: HeadpondError | None = None
        """Why it will take nothing of this block, ever."""
        self.hindrance: HeadpondError | None = None
        """Why it took nothing the last time: a refusal that can pass, such as ``disk-full``."""
        self.unopened = False
        """Whether the node is there and does not open the topic for now: ``hindrance`` says why."""
        self.progress_at = 0.0
        self.flight = Flight()
        self.senders: dict[int, Sender] = {}
        self.ready: dict[int, None] = {}
        """Shards that may have something to send, in the order of their turns."""
        self.snapshots: dict[int, bytes] = {}
        """By shard: what goes before the next segment."""
        self.breaks: dict[int, int] = {}
        """By shard: the segment of the file where the next snapshot stands."""
        self.offered_again = False
        """Whether the whole file was offered again on this connection."""
        self.lost_before: list[SegmentHole] = []
        """What was declared lost of the block before this one."""
        self._read: dict[SegmentKey, bytes] = {}
        """Frames read from the refill and not sent yet."""
        self._read_bytes = 0
        self._reading: set[int] = set()
        self._deferred: set[int] = set()
        """Shards that wait until what was read before is sent."""

    def connected(self, now: float, window_bytes: int) -> None:
        self.up, self.gone, self.away_since, self.progress_at = True, False, None, now
        self.refusal, self.offered_again, self.unopened = None, False, False
        self.window_bytes = window_bytes
        self._read.clear()
        self.snapshots.clear()
        self.breaks.clear()
        self._read_bytes = 0
        self._deferred.clear()

    @property
    def has_room(self) -> bool:
        return self.flight.bytes < self.window_bytes

    @property
    def waits_for_predecessor(self) -> bool:
        return any(sender.waits_for_predecessor for sender in self.senders.values())

    def try_again(self) -> None:
        """What waited for the earlier block need not any more."""
        for sender in self.senders.values():
            if sender.waits_for_predecessor:
                sender.waits_for_predecessor = False
                sender.held_until = None
                self.ready.setdefault(sender.shard)

    def declare_lost(self, block: Predecessor, *, owed: bool) -> list[bytes]:
        """What says that nothing of an earlier block will come; it is named if it was ever for this one."""
        self.try_again()
        holes = [SegmentHole(shard, 0, end) for shard, end in block.segments_next.items() if end > 0]
        if owed:
            self.lost_before += [hole for hole in holes if hole not in self.lost_before]
        return [encode_control(Hole(block.block, hole.shard, hole.end)) for hole in holes]

    # --- reading ahead --------------------------------------------------------------------------------

    def want(self, destination: int, key: SegmentKey, *, restore: bool) -> Read | None:
        """The job that reads from ``key`` on; None while that is under way, or has to wait its turn."""
        if key.shard in self._reading:
            return None
        ahead_bytes = self._read_bytes + len(self._reading) * READ_BYTES
        if ahead_bytes >= READ_AHEAD_BYTES and (self._read or self._reading):
            self._deferred.add(key.shard)
            return None
        self._reading.add(key.shard)
        return Read(destination, key, READ_BYTES, restore)

    def read_ended(self, job: Read, sender: Sender) -> None:
        """Keeps what was read; a snapshot begins the session where it stands."""
        shard = job.key.shard
        self._reading.discard(shard)
        self.ready.setdefault(shard)
        if job.error is not None:
            return
        if job.stopped_at is not None:
            self.breaks[shard] = job.stopped_at
        if job.snapshot is not None and sender.fresh:
            sender.rewind_to(_segment_of(job.snapshot))
            self.snapshots[shard] = job.snapshot
        for frame in job.frames:
            key = SegmentKey(shard, _segment_of(frame))
            if key.segment >= sender.cursor and key not in self._read:
                self._read[key] = frame
                self._read_bytes += len(frame)

    def take_read(self, key: SegmentKey, sender: Sender, *, typed: bool) -> bytes | None:
        """The frame, if it was read ahead."""
        frame = self._read.pop(key, None)
        if frame is None:
            return None
        begins_anew = typed and sender.fresh and not sender.probes and key.segment > 0
        if begins_anew and key.shard not in self.snapshots:
            self._forget(key.shard, len(frame))
            return None
        self._read_bytes -= len(frame)
        if self._deferred and self._read_bytes < READ_AHEAD_BYTES // 2:
            self.ready.update(dict.fromkeys(self._deferred))
            self._deferred.clear()
        return frame

    def _forget(self, shard: int, taken_bytes: int) -> None:
        """What was read for an earlier session is of no use to a decoder that begins anew."""
        mine = [key for key in self._read if key.shard == shard]
        self._read_bytes -= taken_bytes + sum(len(self._read.pop(key)) for key in mine)


def _segment_of(frame: bytes) -> int:
    segment: int = HEADER.unpack_from(frame)[2]
    return segment
