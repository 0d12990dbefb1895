"""Segments without their rows: one that a sender sends again, and lists of them for links between nodes.

``SegmentFinder`` finds an admitted segment. The heads of the files show which file has it, a scan of that file
its place. It caches both, within bounds. One thread at a time may use it.

``walk_heads`` lists block, number and checksum. The list includes refusals, and segments of a state topic whose
rows compaction has all removed: their numbers are in use. Two nodes compare such lists before they send a
message. Like a read, it runs in a worker thread over one ``View`` and checks every checksum.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from headpond.model.entry_set import Span
from headpond.model.errors import BadFrame
from headpond.model.ranges import RangeSet
from headpond.storage.disk import DiskFile
from headpond.storage.log.format import load_marks
from headpond.storage.log.index import Point, place_of
from headpond.storage.log.marks import Marks, Stored
from headpond.storage.log.read import (
    FileView,
    FramedRecord,
    LogReader,
    ReadResult,
    View,
    WalkBounds,
    unpacked,
    walk,
)
from headpond.wire.control.links import COMPACTED_AWAY, HEADS_MAX, RecordHead
from headpond.wire.frame import HEADER_BYTES, OVERHEAD_BYTES, TRAILER
from headpond.wire.record import RECORD_HEADER_BYTES, is_stub, segments_of

SCANNED_MAX = 64
SCANNED_SEGMENTS_MAX = 256 * 1024
"""How many pairs of file and block, and how many of their segments in total, the finder caches."""
MARKED_MAX = 1024
SCAN_BYTES_MAX = 32 * 1024 * 1024
"""How many bytes one answer may read; the other node asks again for the rest."""
CHUNK_BYTES = 1024 * 1024
REFUSALS_MAX = 500
"""How many refusals an answer lists at one entry, so that it always reaches the next; others are holes."""
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES


@dataclass(slots=True)
class _Scanned:
    """The segments of one block in the part of a file that was read."""

    entry: int
    """The first entry of the record at ``offset``, or a lower one."""
    offset: int = 0
    found: dict[int, Stored] = field(default_factory=dict)


class SegmentFinder:
    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._replaced: deque[int] = deque()
        """Files that were replaced since the last call of ``find``."""
        self._segments: dict[tuple[int, bytes], _Scanned] = {}
        self._marked: dict[tuple[int, bytes], RangeSet | None] = {}

    def find(self, view: View, block: bytes, segment: int) -> Stored | None:
        """Checksum, first entry and count of an admitted segment; None if no file has it."""
        while self._replaced:
            self._drop(self._replaced.popleft())
        low, high = 0, len(view.files)
        while low < high:  # the first file whose head has the segment; it was stored in the one before
            middle = (low + high) // 2
            if self._marked_before(view.files[middle], block, segment):
                high = middle
            else:
                low = middle + 1
        for number in range(low - 1, -1, -1):  # more than one if heads are damaged
            before = self._marked_before(view.files[number], block, segment)
            if before:
                continue
            found = self._segments_of(view, number, block).get(segment)
            if found is not None or before is False:
                return found
        return None

    def _marked_before(self, file: FileView, block: bytes, segment: int) -> bool | None:
        """Whether a segment was admitted before a file began; None if its head is damaged."""
        key = (file.first, block)
        if key not in self._marked:
            if len(self._marked) >= MARKED_MAX:
                self._marked.clear()
            self._marked[key] = self._load_marked(file, block)
        ranges = self._marked[key]
        return None if ranges is None else segment in ranges

    def _load_marked(self, view: FileView, block: bytes) -> RangeSet | None:
        """The admitted segments of a block in the head of a file, which never changes and may be long."""
        with suppress(FileNotFoundError, BadFrame), self._reader.open_file(view) as file:
            loaded = load_marks(file, view.first, self._reader.shard)
            if loaded is not None:
                known = Marks.decode(loaded.marks).get(block)
                return RangeSet() if known is None else known.admitted
        return None

    def _segments_of(self, view: View, number: int, block: bytes) -> dict[int, Stored]:
        """All segments of a block in one file: a sender that repeats one segment repeats its neighbours next.

        The file being written grows: the finder reads only the new part.
        """
        first = view.files[number].first
        scanned = self._segments.pop((first, block), None) or _Scanned(first)
        with suppress(FileNotFoundError), self._reader.open_file(view.files[number]) as file:
            self._scan(scanned, view, number, file, block)
        self._segments[first, block] = scanned  # least recently used first
        room = SCANNED_SEGMENTS_MAX
        for count, key in enumerate(reversed(list(self._segments))):
            room -= len(self._segments[key].found)
            if count and (room < 0 or count >= SCANNED_MAX):
                del self._segments[key]
        return scanned.found

    def _scan(self, scanned: _Scanned, view: View, number: int, file: DiskFile, block: bytes) -> None:
        _, end_offset = self._reader.points_of(view, number, file)
        if scanned.offset >= end_offset:
            return
        bounds = WalkBounds(scanned.offset, end_offset, scanned.entry, view.end_entry(number))
        for item in unpacked(walk(file, bounds, self._reader.shard, CHUNK_BYTES), self._reader.shard):
            header = item.header
            scanned.entry = header.end_entry
            if header.block == block:
                body = item.raw[_LEAD_BYTES : -TRAILER.size]
                for number, *stored in segments_of(header, item.segment, body):
                    scanned.found[number] = (stored[0], stored[1], stored[2])
        scanned.offset = end_offset

    def forget(self, first: int) -> None:
        """A file was replaced: what is cached of it is void. Any thread may call it."""
        self._replaced.append(first)

    def _drop(self, first: int) -> None:
        self._segments = {key: scanned for key, scanned in self._segments.items() if key[0] != first}
        self._marked = {key: ranges for key, ranges in self._marked.items() if key[0] != first}


def walk_heads(reader: LogReader, view: View, entry: int, heads: list[RecordHead]) -> ReadResult:
    """Adds the heads from the record that holds ``entry`` on; returns where to continue, and what is lost."""
    at = max(entry, view.entry_first)
    lost = [(entry, at)] if entry < at else []
    number, room = max(view.number_of(at), 0), SCAN_BYTES_MAX
    while number < len(view.files) and room > 0 and len(heads) < HEADS_MAX:
        heads_max = HEADS_MAX - len(heads)
        part = reader.visit(view, number, partial(_heads_in, reader, view, number, at, room, heads_max))
        if part is None:
            part = _Heads([], view.end_entry(number), [(at, view.end_entry(number))], room)
        heads += part.heads
        lost += part.lost
        at, room = part.next_entry, part.room
        number += 1
    return ReadResult([], at, lost)


class _Heads(NamedTuple):
    """The heads of one file."""

    heads: list[RecordHead]
    next_entry: int
    lost: list[Span]
    room: int
    """Bytes that the rest of the answer may read; 0 if the answer is full."""


def _heads_in(
    reader: LogReader, view: View, number: int, at: int, room: int, heads_max: int, file: DiskFile
) -> _Heads:
    limit = view.end_entry(number)
    points, end_offset = reader.points_of(view, number, file)
    point = place_of(points, at) or Point(view.files[number].first, 0, 0)
    bounds = WalkBounds(point.offset, end_offset, point.entry, limit)
    heads: list[RecordHead] = []
    lost: list[Span] = []
    expected, refusals = at, 0
    for item in unpacked(walk(file, bounds, reader.shard, CHUNK_BYTES), reader.shard, at):
        header = item.header
        if header.end_entry <= at and (header.count or header.first_entry < at):
            continue
        if header.count:
            if len(heads) >= heads_max or room <= 0:
                return _Heads(heads, expected, lost, 0)
            if header.first_entry > expected:
                lost.append((expected, header.first_entry))
            expected, refusals = header.end_entry, 0
        elif (refusals := refusals + 1) > REFUSALS_MAX:
            continue
        room -= len(item.raw)
        body = item.raw[_LEAD_BYTES : -TRAILER.size]
        if not is_stub(body):
            heads.append(_head(item))
            continue
        for gone in segments_of(header, item.segment, body):
            if gone.first_entry < at:
                continue
            if len(heads) >= heads_max:
                return _Heads(heads, gone.first_entry, lost, 0)
            place = (gone.first_entry, 0, header.block, gone.segment)
            heads.append(RecordHead(*place, gone.origin_crc, RECORD_HEADER_BYTES, refusal=COMPACTED_AWAY))
    if expected < limit:
        lost.append((expected, limit))
    return _Heads(heads, max(expected, limit), lost, room)


def _head(item: FramedRecord) -> RecordHead:
    header, raw = item.header, item.raw
    refusal = raw[_LEAD_BYTES : -TRAILER.size] if not header.count else b""
    size = len(raw) - OVERHEAD_BYTES
    place = (header.first_entry, header.count, header.block, item.segment)
    return RecordHead(*place, header.origin_crc, size, header.stored_at_us, bytes(refusal))
