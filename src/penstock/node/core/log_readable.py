"""What can be read of a log: its durable files, seen through one ``View`` that is replaced whole.

``read`` and ``find_time`` may run in other threads while the log is appended to.
"""

from __future__ import annotations

from penstock.files.disk import Disk
from penstock.model.ranges import RangeSet
from penstock.node.core.log_reader import LogReader, Run, View
from penstock.node.core.log_replay import Recovered
from penstock.node.core.log_segments import SegmentFinder


class ReadableLog:
    def __init__(self, disk: Disk, folder: str, found: Recovered, shard: int, index_every_bytes: int) -> None:
        self.entry_first = found.kept
        """The first entry that is kept."""
        self.marks = found.marks
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

    def read(self, entry: int, bytes_max: int) -> Run:
        """Durable records from the one that holds ``entry``, at least one if there is any.

        Checksums are checked every time; what fails is in ``lost``, and in ``damaged`` from then on.
        Entries before ``entry_first`` are in ``lost`` too.
        """
        return self._reader.read(self._view, entry, bytes_max)

    def find_segment(self, block: bytes, segment: int) -> tuple[int, int, int] | None:
        """(origin_crc, first entry, count) of an admitted segment; None where it is not kept any more."""
        known = self.marks.get(block)
        if known is None or segment not in known.admitted:
            return None
        recent = known.recent.get(segment)
        return recent if recent is not None else self._finder.find(self._view, block, segment)

    def find_time(self, stored_at_us: int) -> int:
        """The first durable entry stored at or after a time; ``entry_durable`` where there is none."""
        return self._reader.find_time(self._view, stored_at_us)

    def find_run(self, stored_at_us: int) -> Run:
        """An empty run at the first entry stored at or after a time."""
        return Run([], self.find_time(stored_at_us), [])

    def _show(self, view: View) -> None:
        """What readers see from now on."""
        if view.files is not self._view.files:
            self._sealed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.bytes = self._sealed_bytes + (view.end_offset if view.files else 0)
