"""The log of one topic shard: what was admitted, in order, on disk before anyone hears of it.

Appending stages a record in memory and moves the marks in the same step. ``take`` hands everything staged
over as one ``LogWrite``, which a worker thread runs; ``committed`` makes it readable, ``failed`` puts marks
and entries back to what is durable and never writes to that file again. Reading touches durable bytes only.

``append``, ``take``, ``committed``, ``failed``, ``drop_before`` and ``find_segment`` belong to one thread;
``LogWrite.run``, ``read`` and ``find_time`` may run in others at the same time.
"""

from __future__ import annotations

from penstock.files.disk import Disk, DiskFile
from penstock.files.frame_write import STATUS_BYTES, Status, encode_status
from penstock.model.identity import BLOCK_BYTES
from penstock.model.ranges import RangeSet
from penstock.node.core.log_file import BlockEnded, Dropped, Head, encode_head, file_name, index_name
from penstock.node.core.log_reader import FileView, LogReader, Run, StoredRecord, View
from penstock.node.core.log_replay import Damage, Recovered, RecoveryReport
from penstock.node.core.log_segments import SegmentFinder
from penstock.node.core.log_stage import LogOptions, LogWrite, Stage, seal_last
from penstock.node.core.recovery import recover
from penstock.wire.frame import FILE_BODY_BYTES_MAX
from penstock.wire.record import RECORD_HEADER_BYTES, RecordHeader
from penstock.wire.title import Title

__all__ = ["Damage", "LogOptions", "LogWrite", "RecoveryReport", "Run", "ShardLog", "StoredRecord"]

MARKS_BYTES_MAX = FILE_BODY_BYTES_MAX // 2
"""What the marks of a file's head may take; the damaged spans and the frame itself fit beside them."""


class ShardLog:
    """Opened with ``ShardLog.open``."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        found: Recovered,
        *,
        title: Title,
        shard: int,
        shard_power: int,
        options: LogOptions,
    ) -> None:
        self.report = found.report
        self.incarnation = found.incarnation
        self.entry_first = found.kept
        """The first entry that is kept."""
        self.entry_next = found.next_entry
        """The next to assign, staged ones counted."""
        self.entry_taken = found.next_entry
        """One past the last entry that ``take`` handed over."""
        self.marks = found.marks
        self.bytes = 0
        """What the log takes on disk, without reserved room."""
        self._disk = disk
        self._folder = folder
        self._title = title
        self._shard = shard
        self._shard_power = shard_power
        self._options = options
        self._stored_at_us = found.stored_at_us
        self._file: DiskFile | None = found.file
        self._proven = True
        """Whether the file ends with a STATUS that says that all of it was synced."""
        self._reserved_bytes = found.file.size() if found.file is not None else 0
        self._planned_end: int | None = found.end_offset if found.file is not None else None
        """Where the next write goes once the one under way is done; None where it begins a new file."""
        self._planned_first = found.files[-1].first if found.files else -1
        self._head_bytes = found.head_bytes
        """Of the file that the next write goes to: a long head must not make a file full by itself."""
        self._status_owed: bytes | None = None
        self._sound = found.file is not None
        """Whether the last file may be touched again."""
        self._stage = Stage()
        self._under_way: LogWrite | None = None
        self._sealed_bytes = 0
        self._view = View((), self.entry_first, self.entry_next, 0, [])
        files = tuple(found.files)
        self._show(self._view._replace(files=files, end_offset=found.end_offset, points=found.points))
        self._reader = LogReader(disk, folder, shard, options.index_every_bytes)
        self._reader.damaged = found.damaged
        self._finder = SegmentFinder(self._reader, shard)

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        title: Title,
        shard: int,
        shard_power: int,
        now_us: int,
        options: LogOptions | None = None,
    ) -> ShardLog:
        """The log in ``folder``, recovered. A new one has no file before its first record."""
        options = options or LogOptions()
        found = recover(disk, folder, title=title, shard=shard, index_every_bytes=options.index_every_bytes)
        log = cls(disk, folder, found, title=title, shard=shard, shard_power=shard_power, options=options)
        log.marks.forget(now_us, after_silence_us=options.forget_silent_us)
        return log

    @property
    def entry_durable(self) -> int:
        """One past the last durable entry."""
        return self._view.entry_durable

    @property
    def damaged(self) -> RangeSet:
        """Entries that failed their checksum or are missing; never served."""
        return self._reader.damaged

    @property
    def staged_bytes(self) -> int:
        """What ``take`` would hand over."""
        return self._stage.bytes

    # --- appending ----------------------------------------------------------------------------------

    def append(
        self, *, block: bytes, segment: int, count: int, origin_crc: int, stored_at_us: int, body: bytes
    ) -> int:
        """Stages a segment and moves its block's mark; returns its first entry. Nothing is durable yet.

        ``count`` 0 records a refusal: it takes no entry and is never read back, but its number is used. The
        stored time is raised to that of the record before where a clock was set back.
        """
        assert len(block) == BLOCK_BYTES and len(body) <= FILE_BODY_BYTES_MAX - RECORD_HEADER_BYTES
        stage = self._stage
        if not stage.parts:
            self._begin(stage, stored_at_us, block)
        if stored_at_us < self._stored_at_us:
            stored_at_us = self._stored_at_us
        self._stored_at_us = stored_at_us
        known = self.marks.get(block)
        if known is not None and known.ended_us is not None:
            stage.ended.append((block, known.ended_us))
        first = self.entry_next
        stage.note_point(first, stored_at_us, self._options.index_every_bytes)
        header = RecordHeader(first, count, block, stored_at_us, origin_crc)
        stage.add_record(header, self._shard, segment, body)
        self.marks.admit(
            block, segment, origin_crc=origin_crc, first_entry=first, count=count, at_us=stored_at_us
        )
        self.entry_next = first + count
        return first

    def append_end(self, block: bytes, at_us: int) -> None:
        """Stages that a producer closed its block."""
        stage = self._stage
        if not stage.parts:
            self._begin(stage, at_us, block)
        known = self.marks.get(block)
        stage.ended.append((block, known.ended_us if known is not None else None))
        self.marks.end(block, at_us)
        stage.add_event(BlockEnded(self.entry_next, block, at_us), self._shard)

    def drop_before(self, entry: int) -> int:
        """Drops the files whose entries all lie before ``entry``; returns the first entry that is kept now.

        They are out of sight at once. That they go is staged like a record; the next write removes them
        when it is durable, and opening finishes what a crash cuts short. If that write fails they are back.
        """
        files = self._view.files
        count = 0
        while count + 1 < len(files) and files[count + 1].first <= entry:
            count += 1
        if count == 0:
            return self.entry_first
        stage = self._stage
        kept = files[count].first
        if not stage.parts:
            self._begin(stage, self._stored_at_us, kept=kept)
        if stage.kept_before is None:
            stage.kept_before = self.entry_first
        stage.removed += files[:count]
        self.entry_first = kept
        stage.add_event(Dropped(self.entry_next, kept), self._shard)
        self._show(self._view._replace(files=files[count:], entry_first=kept))
        self._reader.forget_before(kept)
        return kept

    def begin_incarnation(self, entry: int) -> None:
        """Goes on at ``entry``: what lies before it was served once and is not in these files.

        For a caller that knows of positions ahead of the log, as after restoring an old copy of its folder.
        """
        assert not self._stage.parts and self._under_way is None
        if entry <= self.entry_next:
            return
        self._reader.lose(self.entry_next, entry)
        self.incarnation += 1
        self.entry_next = self.entry_taken = entry
        self._leave_file()
        self._show(self._view._replace(entry_durable=entry))

    def _begin(self, stage: Stage, now_us: int, block: bytes | None = None, kept: int | None = None) -> None:
        """Decides where a stage goes. The head of a new file holds the marks as they are before it.

        ``block`` is what the first of the stage belongs to, ``kept`` the first kept entry if that changes.
        """
        # A file without entries of its own would share its name with the one before it.
        full = (
            self._planned_end is not None
            and self._planned_end - self._head_bytes >= self._options.rotate_bytes
            and self.entry_next > self._planned_first
        )
        if self._planned_end is not None and not full:
            stage.offset = self._planned_end
            stage.point_due = self._point_due()
            return
        first = self.entry_next
        previous = [file.first for file in self._view.files if file.first < first]
        if self._planned_end is not None:  # a write under way may be making the file before this one
            previous.append(self._planned_first)
        kept = self.entry_first if kept is None else kept
        head = Head(self.incarnation, first, max(previous, default=None), kept, self._stored_at_us)
        # An opened log may run for years: what it can forget goes whenever the marks are written down.
        self.marks.forget(now_us, after_silence_us=self._options.forget_silent_us, keep=block)
        marks, forgotten = self.marks.encode_within(MARKS_BYTES_MAX, keep=block)
        self.report.blocks_forgotten += forgotten
        frames = encode_head(
            head, self.damaged, marks, title=self._title, shard=self._shard, shard_power=self._shard_power
        )
        stage.begin_file(first, frames, self._stored_at_us)

    def _point_due(self) -> int:
        """From where on the file being written wants another point in its index."""
        points = self._view.points
        if self._under_way is not None and (self._under_way.stage.points or self._under_way.created):
            points = self._under_way.stage.points
        return points[-1].offset + self._options.index_every_bytes if points else 0

    # --- committing ---------------------------------------------------------------------------------

    def take(self) -> LogWrite | None:
        """Hands over everything staged, or None. ``committed`` or ``failed`` comes before the next."""
        assert self._under_way is None, "the write before is not done"
        stage = self._stage
        if not stage.parts:
            return None
        creating = stage.head_first is not None
        first = stage.head_first if stage.head_first is not None else self._planned_first
        offset, size, parts = stage.offset, stage.bytes, stage.parts
        if self._status_owed is not None and not creating:
            offset, size, parts = offset - STATUS_BYTES, size + STATUS_BYTES, [self._status_owed, *parts]
        self._status_owed = None
        write = LogWrite(
            folder=self._folder,
            path=self._path(first),
            shard=self._shard,
            file=None if creating else self._file,
            offset=offset,
            parts=parts,
            size=size,
            end_entry=self.entry_next,
            sync=self._options.sync,
            reserve_to=self._options.reserve_for(
                offset + size + STATUS_BYTES, reserved=0 if creating else self._reserved_bytes
            ),
            seal=seal_last(self._view, first, self._folder, self._shard, sound=self._sound)
            if creating
            else None,
            removals=stage.removals(self._folder),
            outdated=f"{self._folder}/{index_name(first)}",
        )
        write.stage = stage
        self._under_way = write
        self._stage = Stage()
        self._planned_first = first
        self._planned_end = write.end + STATUS_BYTES
        if creating:
            self._head_bytes = stage.head_bytes
        self.entry_taken = self.entry_next
        return write

    def committed(self, write: LogWrite) -> list[StoredRecord]:
        """The write is durable: returns the records that can be read now, in order (refusals left out)."""
        assert write is self._under_way
        self._under_way = None
        stage, view = write.stage, self._view
        end_offset = write.end + (STATUS_BYTES if write.status_owed is None else 0)
        if write.created:
            self._adopt(write)
            files = tuple(file for file in view.files if file.first < self._planned_first)
            if files and files[-1] == view.files[-1]:
                files = (*files[:-1], files[-1]._replace(bytes=view.end_offset))
            files = (*files, FileView(self._planned_first, stage.floor_us, 0))
            points = stage.points
        else:
            files, points = view.files, view.points
            points += stage.points
        self._reserved_bytes = max(self._reserved_bytes, write.reserve_to)
        self._proven = write.sync and write.status_owed is None
        self._status_owed = write.status_owed
        self._show(View(files, self.entry_first, write.end_entry, end_offset, points))
        for block, _ in stage.admitted:
            self.marks.settle(block)
        return stage.records

    def _adopt(self, write: LogWrite) -> None:
        """The new file is the one that is appended to from now on."""
        if self._file is not None:
            self._file.close()
        self._file = write.file
        self._reserved_bytes = 0
        self._sound = True
        self._reader.forget(self._planned_first)
        self._finder.forget(self._planned_first)

    def failed(self, write: LogWrite, error: OSError) -> None:
        """The write did not become durable: it and what was staged since are as if they had never come.

        The file is not written again: the next append starts a new one at ``entry_durable``, and recovery
        ignores what the old one holds from there on.
        """
        assert write is self._under_way
        self._under_way = None
        for stage in (self._stage, write.stage):  # newest first
            self._undo(stage)
        self._stage = Stage()
        self.entry_next = self.entry_taken = self._view.entry_durable
        self._leave_file()
        if not write.created:
            self._sound = False

    def _undo(self, stage: Stage) -> None:
        stage.take_back(self.marks)
        if stage.kept_before is not None:
            self.entry_first = stage.kept_before
            files = (*stage.removed, *self._view.files)
            self._show(self._view._replace(files=files, entry_first=stage.kept_before))

    def _leave_file(self) -> None:
        """The next append begins a new file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._planned_end = None
        self._status_owed = None

    def close(self) -> None:
        """Writes what is staged, leaves the last file synced and without reserved room. Does IO.

        With a write under way everything is left as it is: the next opening reads what came of it.
        """
        if self._under_way is not None:
            return
        write = self.take()
        if write is not None:
            write.run(self._disk)
            self.committed(write)
        if self._file is None:
            return
        end = self._view.end_offset
        self._file.truncate(end)
        self._file.sync()
        if not self._proven:
            self._file.write_at(end, [encode_status(Status(end, self.entry_durable), self._shard)])
            self._file.sync()
        self._leave_file()

    # --- reading ------------------------------------------------------------------------------------

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

    def _show(self, view: View) -> None:
        """What readers see from now on."""
        if view.files is not self._view.files:
            self._sealed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.bytes = self._sealed_bytes + view.end_offset

    def _path(self, first: int) -> str:
        return f"{self._folder}/{file_name(first)}"
