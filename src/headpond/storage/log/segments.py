"""Finds an admitted segment in the files of a log, for a sender that sends it again.

The heads of the files show which file has it, a scan of that file its place. The finder caches both, within
bounds. It belongs to the thread that appends.
"""

from __future__ import annotations

from contextlib import suppress

from headpond.model.errors import BadFrame
from headpond.model.ranges import RangeSet
from headpond.storage.disk import DiskFile
from headpond.storage.log.format import load_marks
from headpond.storage.log.marks import Marks, Stored
from headpond.storage.log.read import FileView, LogReader, View
from headpond.storage.log.walk import WalkBounds, walk
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.record import RECORD_HEADER_BYTES, segments_of

SCANNED_MAX = 64
SCANNED_SEGMENTS_MAX = 256 * 1024
"""How many pairs of file and block, and how many of their segments in total, the finder caches."""
MARKED_MAX = 1024
_CHUNK_BYTES = 1024 * 1024


class _Scanned:
    """The segments of one block in the part of a file that was read."""

    __slots__ = ("entry", "found", "offset")

    def __init__(self, entry: int) -> None:
        self.found: dict[int, Stored] = {}
        self.offset = 0
        self.entry = entry
        """The first entry of the record at ``offset``, or a lower one."""


class SegmentFinder:
    def __init__(self, reader: LogReader, shard: int) -> None:
        self._reader = reader
        self._shard = shard
        self._segments: dict[tuple[int, bytes], _Scanned] = {}
        self._marked: dict[tuple[int, bytes], RangeSet | None] = {}

    def find(self, view: View, block: bytes, segment: int) -> Stored | None:
        """Checksum, first entry and count of an admitted segment; None if no file has it."""
        low, high = 0, len(view.files)
        while low < high:  # the first file whose head has the segment; it was stored in the one before
            middle = (low + high) // 2
            if self._marked_before(view.files[middle], block, segment):
                high = middle
            else:
                low = middle + 1
        for number in range(low - 1, -1, -1):
            found = self._segments_of(view, number, block).get(segment)
            if found is not None or self._marked_before(view.files[number], block, segment) is not None:
                return found
        return None  # some heads are damaged: it could have been in any file

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
        try:
            file = self._reader.open_file(view)
        except FileNotFoundError:
            return None
        try:
            loaded = load_marks(file, view.first, self._shard)
            if loaded is None:
                return None
            known = Marks.decode(loaded.marks).get(block)
        except BadFrame:
            return None
        finally:
            file.close()
        return RangeSet() if known is None else known.admitted

    def _segments_of(self, view: View, number: int, block: bytes) -> dict[int, Stored]:
        """All segments of a block in one file: a sender that repeats one segment repeats its neighbours next.

        The file being written grows: the finder reads only the new part.
        """
        first = view.files[number].first
        scanned = self._segments.pop((first, block), None) or _Scanned(first)
        with suppress(FileNotFoundError):
            file = self._reader.open_file(view.files[number])
            try:
                self._scan(scanned, view, number, file, block)
            finally:
                file.close()
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
        for item in walk(file, bounds, self._shard, _CHUNK_BYTES):
            header = item.header
            scanned.entry = header.end_entry
            if header.block == block:
                body = item.raw[HEADER_BYTES + RECORD_HEADER_BYTES : -TRAILER.size]
                for number, *stored in segments_of(header, item.segment, body):
                    scanned.found[number] = (stored[0], stored[1], stored[2])
        scanned.offset = end_offset

    def forget(self, first: int) -> None:
        """Drops everything cached of a replaced file."""
        self._segments = {key: scanned for key, scanned in self._segments.items() if key[0] != first}
        self._marked = {key: ranges for key, ranges in self._marked.items() if key[0] != first}
