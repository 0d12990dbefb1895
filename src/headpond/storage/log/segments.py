"""Finding an admitted segment in a log's files, for a sender that sends it again.

The heads of the files tell in which one it stands, a scan of that file the place. Both are remembered, within
bounds. Belongs to the one thread that appends.
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
"""How many files and blocks, and how many of their segments in all, are remembered for those who ask again."""
MARKED_MAX = 1024
_CHUNK_BYTES = 1024 * 1024


class _Scanned:
    """The segments of one block in one file, as far as the file was read."""

    __slots__ = ("entry", "found", "offset")

    def __init__(self, entry: int) -> None:
        self.found: dict[int, Stored] = {}
        self.offset = 0
        self.entry = entry
        """The first entry of the record at ``offset``, or one before it."""


class SegmentFinder:
    def __init__(self, reader: LogReader, shard: int) -> None:
        self._reader = reader
        self._shard = shard
        self._segments: dict[tuple[int, bytes], _Scanned] = {}
        self._marked: dict[tuple[int, bytes], RangeSet | None] = {}

    def find(self, view: View, block: bytes, segment: int) -> Stored | None:
        """Where an admitted segment stands: the heads of the files tell in which, a scan of it the place."""
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
        return None  # heads that cannot be read were passed over: it could have been in any file

    def _marked_before(self, file: FileView, block: bytes, segment: int) -> bool | None:
        """Whether a segment was admitted before a file began; None where its head cannot be read."""
        key = (file.first, block)
        if key not in self._marked:
            if len(self._marked) >= MARKED_MAX:
                self._marked.clear()
            self._marked[key] = self._load_marked(file, block)
        ranges = self._marked[key]
        return None if ranges is None else segment in ranges

    def _load_marked(self, view: FileView, block: bytes) -> RangeSet | None:
        """What the head of a file says of a block; the head never changes, and may be long."""
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
        """All segments of a block in one file. Who asks for one old segment asks for its neighbours next.

        The file being written grows: only what came since the last time is read.
        """
        first = view.files[number].first
        scanned = self._segments.pop((first, block), None) or _Scanned(first)
        with suppress(FileNotFoundError):
            file = self._reader.open_file(view.files[number])
            try:
                self._scan(scanned, view, number, file, block)
            finally:
                file.close()
        self._segments[first, block] = scanned  # the latest asked for is the last to go
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
        """A file was replaced: what was remembered of it does not hold."""
        self._segments = {key: scanned for key, scanned in self._segments.items() if key[0] != first}
        self._marked = {key: ranges for key, ranges in self._marked.items() if key[0] != first}
