"""The log of one shard of a topic: admitted segments in order, durable before anyone reads them.

``append`` stages a record in memory and moves the marks in the same step. ``take`` returns everything staged as
one ``LogBatch``, which a worker thread runs. ``committed`` makes it readable. ``failed`` sets marks and entries
back to the durable ones, and the log never writes to that file again. Readers see durable files only, through
one ``View`` that is replaced as a whole.

``LogBatch.run``, ``read``, ``walk_heads`` and ``find_time`` may run in other threads at any time; everything
else belongs to the thread that appends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter, itemgetter

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.model.identity import BLOCK_BYTES
from headpond.model.ranges import RangeSet
from headpond.model.topic_settings import TopicSettings
from headpond.storage.append import Appender
from headpond.storage.disk import Disk
from headpond.storage.log.batch import MEAN_BYTES_MAX, ClosingFile, LogBatch, LogOptions
from headpond.storage.log.book import refusal_code
from headpond.storage.log.format import (
    Began,
    BlockEnded,
    BlockTallied,
    Dropped,
    Event,
    FileHead,
    LogPlace,
    MarksBody,
    encode_event,
    encode_head,
)
from headpond.storage.log.index import FileIndex, Point
from headpond.storage.log.latest_rows import keyless_rows
from headpond.storage.log.marks import DAY_US, Stored
from headpond.storage.log.read import (
    ClosedFile,
    FileView,
    LogReader,
    ReadResult,
    Replaced,
    StoredFile,
    StoredRecord,
    View,
    segment_of,
)
from headpond.storage.log.recover import RecoveredLog, recover
from headpond.storage.log.segments import SegmentFinder, walk_heads
from headpond.storage.seal import SealedFile
from headpond.wire.control.links import RecordHead
from headpond.wire.frame import FILE_BODY_BYTES_MAX
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader
from headpond.wire.title import Title
from headpond.wire.typed.versions import versions_of

MARKS_BYTES_MAX = FILE_BODY_BYTES_MAX // 2
"""What the marks in the head of a file may take; the damaged spans and the frame itself fit beside them."""
HEADS_MIN = 8
"""A file is closed early only if it is so many times larger than its head, which may hold many marks."""
TALLY_BYTES = 1024 * 1024
"""What tallies may take in the files beyond the room that records take."""


class ShardLog:
    """Opened with ``ShardLog.open``."""

    def __init__(self, disk: Disk, place: LogPlace, found: RecoveredLog, options: LogOptions) -> None:
        self._disk = disk
        self.place = place
        self._shard = place.shard
        self._schemas = versions_of(place.title)
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
        self.entry_durable = found.next_entry
        """One past the last durable entry."""
        self.compacted = found.compacted
        """Entries that compaction took out; every subscription has settled them."""
        self.packed_to = 0
        """Packing has looked at the closed files before this entry."""
        self.stored_at_us = found.stored_at_us
        """The time of the last record, staged ones counted."""
        self._tally_room = TALLY_BYTES
        self.appender = Appender(LogBatch, place.shard, self._reserve_to, self._leave_file)
        self.appender.sync = options.sync
        self._file_first = found.files[-1].first if found.files else -1
        """The first entry of the file being written; -1 without a file."""
        self._head_bytes = found.head_bytes
        """The length of its head, which does not count for rotation."""
        self._file_segments = found.segments
        """How many it has."""
        self._oldest_us: int | None = None
        """The time of its first record."""
        self._expires_us: int | None = None
        """When all its messages have expired; 0 if it has none, None if some never do."""
        if found.file is not None:
            self.appender.resume(place.path(self._file_first), found.file, found.end_offset)
            self.appender.release()  # thousands of logs do not hold a file each
            self._oldest_us = found.points[0].stored_at_us if found.points else None
            self._expires_us = found.expires_us
        self.bytes_written = 0
        """Since the log was opened."""
        self.bytes = 0
        """What the log takes on disk, without reserved room."""
        self._closed_bytes = 0
        self._view = View((), found.kept, found.next_entry, 0, [])
        self._show(View(tuple(found.files), found.kept, found.next_entry, found.end_offset, found.points))
        self._reader = LogReader(disk, place)
        self._finder = SegmentFinder(self._reader)
        self._reader.damaged = found.damaged

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
        new: bool = False,
    ) -> ShardLog:
        """Recovers the log in ``folder``; a new log has no file before its first record.

        The log does not forget the blocks in ``held``, however old. ``sealed`` is the last file at a clean
        stop. A ``new`` log has no folder yet: opening it does no IO.
        """
        options = options or LogOptions()
        sizes = (options.index_every_bytes, options.pack_segments_min)
        place = LogPlace(folder, title, shard, shard_power, *sizes)
        log = cls(disk, place, RecoveredLog() if new else recover(disk, place, sealed), options)
        if settings is not None:
            log.follow(settings)
        log.marks.held = held
        log.peer_hold_us = peer_hold_us
        log.forget_blocks(now_us)
        return log

    # --- facts and settings ---------------------------------------------------------------------------

    @property
    def entry_taken(self) -> int:
        """One past the last entry that ``take`` returned."""
        under_way = self.appender.under_way
        return self.entry_durable if under_way is None else under_way.end_entry

    @property
    def damaged(self) -> RangeSet:
        """Entries that fail their checksum or are missing; the log never serves them."""
        return self._reader.damaged

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

    def retitle(self, title: Title) -> None:
        """The title of the topic has changed: the next append begins a file with the new one."""
        self.place, self._retitled = replace(self.place, title=title), True
        self._schemas = versions_of(title)

    def follow(self, settings: TopicSettings) -> None:
        """Applies the settings of the topic from the next write on."""
        self._options = self._base_options.for_topic(settings)
        self.appender.sync = self._options.sync
        self.of_state = settings.state

    def release(self) -> None:
        """Closes the file between writes, so that others can be open."""
        if self.appender.under_way is None:
            self.appender.release()

    def forget_blocks(self, now_us: int, keep: bytes | None = None) -> int:
        """Forgets blocks but ``keep`` that have been closed or silent for long; returns how many."""
        after_end_us = max(DAY_US, self.peer_hold_us)
        after_silence_us = max(self._options.forget_silent_us, self.peer_hold_us)
        return self.marks.forget(now_us, after_end_us, after_silence_us, keep)

    @property
    def may_expire(self) -> bool:
        """Whether the expiry of its messages can delete some file."""
        return bool(self._expires_us) or any(file.expires_us is not None for file in self._view.files)

    @property
    def rotate_bytes(self) -> int:
        return self._options.rotate_bytes

    def stored_files(self) -> list[StoredFile]:
        """The durable files, oldest first, with the facts for retention."""
        # If the staged batch begins a file, the expiry no longer belongs to the last durable one.
        expires_us = None if self.appender.staged.creates else self._expires_us
        return self._view.stored(self.stored_at_us, expires_us or None)

    def known_times(self) -> list[tuple[int, int]]:
        """When some entries were stored, in order, without reading: the first of the files, those of the index
        points of the last file, and the last entry. An entry between two of them was stored between."""
        known = [(file.first, file.floor_us) for file in self._view.files if file.floor_us]
        known += [(point.entry, point.stored_at_us) for point in self._view.points]
        return [*known, (self.entry_durable - 1, self.stored_at_us)] if self.entry_durable else []

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

    def read(self, entry: int, bytes_max: int, *, packed: bool = False) -> ReadResult:
        """Durable records from the one that holds ``entry``, at least one if there is any.

        With ``packed`` a run of small segments may come as one packed record (wire/plain/packed.py), else as
        the original records.

        It checks checksums every time; entries that fail are in ``lost``, and in ``damaged`` from then on.
        Entries before ``entry_first`` are in ``lost`` too.
        """
        while True:
            with suppress(Replaced):
                return self._reader.read(self._view, entry, bytes_max, packed=packed)

    def walk_heads(self, entry: int, heads: list[RecordHead]) -> ReadResult:
        """Fills ``heads`` with the segments from ``entry`` on (segments.py)."""
        while True:
            heads.clear()
            with suppress(Replaced):
                return walk_heads(self._reader, self._view, entry, heads)

    def find_segments(self, wanted: list[tuple[bytes, int]]) -> dict[tuple[bytes, int], Stored | None]:
        """Admitted segments, by block and number, as the files have them; None for one that no file has.

        It may run in another thread, in one at a time.
        """
        found: dict[tuple[bytes, int], Stored | None] = {}
        for key in wanted:
            while key not in found:
                with suppress(Replaced):
                    found[key] = self._finder.find(self._view, *key)
        return found

    def find_time(self, stored_at_us: int) -> int:
        """The first durable entry stored at or after a time; ``entry_durable`` if there is none."""
        while True:
            with suppress(Replaced):
                return self._reader.find_time(self._view, stored_at_us)

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
        batch, marks = self.appender.staged, self.marks
        if not batch.parts:
            self._begin(batch, stored_at_us, block)
        if count and not self._begun:
            self._begin_incarnation(stored_at_us)
        self._tally_room = min(self._tally_room + RECORD_HEADER_BYTES + len(body), TALLY_BYTES)
        if marks.book.dirty:  # the producer of a block comes before its first record
            self.stage_tallies(stored_at_us)
        if stored_at_us < self.stored_at_us:
            stored_at_us = self.stored_at_us
        self.stored_at_us = stored_at_us
        if count:
            self._file_segments += 1
            if self._oldest_us is None:
                self._oldest_us = stored_at_us
            if self._expires_us is not None:
                self._expires_us = None if expires_us is None else max(self._expires_us, expires_us)
        first, offset = self.entry_next, batch.offset + batch.bytes
        if offset >= batch.point_due:
            batch.points.append(Point(first, stored_at_us, offset))
            batch.point_due = offset + self._options.index_every_bytes
        header = RecordHeader(first, count, block, stored_at_us, origin_crc)
        batch.add_record(header, self._shard, segment, body)
        code = "" if count else refusal_code(body)
        late, ended_us = marks.admit(block, segment, (origin_crc, first, count), stored_at_us, code)
        if ended_us is not None:
            batch.ended.append((block, ended_us))
        batch.admitted.append((block, segment, code, late))
        self.entry_next = batch.end_entry = first + count
        return first

    def stage_tallies(self, now_us: int, *, last: bool = False) -> None:
        """Stages the tallies of blocks that changed, or defers them if tallies took too much room already.

        So refused segments cost no more room on disk than stored ones, however many come. ``last`` never
        defers.
        """
        if self._tally_room <= 0 and not last:
            return
        batch = self.appender.staged
        if self.marks.book.dirty and not batch.parts:
            self._begin(batch, now_us)
        before = batch.bytes
        for block, tally in self.marks.book.take_dirty():
            self._add_event(BlockTallied(self.entry_next, block, tally))
            batch.tallied.append(block)
        self._tally_room -= batch.bytes - before

    def _add_event(self, event: Event) -> None:
        self.appender.staged.add(encode_event(event, self._shard))

    def append_end(self, block: bytes, at_us: int) -> None:
        """Stages the end of a block that its producer closed."""
        batch = self.appender.staged
        if not batch.parts:
            self._begin(batch, at_us, block)
        known = self.marks.get(block)
        batch.ended.append((block, known.ended_us if known is not None else None))
        self.marks.end(block, at_us)
        self._add_event(BlockEnded(self.entry_next, block, at_us))
        self.stage_tallies(at_us)

    def drop_before(self, entry: int) -> int:
        """Drops the files whose entries are all before ``entry``; returns the first kept entry.

        Readers do not see them from now on. The drop is staged like a record; once it is durable its write
        removes the files, and an opening finishes a drop that a crash cut short. If the write fails, the files
        are back. The last file is dropped too if no write to it is staged or under way: a new one without
        entries replaces it.
        """
        files, batch = self._view.files, self.appender.staged
        count = 0
        while count + 1 < len(files) and files[count + 1].first <= entry:
            count += 1
        idle = not batch.parts and self.appender.under_way is None
        everything = idle and count + 1 == len(files) and files[-1].first < self.entry_next <= entry
        count += everything
        if count == 0:
            return self.entry_first
        kept = self.entry_next if everything else files[count].first
        if not batch.parts:
            self._begin(batch, self.stored_at_us, kept=kept, new_file=everything)
        if batch.kept_before is None:
            batch.kept_before = self.entry_first
        batch.drop(files[:count], self.place.folder)
        self.entry_first = kept
        self._add_event(Dropped(self.entry_next, kept))
        self._show(self._view._replace(files=files[count:], entry_first=kept))
        self._reader.forget_before(kept)
        return kept

    def rotate(self) -> bool:
        """Closes the file being written and begins a new one; False if a write to it is staged or under way."""
        batch = self.appender.staged
        if batch.parts or self.appender.under_way is not None:
            self._retitled = True  # the next batch begins a new file
            return False
        if self.appender.end is not None and self.entry_next > self._file_first:
            self._begin(batch, self.stored_at_us, new_file=True)
            self._add_event(Dropped(self.entry_next, self.entry_first))
        return True

    def lose_upto(self, entry: int) -> None:
        """Continues at ``entry``: all entries up to it were served once and are not in these files.

        For a caller that knows positions ahead of the log, such as after the restore of an old copy of its
        folder.
        """
        assert not self.appender.staged.parts and self.appender.under_way is None
        if entry <= self.entry_next:
            return
        self._reader.lose(self.entry_next, entry)
        self.marks.book.lost += entry - self.entry_next
        if self._lost_from is None:
            self._lost_from = self.entry_next
        self._begun = False
        self.entry_next = entry
        self.appender.leave()
        self._expires_us = None
        self._show(self._view._replace(entry_durable=entry))

    def stage_loss(self, now_us: int) -> bool:
        """Stages a new incarnation if entries are lost at the end; returns whether it did.

        The incarnation is durable before any position names it.
        """
        if self._lost_from is None or self._begun:
            return False
        self._begin(self.appender.staged, self.stored_at_us)
        self._begin_incarnation(now_us)
        return True

    def _begin_incarnation(self, now_us: int) -> None:
        first = self.entry_next if self._lost_from is None else self._lost_from
        name = self._incarnations.begin(now_us, first)
        self._add_event(Began(self.entry_next, name, first))
        self._begun = self.appender.staged.begun = True

    def _begin(
        self,
        batch: LogBatch,
        now_us: int,
        block: bytes | None = None,
        kept: int | None = None,
        *,
        new_file: bool = False,
    ) -> None:
        """Decides to which file a batch goes. The head of a new file holds the marks before it.

        ``block`` is the block of the first record, ``kept`` the first kept entry if that changes. ``new_file``
        asks for a new file.
        """
        batch.end_entry = first = self.entry_next
        end, options = self.appender.end, self._options
        if end is not None:
            size = end - self._head_bytes
            due = new_file or self._retitled or size >= options.rotate_bytes
            due = due or (size >= options.rotate_small_bytes and self._is_worth_packing(size))
            if options.rotate_us and self._oldest_us is not None:
                due = due or now_us - self._oldest_us >= options.rotate_us
            # A file without entries stays: the next one would have the same name.
            if not due or first <= self._file_first:
                self.appender.follow()
                points, under_way = self._view.points, self.appender.under_way
                if under_way is not None and (under_way.points or under_way.creates):
                    points = under_way.points
                batch.point_due = points[-1].offset + options.index_every_bytes if points else 0
                return
        previous = [file.first for file in self._view.files if file.first < first]
        if end is not None:  # a write under way may create the file before this one
            previous.append(self._file_first)
        kept = self.entry_first if kept is None else kept
        head = FileHead(first, max(previous, default=None), kept, self.stored_at_us)
        # A log may stay open for years: it forgets old blocks whenever it writes its marks.
        self.forget_blocks(now_us, block)
        marks, forgotten = self.marks.encode_within(MARKS_BYTES_MAX, keep=block)
        self.report.blocks_forgotten += forgotten
        body = MarksBody(head, list(self.damaged), self._incarnations, marks)
        frames = encode_head(body, self.place)
        self.appender.begin_file(self.place.path(first))
        batch.add(frames)
        batch.first, batch.floor_us = first, self.stored_at_us
        batch.closes_us = self._expires_us or None
        self._file_first, self._head_bytes, self._file_segments = first, len(frames), 0
        self._oldest_us, self._expires_us = None, 0
        self._retitled = False

    def _is_worth_packing(self, size: int) -> bool:
        """Whether the file being written, of ``size`` bytes behind its head, will be packed."""
        packs = self._schemas is None and not self.of_state and not self._disk.ordered
        small = self._file_segments >= max(self._options.pack_segments_min, size // MEAN_BYTES_MAX)
        return packs and small and size >= HEADS_MIN * self._head_bytes

    # --- committing ---------------------------------------------------------------------------------

    def take(self) -> LogBatch | None:
        """Returns everything staged as one write, or None. Call ``committed`` or ``failed`` before the next."""
        return self.appender.take()

    def _reserve_to(self, _batch: LogBatch, end: int) -> int:
        return self._options.reserve_to(end)

    def _leave_file(self, batch: LogBatch) -> None:
        """A batch begins a new file, and also closes the one before it, unless that has no entries."""
        view = self._with_status()
        if view.files and view.files[-1].first != batch.first:
            index = FileIndex(view.files[-1].first, view.entry_durable, view.end_offset, list(view.points))
            sound = self.appender.sound
            batch.closed_file = ClosingFile(self.place, index, sound, batch.closes_us)

    def committed(self, write: LogBatch) -> list[StoredRecord]:
        """The write is durable: returns the records that readers can see now, in order, without refusals."""
        self.appender.committed(write)
        view = self._view
        files, points = view.files, view.points
        self.bytes_written += write.bytes
        if write.creates:
            self._reader.forget(write.first)
            self._finder.forget(write.first)
            files = tuple(file for file in files if file.first < write.first)
            if files and files[-1] == view.files[-1]:
                closed = files[-1]._replace(bytes=view.end_offset, expires_us=write.closes_us)
                files = (*files[:-1], closed)
            files = (*files, FileView(write.first, write.floor_us, 0))
            points = write.points
        else:
            points += write.points
        self._show(View(files, self.entry_first, write.end_entry, self.appender.durable_end, points))
        self.marks.settle(map(itemgetter(0), write.admitted))
        return write.records

    def failed(self, write: LogBatch) -> None:
        """The write did not become durable: undoes it and everything staged since.

        The log does not write to the file again: the next append begins a new one at ``entry_durable``, and
        recovery ignores the entries of the old one from there on.
        """
        for batch in (self.appender.staged, write):  # newest first
            self._undo(batch)
        self.appender.failed(write)
        self.entry_next = self.entry_durable
        self._expires_us = None

    def _undo(self, batch: LogBatch) -> None:
        batch.withdraw_from(self.marks)
        if batch.begun:
            self._incarnations.take_back()
            self._begun = False
        if batch.kept_before is not None:
            self.entry_first = batch.kept_before
            files = (*batch.removed, *self._view.files)
            self._show(self._view._replace(files=files, entry_first=batch.kept_before))

    def _show(self, view: View) -> None:
        """Replaces the view for readers."""
        if view.files is not self._view.files:
            self._closed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.entry_durable = view.entry_durable
        self.bytes = self._closed_bytes + (view.end_offset if view.files else 0)

    def _with_status(self) -> View:
        """The view, up to the end of the STATUS, which may have been written since the view was made."""
        if self._view.files and self.appender.durable_end:
            self._show(self._view._replace(end_offset=self.appender.durable_end))
        return self._view

    def close(self) -> SealedFile | None:
        """Writes what is staged, and leaves the last file synced, without reserved room. Does IO.

        Returns the entry for the seal. Does nothing while a write is under way: the next opening reads its
        result.
        """
        if self.appender.under_way is not None:
            return None
        self.stage_tallies(self.stored_at_us, last=True)
        write = self.take()
        if write is not None:
            write.run(self._disk)
            self.committed(write)
        self.appender.finish(self._disk)
        view = self._with_status()
        if not view.files:
            return None
        last = self.place.path(*view.files[-1].id)
        return SealedFile(last, view.end_offset, view.entry_durable, self.entry_first)

    # --- compaction ---------------------------------------------------------------------------------

    def closed_files(self) -> list[ClosedFile]:
        """The files that the log no longer writes to, oldest first."""
        return [ClosedFile(file, self._view.end_entry(at)) for at, file in enumerate(self._view.files[:-1])]

    def next_unpacked(self) -> ClosedFile | None:
        """The oldest closed file from ``packed_to`` on that was never rewritten."""
        files = self._view.files
        start = bisect_left(files, self.packed_to, key=attrgetter("first"))
        for at in range(start, len(files) - 1):
            if not files[at].generation:
                return ClosedFile(files[at], self._view.end_entry(at))
        return None

    def has_files(self, files: list[FileView]) -> bool:
        """Whether readers still use all these neighbours: none was dropped or replaced."""
        place = self._place_of(files[0])
        return self._view.files[place : place + len(files)] == tuple(files)

    def _place_of(self, file: FileView) -> int:
        return bisect_left(self._view.files, file.first, key=attrgetter("first"))

    def replace(self, files: list[FileView], compacted: FileView) -> None:
        """Makes readers use a durable file of the same entries instead of these neighbours, to be removed then.

        A read under way continues with its open file.
        """
        assert self.has_files(files)
        all_files, place = self._view.files, self._place_of(files[0])
        all_files = (*all_files[:place], compacted, *all_files[place + len(files) :])
        self._show(self._view._replace(files=all_files))
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
