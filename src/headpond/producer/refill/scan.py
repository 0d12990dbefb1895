"""Reads a refill file through: its content, torn writes, damage.

The rule is that of every frame file (storage/recovery), with the refill's own STATUS:

1. Bad bytes before valid frames are damage. The frames after them count, and the lost segments are named
(``losses``). 2. Bad bytes with nothing valid after them are a torn tail. So are bytes that look torn (a sector
kept its zeros) and all after them, unless a STATUS there says that they were synced: nobody relied on them. But
where the note beside the file has segments that are missing, the end of the file was cut off or is damaged.
3. Bytes that the disk itself cannot read are damage wherever they are.
4. A frame after bad bytes counts if the frames from it on lead to a STATUS that names its own place, or if they
   lead to none and the bad frame ends there: a refill file inside a message is not taken for this one.
5. In a typed topic a segment needs the one before it or a snapshot at it. A segment without either is lost too,
   though its bytes are good.

**The lost segments** are named as exactly as the rest of the file allows. A STATUS lists the segments written
before it and their total number, so after bad bytes the next STATUS names the lost ones. Where that STATUS is
bad itself, the headers of the bad frames may still name them; lost segments without a name are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headpond.model.errors import BadData, BadFrame
from headpond.model.identity import SHARD_POWER_MAX, SegmentKey
from headpond.model.ranges import RangeSet
from headpond.producer.refill.claims import Claims, Floors
from headpond.producer.refill.form import (
    PLACE_MASK,
    TYPES,
    Destinations,
    Rejection,
    Rejections,
    Status,
    decode_body,
    decode_refill_title,
    rows_of,
)
from headpond.producer.refill.index import SEGMENTS_MAX, FrameSpan, RefillIndex
from headpond.storage.disk import SALVAGE_BYTES, SalvagedFile
from headpond.storage.frame_file import Bad, Found, looks_torn, read_frame, scan
from headpond.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, Frame, FrameType
from headpond.wire.title import Title


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``offset <= n < end`` of the file, and the segments that are lost because of them."""

    offset: int
    end: int
    why: str
    shard: int | None = None
    """None where no segment is lost, or the lost ones are not known."""
    first: int = 0
    segments_end: int = 0
    """The segments ``first <= n < segments_end`` of the shard."""
    unnamed: int = 0
    """The number of lost segments whose numbers are not known."""

    @property
    def lost(self) -> str:
        """The lost segments, for a person."""
        if self.shard is not None:
            last = self.segments_end - 1
            which = f"segment {last:,}" if last == self.first else f"segments {self.first:,}–{last:,}"
            return f"{which} of shard {self.shard}"
        if self.unnamed:
            return f"{self.unnamed:,} segment{'s' if self.unnamed > 1 else ''} of unknown number"
        return "no segment"

    def __str__(self) -> str:
        return f"bytes {self.offset:,}–{max(self.offset, self.end - 1):,}: {self.why}; lost: {self.lost}"


CHECKSUM: Final = "the checksum fails"
UNREADABLE: Final = "the disk cannot read them"
CUT_SHORT: Final = "the file was cut short"
UNDECODABLE: Final = "the snapshot or the segments before them are gone, so they cannot be decoded"
_ABSENT: Final = "segments that should stand before this are not there"

Run = tuple[int, int, int]
"""Shard, first segment, one past the last."""


@dataclass
class UnreadBytes:
    """Bad bytes whose lost segments are not known yet."""

    bad: Bad
    why: str
    lost: dict[int, RangeSet] = field(default_factory=dict)


class Losses:
    def __init__(self, file: SalvagedFile, index: RefillIndex) -> None:
        self.lost: dict[int, RangeSet] = {}
        self.unnamed = 0
        self.damage: list[Damage] = []
        self.holes: list[UnreadBytes] = []
        """Since the last STATUS."""
        self.shards: int | None = None
        """The number of shards, once it is known."""
        self._file = file
        self._index = index
        self._count = 0

    def hidden(self, bad: Bad) -> bool:
        """Whether the disk could not read some of these bytes."""
        return bool(self._file.unreadable.overlap(bad.offset, bad.end))

    def add(self, bad: Bad, why: str = "") -> None:
        self.holes.append(UnreadBytes(bad, why or (UNREADABLE if self.hidden(bad) else CHECKSUM)))

    def lacks(self, note: Status) -> bool:
        """Whether a note has segments that are neither in the file nor known to be lost."""
        if note.segments_total > self._index.count + self._count + self.unnamed:
            return True
        return any(
            self.lost.get(shard, RangeSet()).missing(*run)
            for shard, first, end in note.written
            for run in self._index.held(shard).missing(first, end)
        )

    def account(self, status: Status, place: int) -> list[Run]:
        """The runs that a STATUS at ``place`` lists and that were not found: they are lost."""
        missing = [
            (shard, *run)
            for shard, first, end in status.written
            for run in self._index.held(shard).missing(first, end)
        ]
        if self.unnamed and sum(end - first for _, first, end in status.written) == status.segments_total:
            self.holes = self._unnamed_holes() + self.holes  # it lists all, also those that had no name
        if not self.holes and not missing:
            return []
        holes = self.holes or [UnreadBytes(Bad(place, place), _ABSENT)]
        self.holes = []
        lost = [run for each in missing for run in self._lose(holes, *each)]
        unnamed = status.segments_total - self._index.count - self._count - self.unnamed
        for hole in holes:
            for type_, key in self._claimed(hole.bad):
                if unnamed > 0 and type_ == FrameType.SEGMENT and self._is_new(key):
                    lost += self._lose([hole], key.shard, key.segment, key.segment + 1)
                    unnamed -= 1
        self._report(holes, max(0, unnamed))
        return lost

    def _unnamed_holes(self) -> list[UnreadBytes]:
        """Takes back the damage whose lost segments had no name."""
        taken = [each for each in self.damage if each.unnamed]
        self.damage = [each for each in self.damage if not each.unnamed]
        self.unnamed = 0
        return [UnreadBytes(Bad(each.offset, each.end), each.why) for each in taken]

    def account_rest(self) -> list[Run]:
        """Holes after the last STATUS: only their headers name their segments."""
        lost: list[Run] = []
        for hole in self.holes:
            claimed = list(self._claimed(hole.bad))
            for type_, key in claimed:
                if type_ == FrameType.SEGMENT and self._is_new(key):
                    lost += self._lose([hole], key.shard, key.segment, key.segment + 1)
            self._report([hole], 0 if claimed else 1)
        self.holes = []
        return lost

    def lose_undecodable(self) -> None:
        """In a typed topic, segments that can be read and not decoded are lost as well."""
        for shard in self._index.shards:
            for first, end in self._index.undecodable(shard):
                self.lost.setdefault(shard, RangeSet()).add(first, end)
                place = self._index.place(SegmentKey(shard, first))
                assert place is not None, "an undecodable segment is in the index"
                self.damage.append(Damage(place.offset, place.end, UNDECODABLE, shard, first, end))

    def _lose(self, holes: list[UnreadBytes], shard: int, first: int, end: int) -> list[Run]:
        """Counts segments as lost, in the hole whose headers name them, else in the first."""
        lost = self.lost.setdefault(shard, RangeSet())
        fresh = lost.missing(first, end)
        for start, stop in fresh:
            lost.add(start, stop)
            self._count += stop - start
            holes[0].lost.setdefault(shard, RangeSet()).add(start, stop)
        for hole in holes[1:]:
            for type_, key in self._claimed(hole.bad):
                at = (key.segment, key.segment + 1)
                if type_ == FrameType.SEGMENT and key.shard == shard and key.segment in holes[0].lost[shard]:
                    holes[0].lost[shard].discard(*at)
                    hole.lost.setdefault(shard, RangeSet()).add(*at)
        return [(shard, start, stop) for start, stop in fresh]

    def _is_new(self, key: SegmentKey) -> bool:
        known = (self._index.held(key.shard), self.lost.get(key.shard, RangeSet()))
        return not any(key.segment in ranges for ranges in known)

    def _claimed(self, bad: Bad) -> Iterator[tuple[int, SegmentKey]]:
        """The frames named by the headers in bad bytes, as long as each leads to the next."""
        at = bad.offset
        while at + OVERHEAD_BYTES <= bad.end:
            header = self._file.read_at(at, HEADER_BYTES)
            if len(header) < HEADER_BYTES:  # the file was cut off
                return
            type_, shard, segment, size = HEADER.unpack(header)
            at += OVERHEAD_BYTES + size
            if type_ not in TYPES or at > bad.end or (self.shards is not None and shard >= self.shards):
                return
            yield type_, SegmentKey(shard, segment)

    def _report(self, holes: list[UnreadBytes], unnamed: int) -> None:
        self.unnamed += unnamed
        for hole in holes:
            bad = hole.bad
            runs = [(shard, *run) for shard, ranges in sorted(hole.lost.items()) for run in ranges]
            self.damage += [Damage(bad.offset, bad.end, hole.why, *run) for run in runs]
            if not runs or (unnamed and hole is holes[-1]):
                self.damage.append(Damage(bad.offset, bad.end, hole.why, unnamed=unnamed))
                unnamed = 0


_BULKY: Final = frozenset({FrameType.SEGMENT, FrameType.SNAPSHOT})


@dataclass
class RefillImage:
    """The content of a file."""

    block: bytes
    shard_power: int | None
    """None: the rows have no shard yet."""
    title: Title
    claims: Claims
    index: RefillIndex = field(default_factory=RefillIndex)
    floors: Floors | None = None
    """Of the last STATUS that has them."""
    late: dict[int, RangeSet] = field(default_factory=dict)
    """By shard: segments after that STATUS."""
    lost: dict[int, RangeSet] = field(default_factory=dict)
    """By shard: segments of the file that can no longer be delivered."""
    unnamed: int = 0
    """Further lost segments, whose numbers are not known."""
    damage: list[Damage] = field(default_factory=list)
    """The bytes that cannot be read, and the segments that were lost with them."""
    closed: dict[int, int] | None = None
    """The CLOSED status if it ends the file: the next segment of every shard."""
    seen_next: dict[int, int] = field(default_factory=dict)
    """By shard: one past the highest segment that a frame names."""
    end: int = 0
    """Where the next frame goes; nothing after it counts."""
    torn_bytes: int = 0
    """Bytes at the file's end of a write that was never finished; nothing of it counts."""
    proven_bytes: int = 0
    """Up to here a STATUS says that all was synced; ``end`` if only a STATUS follows."""


class _Note(NamedTuple):
    """A valid frame without the bytes of its segment or snapshot, because a torn tail may hold many."""

    type: int
    shard: int
    segment: int
    offset: int
    end: int
    rows: int
    body: bytes


def scan_refill(
    file: SalvagedFile, on_frame: Callable[[Found], None] | None = None, *, note: Status | None = None
) -> RefillImage:
    """Reads all of it; calls ``on_frame`` for every valid frame. ``BadData`` for a file that is no refill.

    ``note`` is the note of its last sync beside the file.
    """
    return _Scan(file, on_frame, note).run()


class _Scan:
    def __init__(
        self, file: SalvagedFile, on_frame: Callable[[Found], None] | None, note: Status | None
    ) -> None:
        self._file = file
        self._note = note
        self._size = file.size()
        self._on_frame = on_frame
        self._head: tuple[bytes, int | None, Title] | None = None
        self._names: tuple[str, ...] = ()
        self._index = RefillIndex()
        self._losses = Losses(file, self._index)
        self._floors: Floors | None = None
        self._late: dict[int, RangeSet] = {}
        self._open: dict[tuple[str, int], RangeSet] = {}
        self._refusals: list[Rejection] = []
        self._closed: dict[int, int] | None = None
        self._seen_next: dict[int, int] = {}
        self._synced_bytes = 0
        self._end = 0
        """Where the last frame that counts ends."""
        self._stored_end = 0
        """Where the last counting frame that is no STATUS ends."""
        self._at = 0
        """Where the last item ends, whether it counts or not."""
        self._damaged_to = 0
        """The next write keeps out of damage at the end, up to here."""
        self._torn: list[_Note | Bad] = []
        """From bytes that look torn on: they count only if a STATUS among them says so."""

    def run(self) -> RefillImage:
        for item in scan(self._file, accept=self._belongs):
            if isinstance(item, Bad):
                self._take_bad(item)
            else:
                if self._on_frame is not None:
                    self._on_frame(item)
                self._take_found(item)
            self._at = item.end
        return self._finish()

    # --- what counts --------------------------------------------------------------------------------

    def _take_bad(self, bad: Bad) -> None:
        if self._torn or (looks_torn(self._file, bad) and not self._losses.hidden(bad)):
            self._torn.append(bad)
        else:
            self._losses.add(bad)

    def _take_found(self, item: Found) -> None:
        frame = item.frame
        rows = rows_of(frame.body) if frame.type == FrameType.SEGMENT else 0
        body = b"" if frame.type in _BULKY else frame.body
        note = _Note(frame.type, frame.shard, frame.segment, item.offset, item.end, rows, body)
        if not self._torn:
            self._apply(note)
            return
        self._torn.append(note)
        if _says_kept(note, self._torn[0].offset):
            self._keep_torn()

    def _keep_torn(self) -> None:
        """Bytes that looked torn had been synced: they are damage."""
        torn, self._torn = self._torn, []
        for each in torn:
            if isinstance(each, Bad):
                self._losses.add(each)
            else:
                self._apply(each)

    def _apply(self, note: _Note) -> None:
        try:
            self._read(note)
        except BadFrame as error:
            self._losses.add(Bad(note.offset, note.end), error.message)
        self._end = note.end
        if note.type != FrameType.STATUS:
            self._stored_end = note.end
            self._closed = None

    def _read(self, note: _Note) -> None:
        shards = self._losses.shards or 2**SHARD_POWER_MAX
        if note.shard >= shards:
            raise BadFrame(f"a frame of shard {note.shard}, and there are {shards}")
        if note.type == FrameType.TITLE:
            self._read_title(note.body)
        elif note.type == FrameType.DESTINATIONS:
            found = decode_body(note.body, Destinations)
            self._names = self._names or tuple(found.names)
            self._read_title(found.title)
        elif note.type == FrameType.SEGMENT:
            self._read_segment(note)
        elif note.type == FrameType.SNAPSHOT:
            place = FrameSpan(note.offset, note.end - note.offset)
            self._index.add_snapshot(SegmentKey(note.shard, note.segment), place)
            self._saw(note.shard, note.segment)
        elif note.type == FrameType.REJECT:
            for rejection in decode_body(note.body, Rejections).entries:
                self._read_rejection(rejection)
        elif note.type == FrameType.STATUS:
            self._read_status(decode_body(note.body, Status), note.offset)
        elif note.type == FrameType.MARKS:
            raise BadData(f"{self._file.path} is a log, not a refill", hint="`headpond inspect FILE` reads it.")

    def _read_title(self, body: bytes) -> None:
        """The first one that can be read counts: DESTINATIONS has it once more."""
        if self._head is None:
            self._head = decode_refill_title(body)
            self._losses.shards = 1 << (self._head[1] or 0)

    def _read_segment(self, note: _Note) -> None:
        if self._index.count >= SEGMENTS_MAX:
            raise BadFrame(f"a file is read up to {SEGMENTS_MAX:,} segments")
        place = FrameSpan(note.offset, note.end - note.offset)
        if self._index.add(SegmentKey(note.shard, note.segment), place, note.rows):
            self._came_late(note.shard, note.segment, note.segment + 1)

    def _came_late(self, shard: int, first: int, end: int) -> None:
        """Segments after the last STATUS, which does not cover them."""
        self._late.setdefault(shard, RangeSet()).add(first, end)
        self._saw(shard, end)

    def _read_rejection(self, rejection: Rejection) -> None:
        self._saw(rejection.shard, rejection.end)
        if rejection.code:
            self._refusals.append(rejection)
            return
        ranges = self._open.setdefault((rejection.destination, rejection.shard), RangeSet())
        ranges.add(rejection.first, rejection.end)

    def _read_status(self, status: Status, place: int) -> None:
        for run in self._losses.account(status, place):
            self._came_late(*run)
        self._synced_bytes = max(self._synced_bytes, status.kept_bytes)
        self._closed = status.closed
        ends = [status.closed or {}, *(status.confirmed or {}).values()]
        for shard, segment in (pair for each in ends for pair in each.items()):
            self._saw(shard, segment)
        if status.confirmed is None:
            return
        self._floors = status.confirmed
        self._late = {}
        for (destination, shard), ranges in self._open.items():
            ranges.discard(0, status.confirmed.get(destination, {}).get(shard, 0))

    def _saw(self, shard: int, end: int) -> None:
        if end > self._seen_next.get(shard, 0):
            self._seen_next[shard] = end

    # --- finding the way again ----------------------------------------------------------------------

    def _belongs(self, offset: int, frame: Frame, led: bool) -> bool:
        """Whether a frame after bad bytes is one of this file."""
        known = self._losses.shards is None or frame.shard < self._losses.shards
        if frame.type not in TYPES or not known:
            return False
        leads = self._leads_to_status(offset)
        return leads if leads is not None else led

    def _leads_to_status(self, offset: int) -> bool | None:
        """Whether the STATUS that follows names its own place; None where the frames lead to none."""
        while offset + OVERHEAD_BYTES <= self._size:
            type_, _, place, size = HEADER.unpack(self._file.read_at(offset, HEADER_BYTES))
            if type_ == FrameType.STATUS:
                if place == offset & PLACE_MASK:
                    return True
                if self._is_whole(offset):
                    return False
            if type_ not in TYPES:
                return None
            offset += OVERHEAD_BYTES + size
        return None

    def _is_whole(self, offset: int) -> bool:
        try:
            read_frame(self._file, offset)
        except BadFrame:
            return False
        return True

    # --- the end ------------------------------------------------------------------------------------

    def _take_note(self) -> None:
        """Where the file ends before its last sync, the note replaces the missing STATUS."""
        note, losses = self._note, self._losses
        if note is None:
            return
        kept = note.kept_bytes
        if self._torn and kept > self._torn[0].offset:
            self._keep_torn()
        lacks = losses.lacks(note)
        if kept <= self._end:
            if lacks:  # lost before something else was written
                for run in losses.account(note, self._end):
                    self._came_late(*run)
            return
        cut = self._size < kept
        if cut or not lacks:
            losses.holes = [hole for hole in losses.holes if hole.bad.offset < self._end]
        if lacks and cut:
            losses.add(Bad(self._end, kept), CUT_SHORT)
        elif lacks:
            self._damaged_to = kept
        self._read_status(note, kept)

    def _finish(self) -> RefillImage:
        self._take_note()
        end = max(self._settle_tail(), self._damaged_to)
        for run in self._losses.account_rest():
            self._came_late(*run)
        # A STATUS names all destinations, so that they are known if their own frame rots.
        names = self._names or tuple(self._floors or ())
        if self._head is None or not names:
            raise BadData(
                f"{self._file.path} is no refill file, or its beginning cannot be read",
                hint="`headpond inspect FILE` shows what can be read of it.",
            )
        block, power, title = self._head
        if title.schema is not None:
            self._losses.lose_undecodable()
        return RefillImage(
            block=block,
            shard_power=power,
            title=title,
            claims=self._claims(names),
            index=self._index,
            floors=self._floors,
            late=self._late,
            lost={shard: ranges for shard, ranges in self._losses.lost.items() if ranges},
            unnamed=self._losses.unnamed,
            damage=sorted(self._losses.damage, key=lambda each: each.offset),
            closed=self._closed if end == self._end else None,
            seen_next=self._seen_next,
            end=end,
            torn_bytes=max(0, self._at - end),
            proven_bytes=end if self._stored_end <= self._synced_bytes else self._synced_bytes,
        )

    def _settle_tail(self) -> int:
        """The end of what counts: bad bytes at the end are torn, unless the disk cannot read them."""
        if self._torn:
            return self._torn[0].offset
        losses = self._losses
        tail = [hole for hole in losses.holes if hole.bad.offset >= self._end]
        if any(losses.hidden(hole.bad) for hole in tail):
            # The next write keeps out of the sector that cannot be read.
            return -(-tail[-1].bad.end // SALVAGE_BYTES) * SALVAGE_BYTES
        losses.holes = [hole for hole in losses.holes if hole.bad.offset < self._end]
        return self._end

    def _claims(self, names: tuple[str, ...]) -> Claims:
        claims = Claims(names)
        for rejection in self._refusals:
            if rejection.destination in claims:
                claims.refuse(rejection)
        claims.mark_written()
        nothing = RangeSet()
        for name in names:
            floors = (self._floors or {}).get(name, {})
            for shard in floors.keys() | {shard for destination, shard in self._open if destination == name}:
                late = self._late.get(shard, nothing)
                open_ = self._open.get((name, shard), nothing)
                claims.restore(name, shard, floors.get(shard, 0), late, open_)
        for shard in self._index.shards:
            lost = self._losses.lost.get(shard, nothing)
            for held in self._index.held(shard):
                for run in lost.missing(*held):
                    claims.recover(shard, *run)
        return claims


def _says_kept(note: _Note, offset: int) -> bool:
    """Whether a frame says that all up to after ``offset`` was synced."""
    if note.type != FrameType.STATUS:
        return False
    try:
        return decode_body(note.body, Status).kept_bytes > offset
    except BadFrame:
        return False
