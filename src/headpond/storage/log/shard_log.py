"""The log of one shard of a topic: admitted segments in order, durable before anyone reads them.

``append`` stages a record in memory and moves the marks in the same step. ``take`` returns everything staged as
one ``LogWrite``, which a worker thread runs. ``committed`` makes it readable. ``failed`` sets marks and entries
back to the durable ones, and the log never writes to that file again. Readers see durable files only, through
one ``View`` that is replaced as a whole.

``LogWrite.run``, ``read``, ``walk_heads`` and ``find_time`` may run in other threads at any time; everything
else belongs to the thread that appends.
"""

from __future__ import annotations

from collections.abc import Iterable

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.model.identity import BLOCK_BYTES
from headpond.model.ranges import RangeSet
from headpond.model.topic_settings import TopicSettings
from headpond.storage.disk import Disk
from headpond.storage.frame_write import STATUS_BYTES, FileRotation
from headpond.storage.log.append import LogOptions, LogStage, LogWrite, Tail, rotation_of
from headpond.storage.log.book import refusal_code
from headpond.storage.log.format import (
    Began,
    BlockEnded,
    Dropped,
    FileHead,
    MarksBody,
    Tallied,
    encode_head,
    file_name,
    index_name,
)
from headpond.storage.log.heads import walk_heads
from headpond.storage.log.latest_rows import keyless_rows
from headpond.storage.log.marks import DAY_US
from headpond.storage.log.read import (
    ClosedFile,
    FileView,
    LogReader,
    Replaced,
    Run,
    StoredFile,
    StoredRecord,
    View,
    segment_of,
)
from headpond.storage.log.recover import recover
from headpond.storage.log.replay import FileDamage, RecoveredLog, RecoveryReport
from headpond.storage.log.rewrite import LogPlace
from headpond.storage.log.segments import SegmentFinder
from headpond.storage.seal import SealedFile
from headpond.wire.control.links import RecordHead
from headpond.wire.frame import FILE_BODY_BYTES_MAX
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader
from headpond.wire.title import Title
from headpond.wire.typed.versions import versions_of

__all__ = ["FileDamage", "LogOptions", "LogWrite", "RecoveryReport", "Run", "ShardLog", "StoredRecord"]

MARKS_BYTES_MAX = FILE_BODY_BYTES_MAX // 2
"""What the marks in the head of a file may take; the damaged spans and the frame itself fit beside them."""
TALLY_BYTES = 1024 * 1024
"""What tallies may take in the files beyond the room that records take."""


class ShardLog:
    """Opened with ``ShardLog.open``."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        found: RecoveredLog,
        *,
        title: Title,
        shard: int,
        shard_power: int,
        options: LogOptions,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._shard = shard
        self._shard_power = shard_power
        self._title = title
        self._schemas = versions_of(title)
        """The schemas of a typed topic."""
        self._retitled = found.outdated
        """Whether the file being written begins with an older title."""
        self._options = self._base_options = options
        self.of_state = False
        """Whether the topic is a state topic."""
        self.peer_hold_us = 0
        """The log remembers each block at least this long, ended or not: a peer may send it again."""
        self.report = found.report
        self.marks = found.marks
        self._incarnations = found.incarnations
        self._lost_from = found.lost_from
        """The first of the entries that were lost at the end when the log was opened."""
        self._begun = False
        """Whether this run has begun an incarnation, or staged that."""
        self.entry_first = found.kept
        """The first entry that is kept."""
        self.entry_next = found.next_entry
        """The next entry to assign, staged ones counted."""
        self.entry_taken = found.next_entry
        """One past the last entry that ``take`` returned."""
        self.compacted = found.compacted
        """Entries that compaction took out; every subscription has settled them."""
        self._stored_at_us = found.stored_at_us
        self._tally_room = TALLY_BYTES
        self._tail = Tail(found)
        self._stage = LogStage()
        self._under_way: LogWrite | None = None
        self.bytes_written = 0
        """Since the log was opened."""
        self.bytes = 0
        """What the log takes on disk, without reserved room."""
        self._closed_bytes = 0
        self._view = View((), found.kept, found.next_entry, 0, [])
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
        settings: TopicSettings | None = None,
        held: frozenset[bytes] = frozenset(),
        peer_hold_us: int = 0,
        sealed: SealedFile | None = None,
    ) -> ShardLog:
        """Recovers the log in ``folder``; a new log has no file before its first record.

        The log does not forget the blocks in ``held``, however old. ``sealed`` is the last file at a clean
        stop.
        """
        options = options or LogOptions()
        every_bytes = options.index_every_bytes
        found = recover(disk, folder, title=title, shard=shard, index_every_bytes=every_bytes, sealed=sealed)
        log = cls(disk, folder, found, title=title, shard=shard, shard_power=shard_power, options=options)
        if settings is not None:
            log.follow(settings)
        log.marks.held = held
        log.peer_hold_us = peer_hold_us
        log.forget_blocks(now_us)
        return log

    # --- facts and settings ---------------------------------------------------------------------------

    @property
    def entry_durable(self) -> int:
        """One past the last durable entry."""
        return self._view.entry_durable

    @property
    def damaged(self) -> RangeSet:
        """Entries that fail their checksum or are missing; the log never serves them."""
        return self._reader.damaged

    @property
    def stored_at_us(self) -> int:
        """The time of the last record, staged ones counted."""
        return self._stored_at_us

    @property
    def incarnation(self) -> int:
        """The incarnation of the durable end as a position."""
        return self._incarnations.at(self.entry_durable)

    def incarnation_at(self, entry: int) -> int:
        """The incarnation of an entry as a position."""
        return self._incarnations.at(entry)

    def holds(self, incarnation: int, entry: int, end: int | None = None) -> bool:
        """Whether the log up to ``entry``, or ``end`` if it is that long, is the log of that incarnation."""
        last = self._incarnations.end_of(incarnation)
        reach = entry if end is None else max(entry, min(end, self.entry_durable))
        return entry <= self.entry_durable and reach <= last

    @property
    def staged_bytes(self) -> int:
        """The number of bytes that ``take`` would return."""
        return self._stage.bytes

    @property
    def creates(self) -> str | None:
        """The file that the next write creates; None if it creates none."""
        first = self._stage.head_first
        return None if first is None else f"{self._folder}/{file_name(first)}"

    @property
    def shared_bytes(self) -> int | None:
        """The number of staged bytes if the write can share its sync with other logs; None if it cannot."""
        shared = self._stage.head_first is None and self._options.sync and self._tail.proven
        return self._stage.bytes if shared else None

    def retitle(self, title: Title) -> None:
        """The title of the topic has changed: the next append begins a file with the new one."""
        self._title, self._retitled = title, True
        self._schemas = versions_of(title)

    def follow(self, settings: TopicSettings) -> None:
        """Applies the settings of the topic from the next write on."""
        self._options = self._base_options.for_topic(settings)
        self.of_state = settings.state

    def release(self) -> bool:
        """Closes the file between writes, so that others can be open; False if a write is under way."""
        if self._under_way is None:
            self._tail.release()
        return self._under_way is None

    def forget_blocks(self, now_us: int) -> int:
        """Forgets blocks that have been closed or silent for long; returns how many."""
        return len(self._forget(now_us))

    def _forget(self, now_us: int, keep: bytes | None = None) -> list[bytes]:
        hold_us = self.peer_hold_us
        return self.marks.forget(
            now_us,
            after_end_us=max(DAY_US, hold_us),
            after_silence_us=max(self._options.forget_silent_us, hold_us),
            keep=keep,
        )

    @property
    def may_expire(self) -> bool:
        """Whether the expiry of its messages can delete some file."""
        return bool(self._tail.expires_us) or any(file.expires_us is not None for file in self._view.files)

    @property
    def place(self) -> LogPlace:
        every_bytes = self._options.index_every_bytes
        return LogPlace(self._folder, self._shard, self._shard_power, self._title, every_bytes)

    @property
    def rotate_bytes(self) -> int:
        return self._options.rotate_bytes

    def stored_files(self) -> list[StoredFile]:
        """The durable files, oldest first, with the facts for retention."""
        # If the stage begins a new file, the tail no longer describes the last durable one.
        expires_us = self._tail.expires_us if self._stage.head_first is None else None
        return self._view.stored(self._stored_at_us, expires_us or None)

    # --- reading ------------------------------------------------------------------------------------

    def compacted_in(self, records: Iterable[StoredRecord]) -> bytes:
        """A bitmap of the removed entries of these records; empty if there are none."""
        found = EntrySet()
        for record in records if self.of_state else ():
            found.include(self.compacted.within(record.header.first_entry, record.header.end_entry))
            found.include(self.taken_out_of(record))
        return found.encode() if found else b""

    def taken_out_of(self, record: StoredRecord) -> EntrySet:
        """Entries of a record without a row: the node that this one follows may have compacted it."""
        try:
            return keyless_rows(segment_of(record), record.header.first_entry, self._schemas)
        except HeadpondError:  # the reader of the record gets the error
            return EntrySet()

    def read(self, entry: int, bytes_max: int) -> Run:
        """Durable records from the one that holds ``entry``, at least one if there is any.

        It checks checksums every time; entries that fail are in ``lost``, and in ``damaged`` from then on.
        Entries before ``entry_first`` are in ``lost`` too.
        """
        while True:
            try:
                return self._reader.read(self._view, entry, bytes_max)
            except Replaced:
                continue

    def walk_heads(self, entry: int, heads: list[RecordHead]) -> Run:
        """Adds the heads of the segments from ``entry`` on (heads.py)."""
        return walk_heads(self._reader, self._view, self._shard, entry, heads)

    def find_segment(self, block: bytes, segment: int) -> tuple[int, int, int] | None:
        """(origin_crc, first entry, count) of an admitted segment; None if the log no longer has it."""
        known = self.marks.get(block)
        if known is None or segment not in known.admitted:
            return None
        recent = known.recent.get(segment)
        return recent if recent is not None else self._finder.find(self._view, block, segment)

    def find_time(self, stored_at_us: int) -> int:
        """The first durable entry stored at or after a time; ``entry_durable`` if there is none."""
        while True:
            try:
                return self._reader.find_time(self._view, stored_at_us)
            except Replaced:
                continue

    def find_run(self, stored_at_us: int) -> Run:
        """An empty run at the first entry stored at or after a time."""
        return Run([], self.find_time(stored_at_us), [])

    # --- appending ----------------------------------------------------------------------------------

    def append(
        self,
        *,
        block: bytes,
        segment: int,
        count: int,
        origin_crc: int,
        stored_at_us: int,
        body: bytes,
        expires_us: int | None = None,
    ) -> int:
        """Stages a segment and moves the marks of its block; returns its first entry. Nothing is durable yet.

        ``count`` 0 records a refusal: it takes no entry and readers never get it, but its number is used. If a
        clock was set back, the record gets the time of the one before. ``expires_us`` is when all its messages
        have expired.
        """
        assert len(block) == BLOCK_BYTES and len(body) <= FILE_BODY_BYTES_MAX - RECORD_HEADER_BYTES
        stage = self._stage
        if not stage.parts:
            self._begin(stage, stored_at_us, block)
        if count and not self._begun:
            self._begin_incarnation(stored_at_us)
        self._tally_room = min(self._tally_room + RECORD_HEADER_BYTES + len(body), TALLY_BYTES)
        if self.marks.book.dirty:  # the producer of a block comes before its first record
            self.stage_tallies(stored_at_us)
        if stored_at_us < self._stored_at_us:
            stored_at_us = self._stored_at_us
        self._stored_at_us = stored_at_us
        if count:
            self._tail.append(stored_at_us, expires_us)
        known = self.marks.get(block)
        if known is not None and known.ended_us is not None:
            stage.ended.append((block, known.ended_us))
        first = self.entry_next
        stage.note_point(first, stored_at_us, self._options.index_every_bytes)
        header = RecordHeader(first, count, block, stored_at_us, origin_crc)
        stage.add_record(header, self._shard, segment, body)
        code = "" if count else refusal_code(body)
        late = self.marks.admit(
            block, segment, origin_crc=origin_crc, first_entry=first, count=count, at_us=stored_at_us, code=code
        )
        stage.admitted.append((block, segment, code, late))
        self.entry_next = first + count
        return first

    def stage_tallies(self, now_us: int, *, last: bool = False) -> None:
        """Stages the tallies of blocks that changed, or defers them if tallies took too much room already.

        So refused segments cost no more room on disk than stored ones, however many come. ``last`` never
        defers.
        """
        if self._tally_room <= 0 and not last:
            return
        if self.marks.book.dirty and not self._stage.parts:
            self._begin(self._stage, now_us)
        before = self._stage.bytes
        for block, tally in self.marks.book.take_dirty():
            self._stage.add_event(Tallied(self.entry_next, block, tally), self._shard)
            self._stage.tallied.append(block)
        self._tally_room -= self._stage.bytes - before

    def append_end(self, block: bytes, at_us: int) -> None:
        """Stages the end of a block that its producer closed."""
        stage = self._stage
        if not stage.parts:
            self._begin(stage, at_us, block)
        known = self.marks.get(block)
        stage.ended.append((block, known.ended_us if known is not None else None))
        self.marks.end(block, at_us)
        stage.add_event(BlockEnded(self.entry_next, block, at_us), self._shard)
        self.stage_tallies(at_us)

    def drop_before(self, entry: int) -> int:
        """Drops the files whose entries are all before ``entry``; returns the first kept entry.

        Readers do not see them from now on. The drop is staged like a record; once it is durable its write
        removes the files, and an opening finishes a drop that a crash cut short. If the write fails, the files
        are back. The last file is dropped too if no write to it is staged or under way: a new one without
        entries replaces it.
        """
        files, stage = self._view.files, self._stage
        count = 0
        while count + 1 < len(files) and files[count + 1].first <= entry:
            count += 1
        idle = not stage.parts and self._under_way is None
        everything = idle and count + 1 == len(files) and files[-1].first < self.entry_next <= entry
        count += everything
        if count == 0:
            return self.entry_first
        kept = self.entry_next if everything else files[count].first
        if not stage.parts:
            self._begin(stage, self._stored_at_us, kept=kept, new_file=everything)
        if stage.kept_before is None:
            stage.kept_before = self.entry_first
        stage.removed += files[:count]
        self.entry_first = kept
        stage.add_event(Dropped(self.entry_next, kept), self._shard)
        self._show(self._view._replace(files=files[count:], entry_first=kept))
        self._reader.forget_before(kept)
        return kept

    def rotate(self) -> bool:
        """Closes the file being written and begins a new one; False if a write to it is staged or under way."""
        tail, stage = self._tail, self._stage
        if stage.parts or self._under_way is not None:
            self._retitled = True  # the next stage begins a new file
            return False
        if tail.end is not None and self.entry_next > tail.first:
            self._begin(stage, self._stored_at_us, new_file=True)
            stage.add_event(Dropped(self.entry_next, self.entry_first), self._shard)
        return True

    def lose_upto(self, entry: int) -> None:
        """Continues at ``entry``: all entries up to it were served once and are not in these files.

        For a caller that knows positions ahead of the log, such as after the restore of an old copy of its
        folder.
        """
        assert not self._stage.parts and self._under_way is None
        if entry <= self.entry_next:
            return
        self._reader.lose(self.entry_next, entry)
        self.marks.book.lost += entry - self.entry_next
        if self._lost_from is None:
            self._lost_from = self.entry_next
        self._begun = False
        self.entry_next = self.entry_taken = entry
        self._tail.leave()
        self._show(self._view._replace(entry_durable=entry))

    def stage_loss(self, now_us: int) -> bool:
        """Stages a new incarnation if entries are lost at the end; returns whether it did.

        The incarnation is durable before any position names it.
        """
        if self._lost_from is None or self._begun:
            return False
        self._begin(self._stage, self._stored_at_us)
        self._begin_incarnation(now_us)
        return True

    def _begin_incarnation(self, now_us: int) -> None:
        first = self.entry_next if self._lost_from is None else self._lost_from
        name = self._incarnations.begin(now_us, first)
        self._stage.add_event(Began(self.entry_next, name, first), self._shard)
        self._begun = self._stage.begun = True

    def _begin(
        self,
        stage: LogStage,
        now_us: int,
        block: bytes | None = None,
        kept: int | None = None,
        *,
        new_file: bool = False,
    ) -> None:
        """Decides to which file a stage goes. The head of a new file holds the marks before it.

        ``block`` is the block of the first record, ``kept`` the first kept entry if that changes. ``new_file``
        asks for a new file.
        """
        tail = self._tail
        if tail.end is not None:
            size = tail.end - tail.head_bytes
            due = new_file or self._retitled or self._options.full(size, tail.oldest_us, now_us)
            # A file without entries stays: the next one would have the same name.
            if not due or self.entry_next <= tail.first:
                stage.offset = tail.end
                stage.point_due = self._point_due()
                return
        first = self.entry_next
        previous = [file.first for file in self._view.files if file.first < first]
        if tail.end is not None:  # a write under way may create the file before this one
            previous.append(tail.first)
        kept = self.entry_first if kept is None else kept
        head = FileHead(first, max(previous, default=None), kept, self._stored_at_us)
        # A log may stay open for years: it forgets old blocks whenever it writes its marks.
        self._forget(now_us, block)
        marks, forgotten = self.marks.encode_within(MARKS_BYTES_MAX, keep=block)
        self.report.blocks_forgotten += forgotten
        body = MarksBody(head, list(self.damaged), self._incarnations, marks)
        frames = encode_head(body, title=self._title, shard=self._shard, shard_power=self._shard_power)
        stage.begin_file(first, frames, self._stored_at_us)
        stage.closes_us = tail.begin()
        self._retitled = False

    def _point_due(self) -> int:
        """The offset from which the index of the file being written needs another point."""
        points = self._view.points
        if self._under_way is not None and (self._under_way.stage.points or self._under_way.created):
            points = self._under_way.stage.points
        return points[-1].offset + self._options.index_every_bytes if points else 0

    # --- committing ---------------------------------------------------------------------------------

    def take(self) -> LogWrite | None:
        """Returns everything staged as one write, or None. Call ``committed`` or ``failed`` before the next."""
        assert self._under_way is None, "the write before is not done"
        stage = self._stage
        if not stage.parts:
            return None
        tail = self._tail
        creating = stage.head_first is not None
        first = stage.head_first if stage.head_first is not None else tail.first
        offset, size, parts = stage.offset, stage.bytes, stage.parts
        if tail.status_owed is not None and not creating:
            offset, size, parts = offset - STATUS_BYTES, size + STATUS_BYTES, [tail.status_owed, *parts]
        write = LogWrite(
            folder=self._folder,
            path=f"{self._folder}/{file_name(first)}",
            shard=self._shard,
            file=None if creating else tail.file,
            reopen=not creating,
            offset=offset,
            parts=parts,
            size=size,
            end_entry=self.entry_next,
            sync=self._options.sync,
            reserve_to=self._options.reserve_for(
                offset + size + STATUS_BYTES, reserved=0 if creating else tail.reserved_bytes
            ),
            rotation=self._rotation(first, stage) if creating else None,
            removals=stage.removals(self._folder),
            outdated=f"{self._folder}/{index_name(first)}",
        )
        write.stage = stage
        self._under_way = write
        self._stage = LogStage()
        tail.first = first
        tail.planned(write, stage.head_bytes)
        self.entry_taken = self.entry_next
        return write

    def _rotation(self, first: int, stage: LogStage) -> FileRotation | None:
        sound, expires_us = self._tail.sound, stage.closes_us
        return rotation_of(self._view, first, self._folder, self._shard, sound=sound, expires_us=expires_us)

    def committed(self, write: LogWrite) -> list[StoredRecord]:
        """The write is durable: returns the records that readers can see now, in order, without refusals."""
        assert write is self._under_way
        self._under_way = None
        stage, view = write.stage, self._view
        end_offset = write.end + (STATUS_BYTES if write.status_owed is None else 0)
        tail = self._tail
        tail.wrote(write)
        self.bytes_written += write.bytes
        if write.created:
            self._reader.forget(tail.first)
            self._finder.forget(tail.first)
            files = tuple(file for file in view.files if file.first < tail.first)
            if files and files[-1] == view.files[-1]:
                closed = files[-1]._replace(bytes=view.end_offset, expires_us=stage.closes_us)
                files = (*files[:-1], closed)
            files = (*files, FileView(tail.first, stage.floor_us, 0))
            points = stage.points
        else:
            files, points = view.files, view.points
            points += stage.points
        self._show(View(files, self.entry_first, write.end_entry, end_offset, points))
        for admitted in stage.admitted:
            self.marks.settle(admitted[0])
        return stage.records

    def failed(self, write: LogWrite, error: OSError) -> None:
        """The write did not become durable: undoes it and everything staged since.

        The log does not write to the file again: the next append begins a new one at ``entry_durable``, and
        recovery ignores the entries of the old one from there on.
        """
        assert write is self._under_way
        self._under_way = None
        for stage in (self._stage, write.stage):  # newest first
            self._undo(stage)
        self._stage = LogStage()
        self.entry_next = self.entry_taken = self._view.entry_durable
        self._tail.failed(write)

    def _undo(self, stage: LogStage) -> None:
        stage.take_back(self.marks)
        if stage.begun:
            self._incarnations.take_back()
            self._begun = False
        if stage.kept_before is not None:
            self.entry_first = stage.kept_before
            files = (*stage.removed, *self._view.files)
            self._show(self._view._replace(files=files, entry_first=stage.kept_before))

    def _show(self, view: View) -> None:
        """Replaces the view for readers."""
        if view.files is not self._view.files:
            self._closed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.bytes = self._closed_bytes + (view.end_offset if view.files else 0)

    def close(self) -> SealedFile | None:
        """Writes what is staged, and leaves the last file synced, without reserved room. Does IO.

        Returns the entry for the seal. Does nothing while a write is under way: the next opening reads its
        result.
        """
        if self._under_way is not None:
            return None
        self.stage_tallies(self._stored_at_us, last=True)
        write = self.take()
        if write is not None:
            write.run(self._disk)
            self.committed(write)
        path = f"{self._folder}/{file_name(self._tail.first)}"
        view = self._view
        self._tail.finish(self._disk, path, view.end_offset, self.entry_durable, self._shard)
        if not view.files:
            return None
        last = f"{self._folder}/{view.files[-1].name}"
        return SealedFile(last, view.end_offset, view.entry_durable, self.entry_first)

    # --- compaction ---------------------------------------------------------------------------------

    def closed_files(self) -> list[ClosedFile]:
        """The files that the log no longer writes to, oldest first."""
        return [ClosedFile(file, self._view.end_entry(at)) for at, file in enumerate(self._view.files[:-1])]

    def known_blocks(self) -> frozenset[bytes]:
        """The blocks whose segments a sender may repeat."""
        return self.marks.blocks()

    def has_files(self, files: list[FileView]) -> bool:
        """Whether readers still use all these files: none was dropped or replaced."""
        return set(files) <= set(self._view.files)

    def replace(self, files: list[FileView], compacted: FileView) -> None:
        """Makes readers use a durable file of the same entries instead of these, which can then be removed.

        A read under way continues with its open file.
        """
        assert self.has_files(files)
        place = self._view.files.index(files[0])
        rest = [file for file in self._view.files if file not in files]
        rest.insert(place, compacted)
        self._show(self._view._replace(files=tuple(rest)))
        self._reader.replaced(file.id for file in files)
        for file in files:
            self._finder.forget(file.first)


class OpenLogs:
    """The logs that keep their file open: those that were written to last.

    Opening a file again costs a few microseconds in a worker thread; an open file costs a handle, of which a
    process has thousands while a node may have tens of thousands of shards.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._logs: dict[ShardLog, None] = {}
        """Least recently written first."""

    def wrote(self, log: ShardLog) -> None:
        """Notes a write to a log; closes the least recently written ones past the limit."""
        self._logs.pop(log, None)
        self._logs[log] = None
        while len(self._logs) > self._count_max:
            oldest = next(iter(self._logs))
            del self._logs[oldest]
            oldest.release()  # a log with a write under way comes back here after it

    def forget(self, log: ShardLog) -> None:
        self._logs.pop(log, None)

    def __len__(self) -> int:
        return len(self._logs)
