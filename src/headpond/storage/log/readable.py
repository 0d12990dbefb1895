"""What can be read of a log: its durable files, seen through one ``View`` that is replaced whole.

``read`` and ``find_time`` may run in other threads while the log is appended to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.model.ranges import RangeSet
from headpond.storage.disk import Disk
from headpond.storage.log.heads import walk_heads
from headpond.storage.log.latest_rows import keyless_rows
from headpond.storage.log.read import FileView, LogReader, Replaced, Run, StoredRecord, View, segment_of
from headpond.storage.log.replay import Recovered
from headpond.storage.log.segments import SegmentFinder
from headpond.wire.control.links import Head
from headpond.wire.typed.versions import SchemaVersions


class ClosedFile(NamedTuple):
    """A file that is not written to any more, and one past its last entry."""

    file: FileView
    end: int


class ReadableLog:
    def __init__(self, disk: Disk, folder: str, found: Recovered, shard: int, index_every_bytes: int) -> None:
        self.entry_first = found.kept
        """The first entry that is kept."""
        self.marks = found.marks
        self.compacted = found.compacted
        """Entries that compaction took out; every subscription has settled them."""
        self._schemas: SchemaVersions | None = None
        """Of a typed topic."""
        self.of_state = False
        """Whether it is a state topic's."""
        self.bytes = 0
        """What the log takes on disk, without reserved room."""
        self._disk = disk
        self._folder = folder
        self._shard = shard
        self._sealed_bytes = 0
        self._view = View((), found.kept, found.next_entry, 0, [])
        files = tuple(found.files)
        self._show(self._view._replace(files=files, end_offset=found.end_offset, points=found.points))
        self._reader = LogReader(disk, folder, shard, index_every_bytes)
        self._reader.damaged = found.damaged
        self._finder = SegmentFinder(self._reader, shard)

    @property
    def entry_durable(self) -> int:
        """One past the last durable entry."""
        return self._view.entry_durable

    @property
    def damaged(self) -> RangeSet:
        """Entries that failed their checksum or are missing; never served."""
        return self._reader.damaged

    def compacted_in(self, records: Iterable[StoredRecord]) -> bytes:
        """A bitmap of the entries of these records that compaction took out; empty where there is none."""
        found = EntrySet()
        for record in records if self.of_state else ():
            found.include(self.compacted.within(record.header.first_entry, record.header.end_entry))
            found.include(self.taken_out_of(record))
        return found.encode() if found else b""

    def taken_out_of(self, record: StoredRecord) -> EntrySet:
        """Entries of a state topic whose row is gone: a node that this one follows may have compacted it."""
        try:
            return keyless_rows(segment_of(record), record.header.first_entry, self._schemas)
        except HeadpondError:  # its reader finds out
            return EntrySet()

    def read(self, entry: int, bytes_max: int) -> Run:
        """Durable records from the one that holds ``entry``, at least one if there is any.

        Checksums are checked every time; what fails is in ``lost``, and in ``damaged`` from then on.
        Entries before ``entry_first`` are in ``lost`` too.
        """
        while True:
            try:
                return self._reader.read(self._view, entry, bytes_max)
            except Replaced:
                continue

    def walk_heads(self, entry: int, heads: list[Head]) -> Run:
        """What stands here from ``entry`` on, without rows (log_heads); may run in another thread."""
        return walk_heads(self._reader, self._view, self._shard, entry, heads)

    def find_segment(self, block: bytes, segment: int) -> tuple[int, int, int] | None:
        """(origin_crc, first entry, count) of an admitted segment; None where it is not kept any more."""
        known = self.marks.get(block)
        if known is None or segment not in known.admitted:
            return None
        recent = known.recent.get(segment)
        return recent if recent is not None else self._finder.find(self._view, block, segment)

    def find_time(self, stored_at_us: int) -> int:
        """The first durable entry stored at or after a time; ``entry_durable`` where there is none."""
        while True:
            try:
                return self._reader.find_time(self._view, stored_at_us)
            except Replaced:
                continue

    # --- compaction ---------------------------------------------------------------------------------

    def closed_files(self) -> list[ClosedFile]:
        """The files that are not written to any more, oldest first."""
        return [ClosedFile(file, self._view.end_entry(at)) for at, file in enumerate(self._view.files[:-1])]

    def known_blocks(self) -> frozenset[bytes]:
        """The blocks whose segments may come again."""
        return self.marks.blocks()

    def has_files(self, files: list[FileView]) -> bool:
        """Whether these are still the files that are read; none was dropped or replaced."""
        return set(files) <= set(self._view.files)

    def replace(self, files: list[FileView], compacted: FileView) -> None:
        """A durable file of the same entries is read in the place of these, from now on.

        Who reads one of them at this moment is not disturbed. They can be removed.
        """
        assert self.has_files(files)
        place = self._view.files.index(files[0])
        rest = [file for file in self._view.files if file not in files]
        rest.insert(place, compacted)
        self._show(self._view._replace(files=tuple(rest)))
        self._reader.replaced(file.id for file in files)
        for file in files:
            self._finder.forget(file.first)

    def find_run(self, stored_at_us: int) -> Run:
        """An empty run at the first entry stored at or after a time."""
        return Run([], self.find_time(stored_at_us), [])

    def _show(self, view: View) -> None:
        """What readers see from now on."""
        if view.files is not self._view.files:
            self._sealed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.bytes = self._sealed_bytes + (view.end_offset if view.files else 0)
