"""Checked reads of the durable records of a log.

``walk`` iterates over the records of one file. A ``LogReader`` takes one ``View`` at the start of a read and
touches nothing that appending changes, so it may run in a worker thread. It checks the checksum of every frame
every time. It never returns a record that fails; it reports the lost entries by their exact span, from the end
of the valid record before to the first entry of the next valid one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from google_crc32c import value

from headpond.model.bounds import ENTRY_MAX
from headpond.model.entry_set import Span
from headpond.model.errors import BadFrame, BadSegment
from headpond.model.ranges import RangeSet
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, DiskFile, SalvagedFile, open_salvaged
from headpond.storage.frame_file import CRC_RESIDUE, Accept, Bad, following_frame, frames_from, scan
from headpond.storage.log.format import FileId, LogPlace, expiry_name, file_name, index_name
from headpond.storage.log.index import FileIndex, Point, load_index, place_of, place_of_time
from headpond.storage.recovery import stands_here
from headpond.wire.frame import HEADER_BYTES, OVERHEAD_BYTES, TRAILER, Frame, FrameType
from headpond.wire.plain.packed import (
    FORM_PACKED,
    PACKED_BYTES_MAX,
    blocks_of,
    is_packed,
    salvage,
    unpack,
)
from headpond.wire.record import (
    FORM_STUB,
    FRAMED_RECORD,
    RECORD_HEADER_BYTES,
    RecordHeader,
    decode_record_header,
    is_stub,
)

INDEXES_MAX = 32
HINTS_MAX = 512
REPLACED_MAX = 4096
"""How many replaced files the reader remembers: a reader that misses one has to take a newer view."""
READ_BYTES_MIN = 64 * 1024
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES
_SEGMENT = int(FrameType.SEGMENT)
_LEAD = struct.Struct("<BHIIQI")
"""The header of a frame, and the first entry and count of its record."""
_RECORD_BYTES_MIN = OVERHEAD_BYTES + RECORD_HEADER_BYTES


class WalkBounds(NamedTuple):
    """The part of a file to walk."""

    offset: int
    end_offset: int
    expected: int
    """The first entry of the record at ``offset``."""
    limit: int
    """The end of the entries of the file."""


class FramedRecord(NamedTuple):
    """A record and its place; ``raw`` is its whole frame."""

    offset: int
    end: int
    """Where to read on behind it."""
    header: RecordHeader
    segment: int
    raw: bytes


def walk(file: DiskFile, bounds: WalkBounds, shard: int, chunk_bytes: int) -> Iterator[FramedRecord]:
    """The valid records of a part of a file, in order, up to the end of its entries."""
    at, end, expected, limit = bounds
    while at < end:
        for offset, raw in frames_from(file, at, end, chunk_bytes=chunk_bytes):
            at = offset + len(raw)
            if raw[0] == _SEGMENT and len(raw) >= _RECORD_BYTES_MIN:
                _, _, segment, _, first, count, block, stored_at_us, origin_crc = FRAMED_RECORD.unpack_from(raw)
                if first >= limit and (count or first > limit):
                    return
                if first >= expected:
                    expected = first + count
                    header = RecordHeader(first, count, block, stored_at_us, origin_crc)
                    yield FramedRecord(offset, at, header, segment, raw)
        if at < end:
            following = following_frame(file, at, end, shard=shard, accept=_follower(file, end, expected))
            for item in salvaged(file, at, end if following is None else following, shard):
                if item.header.first_entry >= expected:
                    expected = item.header.end_entry
                    yield item
            if following is None:
                return
            at = following


def salvaged(file: DiskFile, start: int, end: int, shard: int) -> Iterator[FramedRecord]:
    """What is whole in bad bytes that begin with a frame: the original records of damaged packed ones.

    A reader that continues behind one of them begins with the same packed one again.
    """
    while end - start >= _RECORD_BYTES_MIN:
        head = file.read_at(start, _LEAD_BYTES + 4)
        _, _, _, size, first, _ = _LEAD.unpack_from(head)
        size -= RECORD_HEADER_BYTES
        if not 0 < size <= PACKED_BYTES_MAX or not is_packed(head[_LEAD_BYTES:]):
            return
        segment = file.read_at(start + _LEAD_BYTES, size).ljust(size, b"\0")  # the end of the file may be gone
        found = list(salvage(first, segment, shard))
        if not found:  # and so nothing proves that the next frame begins where this one claims to end
            return
        for each in found:
            yield FramedRecord(start, start, each.header, each.number, each.framed(shard))
        start += _LEAD_BYTES + size + TRAILER.size


def hop(file: DiskFile, bounds: WalkBounds, entry: int, chunk_bytes: int) -> WalkBounds:
    """Moves the start of a walk to the record that holds ``entry``; no move if a record before it is odd.

    It looks at the entries of the records before it, not at their checksums.
    """
    data = file.read_at(bounds.offset, min(chunk_bytes, bounds.end_offset - bounds.offset))
    at, expected = 0, bounds.expected
    while len(data) - at >= _RECORD_BYTES_MIN:
        type_, _, _, size, first, count = _LEAD.unpack_from(data, at)
        total = OVERHEAD_BYTES + size
        if type_ == _SEGMENT:
            if first != expected:
                return bounds
            expected = first + count
            if entry < expected:
                raw = data[at : at + total]
                sound = len(raw) == total and value(raw) == CRC_RESIDUE
                return bounds._replace(offset=bounds.offset + at, expected=first) if sound else bounds
        at += total
    return bounds


def _follower(file: DiskFile, end: int, expected: int) -> Accept:
    """Accepts a frame behind bad bytes if it stands in its own place and its entries are not older."""
    return lambda offset, frame, led: belongs(frame, expected) and stands_here(file, offset, end, led=led)


def _is_packed(item: FramedRecord) -> bool:
    return item.header.count > 0 and is_packed(item.raw[_LEAD_BYTES : _LEAD_BYTES + 4])


def unpacked(
    records: Iterable[FramedRecord], shard: int, start: int = 0, end: int = ENTRY_MAX
) -> Iterator[FramedRecord]:
    """The records, with the original ones in place of a packed one: those with entries from ``start`` on.

    They have the place of the packed one in the file. One that contradicts itself is left out, and so is lost.
    """
    for item in records:
        if not _is_packed(item):
            yield item
            continue
        with suppress(BadSegment):
            for each in unpack(item.header, item.raw[_LEAD_BYTES : -TRAILER.size], start, end):
                yield FramedRecord(item.offset, item.end, each.header, each.number, each.framed(shard))


def belongs(frame: Frame, entry: int) -> bool:
    """Whether a frame behind bad bytes can belong there: a record of older entries is a copy in a payload."""
    if frame.type != FrameType.SEGMENT:
        return frame.type in (FrameType.STATUS, FrameType.RECORD)
    try:
        return decode_record_header(frame.body).first_entry >= entry
    except BadFrame:
        return False


def build_index(file: DiskFile, first: int, limit: int, shard: int, every_bytes: int) -> FileIndex:
    """Builds the index of a closed file from the file itself."""
    points: list[Point] = []
    end_entry, end_offset = first, 0
    size = file.size()

    def accept(offset: int, frame: Frame, led: bool) -> bool:
        return belongs(frame, end_entry) and stands_here(file, offset, size, led=led)

    for item in scan(file, shard=shard, accept=accept):
        if isinstance(item, Bad):
            for each in salvaged(file, item.offset, item.end, shard):
                end_entry, end_offset = each.header.end_entry, size  # or less, if a frame follows
            continue
        if item.frame.type == FrameType.SEGMENT and len(item.frame.body) >= RECORD_HEADER_BYTES:
            header = decode_record_header(item.frame.body)
            if header.first_entry >= limit and (header.count or header.first_entry > limit):
                break
            if not points or item.offset - points[-1].offset >= every_bytes:
                points.append(Point(header.first_entry, header.stored_at_us, item.offset))
            end_entry = header.end_entry
        end_offset = item.end
    return FileIndex(first, end_entry, end_offset, points)


class StoredRecord(NamedTuple):
    """A stored segment, or a packed record: its header, its number in its block, and the whole frame's bytes in
    pieces."""

    header: RecordHeader
    segment: int
    parts: list[bytes]

    @property
    def packed(self) -> bool:
        return is_packed(self.parts[0][_LEAD_BYTES : _LEAD_BYTES + 4])

    @property
    def blocks(self) -> list[bytes]:
        """The blocks of its segments."""
        return blocks_of(segment_of(self)) if self.packed else [self.header.block]

    def originals(self, shard: int, start: int, end: int) -> list[StoredRecord]:
        """The original records of a packed one that hold entries from ``start`` to ``end``."""
        item = FramedRecord(0, 0, self.header, self.segment, self.parts[0])
        return [
            StoredRecord(each.header, each.segment, [each.raw]) for each in unpacked((item,), shard, start, end)
        ]


def segment_of(record: StoredRecord) -> bytes:
    """The stored segment of a record, without the headers of the frame and the record."""
    whole = record.parts[0] if len(record.parts) == 1 else b"".join(record.parts)
    return whole[_LEAD_BYTES : len(whole) - TRAILER.size]


class ReadResult(NamedTuple):
    """The result of a read: records in order, the entry to continue from, and the spans that are lost."""

    records: list[StoredRecord]
    next_entry: int
    lost: list[Span]


class LossyPart(Protocol):
    """A part of a file that was read, and the spans that it lacks."""

    @property
    def lost(self) -> list[Span]: ...


Part = TypeVar("Part", bound=LossyPart)


class FileView(NamedTuple):
    first: int
    floor_us: int
    """The time of the last record before this file."""
    bytes: int
    """The length of a closed file."""
    expires_us: int | None = None
    """When all its messages have expired; None if some never do, or it is unknown."""
    generation: int = 0
    """How often it was compacted."""

    @property
    def id(self) -> FileId:
        return FileId(self.first, self.generation)

    def paths(self, folder: str) -> list[str]:
        """The file, and those beside it."""
        names = [file_name(*self.id), index_name(*self.id)]
        if self.expires_us is not None:
            names.append(expiry_name(self.first, self.expires_us))
        return [f"{folder}/{name}" for name in names]


class ClosedFile(NamedTuple):
    """A file that the log no longer writes to, and one past its last entry."""

    file: FileView
    end: int


class Replaced(Exception):
    """A file was rewritten since the reader took its view: it has to take a newer one."""


class StoredFile(NamedTuple):
    """The facts about a file that retention needs."""

    first: int
    end: int
    bytes: int
    newest_us: int
    """Nothing in it was stored later."""
    expires_us: int | None


class View(NamedTuple):
    """The durable files of a log at one moment."""

    files: tuple[FileView, ...]
    entry_first: int
    entry_durable: int
    end_offset: int
    """The end of the durable frames of the last file."""
    points: list[Point]
    """The index points of the last file; the list only grows."""

    def number_of(self, entry: int) -> int:
        """The number of the file that would hold ``entry``; -1 if the entry is before all files."""
        return bisect_right(self.files, entry, key=lambda file: file.first) - 1

    def end_entry(self, number: int) -> int:
        return self.files[number + 1].first if number + 1 < len(self.files) else self.entry_durable

    def stored(self, newest_us: int, expires_us: int | None) -> list[StoredFile]:
        """All files with the facts for retention; the arguments belong to the last one.

        The records of a file are no newer than the floor of the next file. A damaged head has the floor of its
        neighbour, so a floor that did not rise says nothing, and the next one that rose counts.
        """
        found: list[StoredFile] = []
        newest = newest_us
        for number in range(len(self.files) - 1, -1, -1):
            file = self.files[number]
            if number == len(self.files) - 1:
                size, expires = self.end_offset, expires_us
            else:
                size, expires = file.bytes, file.expires_us
                floor_us = self.files[number + 1].floor_us
                newest = floor_us if floor_us > file.floor_us else newest
            found.append(StoredFile(file.first, self.end_entry(number), size, newest, expires))
        return found[::-1]


class LogReader:
    """Finds and reads records; collects damaged entries in ``damaged``."""

    def __init__(self, disk: Disk, place: LogPlace) -> None:
        self.damaged = RangeSet()
        self._kept = 0
        """The log has dropped the files before this entry."""
        self._disk = disk
        self._place = place
        self.shard = place.shard
        # Threads share these: they are replaced or set whole, never changed in steps.
        self._indexes: dict[FileId, FileIndex] = {}
        self._hints: dict[int, tuple[FileId, int]] = {}
        self._built: frozenset[FileId] = frozenset()
        """Files whose index this reader built from the file itself."""
        self._replaced: tuple[FileId, ...] = ()
        """Files that were rewritten."""

    def read(self, view: View, entry: int, bytes_max: int, *, packed: bool = False) -> ReadResult:
        """``packed``: packed records come as they are, and not the original ones in their place."""
        records: list[StoredRecord] = []
        lost: list[Span] = []
        at = entry
        if at < view.entry_first:
            at = min(view.entry_first, view.entry_durable)
            lost.append((entry, at))
        room = bytes_max
        while at < view.entry_durable and (room > 0 or not records):
            number = view.number_of(at)
            if number < 0:
                lost.append((at, view.files[0].first if view.files else view.entry_durable))
                at = lost[-1][1]
                continue
            stop = self._read_file(view, number, at, room, records, lost, packed=packed)
            room = bytes_max - sum(len(record.parts[0]) for record in records)
            if stop <= at:
                break  # the next record is larger than the room left
            at = stop
        return ReadResult(records, at, lost)

    def _read_file(
        self,
        view: View,
        number: int,
        at: int,
        room: int,
        records: list[StoredRecord],
        lost: list[Span],
        *,
        packed: bool,
    ) -> int:
        """Adds the records of one file from ``at`` on; returns the entry to continue from."""
        first = not records

        def take(file: DiskFile) -> ReadResult:
            return self._read_part(view, number, file, at, room, first=first, packed=packed)

        part = self.visit(view, number, take)
        if part is None:
            limit = view.end_entry(number)
            if limit <= self._kept:  # dropped since the reader took its view, not damaged
                lost.append((at, limit))
            else:
                self._lose(at, limit, at, lost)
            return limit
        records += part.records
        for start, end in part.lost:
            self._lose(start, end, at, lost)
        return max(part.next_entry, at)

    def visit(self, view: View, number: int, take: Callable[[DiskFile], Part]) -> Part | None:
        """The part of a file that ``take`` reads, again if the index was wrong; None if the file is gone."""
        try:
            file = self.open_file(view.files[number])
        except FileNotFoundError:
            return None
        with file:
            part = take(file)
            return take(file) if part.lost and self._index_was_wrong(view, number, file) else part

    def _read_part(
        self, view: View, number: int, file: DiskFile, at: int, room: int, *, first: bool, packed: bool
    ) -> ReadResult:
        """The records of a file from ``at`` on; with ``first``, at least one, whatever its size."""
        records: list[StoredRecord] = []
        lost: list[Span] = []
        file_id, limit = view.files[number].id, view.end_entry(number)
        bounds = self._bounds(view, number, file, at)
        expected = bounds.expected
        for item in walk(file, bounds, self.shard, max(room, READ_BYTES_MIN)):
            offset, end, header, segment, raw = item
            first_entry, count = header[0], header[1]
            if first_entry > expected:
                lost.append((expected, first_entry))
            expected = first_entry + count
            if expected <= at or count == 0 or (raw[_LEAD_BYTES] == FORM_STUB and is_stub(raw[_LEAD_BYTES:])):
                continue
            if raw[_LEAD_BYTES] == FORM_PACKED and not packed and _is_packed(item):
                room, stop = self._unpack(item, at, room, records, lost, first=first)
                if stop < expected or room <= 0:
                    return ReadResult(records, stop, lost)
                continue
            if len(raw) > room and (records or not first):
                self._hint(first_entry, file_id, offset)
                return ReadResult(records, first_entry, lost)
            records.append(StoredRecord(header, segment, [raw]))
            room -= len(raw)
            if room <= 0:
                self._hint(expected, file_id, end)
                return ReadResult(records, expected, lost)
        if expected < limit:
            lost.append((expected, limit))
        return ReadResult(records, max(expected, limit), lost)

    def _unpack(
        self,
        item: FramedRecord,
        at: int,
        room: int,
        records: list[StoredRecord],
        lost: list[Span],
        *,
        first: bool,
    ) -> tuple[int, int]:
        """Adds the original records of a packed one; returns the room that is left, and where it stopped."""
        stop, end = max(at, item.header.first_entry), item.header.end_entry
        for _, _, header, segment, raw in unpacked((item,), self.shard, at):
            if len(raw) > room and (records or not first):
                return room, stop
            records.append(StoredRecord(header, segment, [raw]))
            room, stop = room - len(raw), header.end_entry
            if room <= 0:
                return room, stop
        if stop < end:
            lost.append((stop, end))
        return room, end

    def _bounds(self, view: View, number: int, file: DiskFile, entry: int) -> WalkBounds:
        """The part of a file to walk for ``entry``."""
        first, limit = view.files[number].first, view.end_entry(number)
        points, end_offset = self.points_of(view, number, file)
        hint = self._hints.get(entry)
        if hint is not None and hint[0] == view.files[number].id:
            return WalkBounds(hint[1], end_offset, entry, limit)
        point = place_of(points, entry)
        if point is None:
            return WalkBounds(0, end_offset, first, limit)
        bounds = WalkBounds(point.offset, end_offset, point.entry, limit)
        if entry == point.entry:
            return bounds
        return hop(file, bounds, entry, self._place.index_every_bytes + READ_BYTES_MIN)

    def points_of(self, view: View, number: int, file: DiskFile) -> tuple[list[Point], int]:
        """The points of a file and the end of its frames; builds a missing index of a closed file."""
        if number == len(view.files) - 1:
            return view.points, view.end_offset
        its_id, limit = view.files[number].id, view.end_entry(number)
        index = self._indexes.get(its_id)
        if index is None:
            index = load_index(self._disk, self._place.index_path(*its_id), file, its_id.first)
            if index is None:
                index = self._build(file, its_id, limit)
            self._keep(its_id, index)
        return index.points, index.end_offset

    def _index_was_wrong(self, view: View, number: int, file: DiskFile) -> bool:
        """Builds the index of a closed file again, once; True if that changed it.

        Before the reader reports entries as lost, it must be certain that it looked in the right place.
        """
        its_id = view.files[number].id
        if number == len(view.files) - 1 or its_id in self._built:
            return False
        before = self.points_of(view, number, file)
        index = self._build(file, its_id, view.end_entry(number))
        self._keep(its_id, index)
        self._hints = {}
        return before != (index.points, index.end_offset)

    def _build(self, file: DiskFile, its_id: FileId, limit: int) -> FileIndex:
        index = build_index(file, its_id.first, limit, self.shard, self._place.index_every_bytes)
        self._built = self._built | {its_id}
        if its_id in self._replaced:
            return index
        with suppress(OSError):
            path = self._place.index_path(*its_id)
            write_whole(self._disk, path, index.encode_for(file, self.shard))
        return index

    def _keep(self, its_id: FileId, index: FileIndex) -> None:
        kept = [(key, one) for key, one in self._indexes.items() if key != its_id]
        self._indexes = dict([*kept[-INDEXES_MAX + 1 :], (its_id, index)])

    def find_time(self, view: View, stored_at_us: int) -> int:
        """The first entry stored at or after a time; the durable end if there is none."""
        start = max(bisect_left(view.files, stored_at_us, key=lambda file: file.floor_us) - 1, 0)
        for number in range(start, len(view.files)):
            try:
                file = self.open_file(view.files[number])
            except FileNotFoundError:
                continue
            with file:
                points, end_offset = self.points_of(view, number, file)
                point = place_of_time(points, stored_at_us) or Point(view.files[number].first, 0, 0)
                bounds = WalkBounds(point.offset, end_offset, point.entry, view.end_entry(number))
                for item in unpacked(walk(file, bounds, self.shard, READ_BYTES_MIN), self.shard):
                    if item.header.stored_at_us >= stored_at_us and item.header.count:
                        return max(item.header.first_entry, view.entry_first)
        return view.entry_durable

    def forget(self, first: int) -> None:
        """Drops the cached index and places of a replaced file."""
        self._indexes = {key: index for key, index in self._indexes.items() if key.first != first}
        self._built = frozenset(each for each in self._built if each.first != first)
        self._hints = {}

    def replaced(self, files: Iterable[FileId]) -> None:
        """These files were rewritten; a reader that misses one gets ``Replaced``."""
        gone = tuple(files)
        self._replaced = (*self._replaced, *gone)[-REPLACED_MAX:]
        for first, _ in gone:
            self.forget(first)

    def _hint(self, entry: int, file: FileId, offset: int) -> None:
        """Remembers the offset at which a reader will continue."""
        if len(self._hints) >= HINTS_MAX:
            self._hints = {}
        self._hints[entry] = (file, offset)

    def forget_before(self, entry: int) -> None:
        """The log has dropped the files before ``entry``, and their damage with them."""
        self._kept = entry
        self._indexes = {key: index for key, index in self._indexes.items() if key.first >= entry}
        self._built = frozenset(each for each in self._built if each.first >= entry)
        damaged = self.damaged.copy()
        damaged.discard(0, entry)
        self.damaged = damaged

    def lose(self, start: int, end: int) -> None:
        """Notes a damaged span."""
        if self.damaged.missing(start, end):
            damaged = self.damaged.copy()
            damaged.add(start, end)
            self.damaged = damaged

    def _lose(self, start: int, end: int, at: int, lost: list[Span]) -> None:
        """Notes a damaged span, and reports the part from ``at`` on to the reader."""
        self.lose(start, end)
        if end > at:
            lost.append((max(start, at), end))

    def open_file(self, file: FileView) -> SalvagedFile:
        """Raises ``Replaced`` or ``FileNotFoundError`` if it is gone."""
        try:
            return open_salvaged(self._disk, self._place.path(*file.id))
        except FileNotFoundError:
            if file.id in self._replaced:
                raise Replaced from None
            raise
