"""The refill: a file that keeps the segments of one block which a destination did not take.

One file is one block. The first write makes it; opening a file changes nothing in it. Synchronous, over a
``Disk``, used by one thread at a time. Bytes: ``form``.

**Whether a block may be continued** (the transport document's list):

- 1 ``create`` and ``open`` take the destinations.
- 2.1 Without a file, the destinations have no segment.
- 2.2 With a file, its destinations are read from it.
- 2.2.1 If they differ from the given ones, the block is not continuable.
- 2.2.2 The acknowledgements are those of the file's destinations.
- 2.2.3 They are read from the last STATUS.
- 2.2.4 All unconfirmed segments must be in the file, up to the next segment of every shard.

One rule is added: the file must end with a synced STATUS with CLOSED, because segments that were sent from
memory and never reached the file have used their numbers too. ``resume`` consumes it before the first send.

**Faults.** A failed write is cut off again, and a failed sync cuts off everything since the last one. Both
raise a ``HeadpondError``, and the same call may succeed later. Every frame is checked when it is written and
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headpond.model.errors import BadRequest, Conflict, RefillFull, UnknownSegment, UnknownShard
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.producer.refill.claims import CODE_DAMAGED, Claims, Floors
from headpond.producer.refill.file import RefillFile
from headpond.producer.refill.form import (
    HEAD_BYTES,
    NOTE_RUNS_MAX,
    Rejection,
    Status,
    encode_head,
    encode_rejections,
    encode_status,
    read_note,
    rows_of,
    runs_of,
)
from headpond.producer.refill.index import SEGMENTS_MAX, FrameSpan
from headpond.producer.refill.scan import CHECKSUM, UNDECODABLE, Damage, RefillImage, scan_refill
from headpond.storage.disk import Disk
from headpond.wire.frame import HEADER_BYTES, FrameType
from headpond.wire.title import Title

_NOTHING = RangeSet()


class DestinationTally(NamedTuple):
    """Segments of one destination."""

    pending: int
    acked: int
    refused: int
    lost: int
    """Neither confirmed nor refused, and no longer readable."""


class Refill:
    """Made with ``Refill.create`` or ``Refill.open``."""

    def __init__(
        self,
        file: RefillFile,
        image: RefillImage,
        *,
        is_new: bool,
        destinations: Sequence[str] | None = None,
    ) -> None:
        self.block = image.block
        self.title = image.title
        self.claims = image.claims
        self.index = image.index
        self.shard_power = image.shard_power
        """None: the rows have no shard yet."""
        self.closed = image.closed
        self.torn_bytes = image.torn_bytes
        self.damage = image.damage
        self.lost = image.lost
        self.unnamed = image.unnamed
        self._file = file
        self._seen_next = image.seen_next
        self._writable = is_new
        """Whether segments may be written: the block is new or was resumed."""
        self._floors = image.floors
        """The floors in the last STATUS of the file; None if they have to be written."""
        self._late = image.late
        """By shard: segments written since."""
        self._written: dict[int, RangeSet] = {}
        """By shard: segments written since any STATUS, also one that only marks synced bytes."""
        self.why_not_continuable = "" if is_new else self._why_not(destinations)

    @classmethod
    def create(
        cls,
        disk: Disk,
        path: str,
        *,
        block: bytes,
        shard_power: int | None,
        title: Title,
        destinations: Sequence[str],
        durability: str = "sync",
    ) -> Refill:
        """A refill of a new block (rules 1, 2.1). Nothing is on the disk before the first write."""
        if not destinations or len(set(destinations)) != len(destinations):
            raise BadRequest("a refill needs destinations, each named once")
        file = RefillFile.create(disk, path, encode_head(block, shard_power, title, destinations), durability)
        image = RefillImage(block, shard_power, title, Claims(tuple(destinations)))
        return cls(file, image, is_new=True)

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        destinations: Sequence[str] | None = None,
        *,
        durability: str = "sync",
    ) -> Refill:
        """A file that exists (rules 2.2 to 2.2.4). Without destinations those of the file are right.

        It only reads. ``BadData`` for a file that is no refill or has lost its beginning.
        """
        file = RefillFile.open(disk, path, durability)
        try:
            image = scan_refill(file.salvaged(), note=read_note(disk, path))
            file.found(image.end, image.proven_bytes)
        except BaseException:
            file.release()
            raise
        return cls(file, image, is_new=False, destinations=destinations)

    def _why_not(self, destinations: Sequence[str] | None) -> str:
        if destinations is not None and set(destinations) != set(self.destinations):
            return f"it is for {', '.join(self.destinations)}, not for {', '.join(destinations)}"
        if self.closed is None:
            return "it was not closed in good order, so segments may have been sent that are not in it"
        if self.unnamed:
            return "it is damaged, and it is not known which segments it lost"
        for shard, seen in self._seen_next.items():
            if seen > self.closed.get(shard, 0):
                return f"it continues shard {shard} before segment {seen:,}, which was used"
        for shard, segments_end in self.closed.items():
            for destination in self.destinations:
                for first, end in self._gaps(destination, shard, segments_end):
                    which = f"segments {first:,} to {end - 1:,} of shard {shard}"
                    return f"{which} are neither in it nor confirmed by {destination}"
        return ""

    def _gaps(self, destination: str, shard: int, segments_end: int) -> Iterable[tuple[int, int]]:
        """Segments behind the last confirmed one that a destination lacks and the file cannot give."""
        claim = self.claims.of(destination, shard)
        floor = claim.floor(self._standing(shard))
        for first, end in claim.settled.missing(floor, segments_end):
            yield from self._sendable(shard).missing(first, end)

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def continuable(self) -> bool:
        return not self.why_not_continuable

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def destinations(self) -> tuple[str, ...]:
        return self.claims.destinations

    @property
    def typed(self) -> bool:
        return self.title.schema is not None

    @property
    def durability(self) -> str:
        return self._file.durability

    @property
    def size_bytes(self) -> int:
        """How long the file is; 0 before the first write."""
        return self._file.end

    @property
    def segments_next(self) -> dict[int, int]:
        """Those of CLOSED; else by shard one past the highest segment in the file or its statuses."""
        if self.closed is not None:
            return dict(self.closed)
        found = dict(self._seen_next)
        for shard, end in self.claims.seen_next.items():
            found[shard] = max(found.get(shard, 0), end)
        return {shard: end for shard, end in sorted(found.items()) if end}

    # --- writing ------------------------------------------------------------------------------------

    def write_snapshot(self, shard: int, frame: bytes) -> None:
        """Appends a SNAPSHOT frame; its header says at which segment it stands."""
        self._check_writable()
        segment = self._file.check_frame(frame, FrameType.SNAPSHOT, shard, None)
        offset = self._append([frame])
        self.index.add_snapshot(SegmentKey(shard, segment), FrameSpan(offset, len(frame)))

    def write_segment(self, key: SegmentKey, frame: bytes) -> None:
        """Appends a SEGMENT frame. One that is there already is not written again.

        In a typed topic ``UnknownShard`` unless the segment before it or a snapshot at it is in the file.
        """
        self._check_writable()
        self._file.check_frame(frame, FrameType.SEGMENT, *key)
        name = f"segment {key.segment:,} of shard {key.shard}"
        present = self._present(key)
        if present is not None:
            if present != frame:
                raise Conflict(f"{name} is in {self.path} with other content")
            return
        if self.typed and not self._is_ready_for(key):
            raise UnknownShard(f"{self.path} has nothing that leads to {name}")
        if self.index.count >= SEGMENTS_MAX:
            raise RefillFull(f"{self.path} holds {self.index.count:,} segments, as many as it may")
        offset = self._append([frame])
        self.index.add(
            key, FrameSpan(offset, len(frame)), rows_of(frame[HEADER_BYTES : HEADER_BYTES + HEAD_BYTES])
        )
        for ranges in (self._late, self._written):
            ranges.setdefault(key.shard, RangeSet()).add(key.segment, key.segment + 1)
        if key.shard in self.lost:
            self.lost[key.shard].discard(key.segment, key.segment + 1)
        self._seen_next[key.shard] = max(self._seen_next.get(key.shard, 0), key.segment + 1)

    def _present(self, key: SegmentKey) -> bytes | None:
        """The segment as it stands in the file, if it does and can be read."""
        if self.index.place(key) is None:
            return None
        try:
            return self.get(key)
        except UnknownSegment:
            return None

    def _is_ready_for(self, key: SegmentKey) -> bool:
        return key.segment - 1 in self._sendable(key.shard) or key.segment in self.index.snapshots(key.shard)

    def write_statuses(self) -> bool:
        """Writes new rejections and confirmations to the file, if it exists; whether anything was written.

        This consumes a CLOSED that was not resumed.
        """
        if not self._file.exists:
            return False
        self._pass_over_lost()
        rejections = self.claims.unwritten()
        floors = self.claims.floors(self._standing)
        is_new = floors != self._floors or self._covers_late(floors)
        if not rejections and not is_new:
            return False
        parts = list(encode_rejections(rejections))
        if is_new:
            parts.append(self._status(parts, confirmed=floors))
        self._append(parts)
        self.claims.mark_written()
        if is_new:
            self._wrote(floors)
        return True

    def _wrote(self, floors: Floors) -> None:
        self._floors, self._late, self._written = floors, {}, {}

    def _covers_late(self, floors: Floors) -> bool:
        """Whether a segment after the last STATUS is confirmed somewhere, so that a new one is needed."""
        return any(
            first < known.get(shard, 0)
            for shard, ranges in self._late.items()
            for first, _ in ranges
            for known in floors.values()
        )

    def _status(
        self, before: list[bytes], *, confirmed: Floors | None = None, closed: dict[int, int] | None = None
    ) -> bytes:
        """A STATUS for the end of the file, after ``before``."""
        self._file.make()
        place = self._file.end + sum(map(len, before))
        total = self._segments_total
        return encode_status(
            Status(self._file.synced_bytes, runs_of(self._written), total, confirmed, closed), place
        )

    @property
    def _segments_total(self) -> int:
        """The number of all written segments, including lost ones."""
        gone = sum(self.index.missing_of(shard, lost) for shard, lost in self.lost.items())
        return self.index.count + gone + self.unnamed

    def sync(self) -> None:
        """Returns when all that was written is durable; with durability ``os``, in the system's hands."""
        if self._file.dirty:
            self._sync(forced=False)

    def _sync(self, *, forced: bool) -> None:
        self._flush(forced=forced)
        self._file.write_mark(lambda: self._status([]))
        self._written = {}
        self._write_note()

    def _write_note(self) -> None:
        """Notes the synced segments beside the file, in case its end is lost."""
        held = {shard: self.index.held(shard).copy() for shard in self.index.shards}
        for shard, lost in self.lost.items():
            for run in lost:
                held.setdefault(shard, RangeSet()).add(*run)
        runs = runs_of(held)
        note = Status(
            self._file.synced_bytes,
            runs if len(runs) <= NOTE_RUNS_MAX else [],
            self._segments_total,
            self.claims.floors(self._standing),
        )
        self._file.write_note(encode_status(note, self._file.synced_bytes))

    def _flush(self, *, forced: bool) -> None:
        try:
            self._file.flush(forced=forced)
        except BaseException:
            self._forget_tail()
            raise

    def _forget_tail(self) -> None:
        """All since the last sync is gone from the file."""
        self.index.cut(self._file.end)
        self.claims.mark_unwritten()
        self._floors, self._late, self._written = None, {}, {}

    def roll_back(self) -> None:
        """Forgets all since the last sync; even a power cut does not bring it back."""
        if self._file.exists:
            try:
                self._file.roll_back()
            finally:
                self._forget_tail()

    def resume(self) -> None:
        """Continues the block: consumes CLOSED, synced, before anything is sent under a new number."""
        if not self.continuable or self.closed is None:
            why = self.why_not_continuable or "it is open already"
            raise BadRequest(f"the block of {self.path} cannot be continued: {why}")
        floors = self.claims.floors(self._standing)
        used = self.closed
        self._append([self._status([], confirmed=floors)])
        self._seen_next = {**self._seen_next, **used}
        self._wrote(floors)
        self._sync(forced=True)
        self._writable = True

    def close(self, segments_next: dict[int, int] | None) -> None:
        """Writes all new statuses, synced, and closes the file.

        With ``segments_next`` it ends with CLOSED, so that the block may be continued there.
        """
        if self._file.released:
            return
        try:
            if segments_next is None:
                self.write_statuses()
                if self._file.dirty:
                    self._sync(forced=True)
            elif segments_next != self.closed or self._has_news():
                self._close_at(dict(segments_next))
        finally:
            self._file.release()

    def _close_at(self, segments_next: dict[int, int]) -> None:
        for shard, seen in self.segments_next.items():
            if segments_next.get(shard, 0) < seen:
                raise BadRequest(f"shard {shard} cannot continue before segment {seen:,}, which was used")
        self._file.make()
        self.write_statuses()
        # Synced twice: a readable CLOSED proves that all before it is on the disk.
        self._flush(forced=True)
        self._append([self._status([], closed=segments_next)])
        self._flush(forced=True)
        self.closed = segments_next
        self._write_note()

    def _has_news(self) -> bool:
        self._pass_over_lost()
        return bool(self.claims.unwritten()) or self.claims.floors(self._standing) != self._floors

    def release(self) -> None:
        """Closes the file as it is; nothing is written."""
        self._file.release()

    def remove(self, *, force: bool = False) -> None:
        """Deletes the file: only when ``done()``, or if that is forced."""
        if not force and not self.done():
            raise BadRequest(
                f"{self.path} holds segments that are not delivered", hint="Send or drop them first."
            )
        self._file.remove()

    def _append(self, parts: list[bytes]) -> int:
        offset = self._file.append(parts)
        self.closed = None
        return offset

    def _check_writable(self) -> None:
        if not self._writable:
            raise BadRequest(f"the block of {self.path} is not continued, so nothing is added to it")

    # --- reading ------------------------------------------------------------------------------------

    def get(self, key: SegmentKey) -> bytes:
        """The whole SEGMENT frame; ``UnknownSegment`` if the file does not have it or lost it."""
        return self.read(key, 0)[0]

    def read(self, key: SegmentKey, bytes_max: int) -> list[bytes]:
        """Frames that follow one another from ``key`` on, up to so many bytes, at least one."""
        wanted = list(self.index.run(key, bytes_max))
        if not wanted:
            verb = "lost" if key.segment in self.lost.get(key.shard, _NOTHING) else "does not have"
            raise UnknownSegment(f"{self.path} {verb} segment {key.segment:,} of shard {key.shard}")
        frames = self._file.read_frames([(FrameType.SEGMENT, *each) for each in wanted])
        if len(frames) < len(wanted):
            self._lose(*wanted[len(frames)])
        if not frames:
            raise UnknownSegment(f"segment {key.segment:,} of shard {key.shard} in {self.path} is damaged")
        return frames

    def restore_from(self, key: SegmentKey) -> tuple[bytes | None, int]:
        """What makes a decoder ready for ``key``: a SNAPSHOT frame, and the segments from this number on.

        A plain topic needs neither. ``UnknownShard`` if the file cannot.
        """
        if not self.typed:
            return None, key.segment
        gaps = self.index.held(key.shard).missing(0, key.segment)
        lowest = gaps[-1][1] if gaps else 0
        while (found := self.index.snapshot_before(key)) is not None and found[0] >= lowest:
            segment, place = found
            at = SegmentKey(key.shard, segment)
            frames = self._file.read_frames([(FrameType.SNAPSHOT, at, place)])
            if frames:
                return frames[0], segment
            self.index.remove_snapshot(at)
            self.damage.append(Damage(place.offset, place.end, f"{CHECKSUM} (a snapshot)"))
            self._lose_undecodable(key.shard)
        raise UnknownShard(
            f"{self.path} has no snapshot that leads to segment {key.segment:,} of shard {key.shard}"
        )

    def _lose(self, key: SegmentKey, place: FrameSpan) -> None:
        """A segment was good when it was written or the file was opened, and is bad now."""
        self.index.remove(key)
        run = (key.shard, key.segment, key.segment + 1)
        self.lost.setdefault(key.shard, RangeSet()).add(*run[1:])
        self.damage.append(Damage(place.offset, place.end, CHECKSUM, *run))
        if self.typed:
            self._lose_undecodable(key.shard)

    def _lose_undecodable(self, shard: int) -> None:
        lost = self.lost.setdefault(shard, RangeSet())
        for first, end in self.index.undecodable(shard):
            for run in lost.missing(first, end):
                place = self.index.place(SegmentKey(shard, run[0]))
                assert place is not None, "an undecodable segment is in the index"
                self.damage.append(Damage(place.offset, place.end, UNDECODABLE, shard, *run))
                lost.add(*run)

    # --- destinations -------------------------------------------------------------------------------

    def ack(self, key: SegmentKey, destination: str) -> None:
        """A destination has it. The next ``write_statuses`` writes that."""
        self._check_destination(destination)
        self.claims.ack(key, destination)

    def reject(self, key: SegmentKey, destination: str, code: str = "", message: str = "") -> None:
        """A destination did not take it: without a code it is to be sent again, with one never."""
        self._check_destination(destination)
        if code:
            run = (key.shard, key.segment, key.segment + 1)
            self.claims.refuse(Rejection(destination, *run, code, message))
        else:
            self.claims.reject(key, destination)

    def refuse_pending(self, destination: str, code: str, message: str = "") -> None:
        """Refuses for good, in a destination's name, all that it does not have, including lost segments."""
        self._check_destination(destination)
        self._refuse(destination, self._standing, code, message)

    def _pass_over_lost(self) -> None:
        """Refuses lost segments in the name of all destinations that do not have them: code ``damaged``."""
        for destination in self.destinations:
            self._refuse(destination, self._lost_of, CODE_DAMAGED, "it can no longer be read")

    def _refuse(self, destination: str, which: Callable[[int], RangeSet], code: str, message: str) -> None:
        for shard in self._shards():
            for first, end in which(shard):
                claim = self.claims.of(destination, shard)
                for run in (*claim.settled.missing(first, end), *claim.damaged.overlap(first, end)):
                    self.claims.refuse(Rejection(destination, shard, *run, code, message))

    def pending_runs(self, destination: str) -> list[tuple[int, int, int]]:
        """The readable segments to send to a destination, rejected or unconfirmed, as (shard, first, end)."""
        self._check_destination(destination)
        return [
            (shard, *run)
            for shard in self.index.shards
            for first, end in self._sendable(shard)
            for run in self.claims.of(destination, shard).settled.missing(first, end)
        ]

    def tally(self, destination: str) -> DestinationTally:
        """The numbers of segments that a destination lacks, has, refused, and can no longer get."""
        self._check_destination(destination)
        acked = refused = lost = 0
        for shard in self._shards():
            claim = self.claims.of(destination, shard)
            for first, end in self._standing(shard):
                gone = _length(claim.refused.overlap(first, end))
                damaged = _length(claim.damaged.overlap(first, end))
                acked += _length(claim.settled.overlap(first, end)) - gone
                refused, lost = refused + gone - damaged, lost + damaged
            lost += sum(_length(claim.settled.missing(*run)) for run in self._lost_of(shard))
        pending = sum(end - first for _, first, end in self.pending_runs(destination))
        return DestinationTally(pending, acked, refused, lost)

    @property
    def undelivered(self) -> int:
        """Segments that some destination has neither confirmed nor refused for good, readable or not."""
        count = self.unnamed
        for shard in self._shards():
            claims = [self.claims.of(destination, shard) for destination in self.destinations]
            owed = RangeSet(
                run
                for claim in claims
                for standing in self._standing(shard)
                for run in (*claim.settled.missing(*standing), *claim.damaged.overlap(*standing))
            )
            count += owed.count
        return count

    def done(self) -> bool:
        """Whether every destination confirmed or finally refused all segments that were ever in the file.

        A file that lost a segment which a destination does not have is never done.
        """
        return self.undelivered == 0

    def _shards(self) -> list[int]:
        return sorted({*self.index.shards, *self.lost})

    def _lost_of(self, shard: int) -> RangeSet:
        return self.lost.get(shard, _NOTHING)

    def _standing(self, shard: int) -> RangeSet:
        """All written segments, readable or not."""
        held, lost = self.index.held(shard), self._lost_of(shard)
        if not lost:
            return held
        both = held.copy()
        for run in lost:
            both.add(*run)
        return both

    def _sendable(self, shard: int) -> RangeSet:
        held, lost = self.index.held(shard), self._lost_of(shard)
        if not lost:
            return held
        left = held.copy()
        for run in lost:
            left.discard(*run)
        return left

    def _check_destination(self, destination: str) -> None:
        if destination not in self.claims:
            known = ", ".join(self.destinations)
            raise BadRequest(f"{destination} is no destination of {self.path}", hint=f"It has {known}.")


def _length(runs: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in runs)
