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
        """The log in ``folder``, recovered; a new one has no file before its first record.

        Blocks that are ``held`` are not forgotten, however old. ``sealed``: the last file at a clean stop.
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
        """Entries that failed their checksum or are missing; never served."""
        return self._reader.damaged

    @property
    def stored_at_us(self) -> int:
        """When the last record was stored, staged ones counted."""
        return self._stored_at_us

    @property
    def incarnation(self) -> int:
        """The one that goes with the durable end as a position."""
        return self._incarnations.at(self.entry_durable)

    def incarnation_at(self, entry: int) -> int:
        """The one that goes with an entry as a position."""
        return self._incarnations.at(entry)

    def holds(self, incarnation: int, entry: int, end: int | None = None) -> bool:
        """Whether the log up to ``entry``, or ``end`` if it reaches so far, is what that incarnation had."""
        last = self._incarnations.end_of(incarnation)
        reach = entry if end is None else max(entry, min(end, self.entry_durable))
        return entry <= self.entry_durable and reach <= last

    @property
    def staged_bytes(self) -> int:
        """What ``take`` would hand over."""
        return self._stage.bytes

    @property
    def creates(self) -> str | None:
        """The file that the next write makes, if it makes one."""
        first = self._stage.head_first
        return None if first is None else f"{self._folder}/{file_name(first)}"

    @property
    def shared_bytes(self) -> int | None:
        """How much is staged for a write that can share its sync with other logs; None for one that cannot."""
        shared = self._stage.head_first is None and self._options.sync and self._tail.proven
        return self._stage.bytes if shared else None

    def retitle(self, title: Title) -> None:
        """What is said of the topic has changed: what is appended from now on stands in a file that says so."""
        self._title, self._retitled = title, True
        self._schemas = versions_of(title)

    def follow(self, settings: TopicSettings) -> None:
        """What the topic's settings say holds from the next write on."""
        self._options = self._base_options.for_topic(settings)
        self.of_state = settings.state

    def release(self) -> bool:
        """Closes the file between writes, for others to be open; False where a write is under way."""
        if self._under_way is None:
            self._tail.release()
        return self._under_way is None

    def forget_blocks(self, now_us: int) -> int:
        """Lets go of the marks of blocks that were closed or silent for long; returns how many there were."""
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
        """Whether some file goes once the messages in it have expired."""
        return bool(self._tail.expires_us) or any(file.expires_us is not None for file in self._view.files)

    @property
    def place(self) -> LogPlace:
        every_bytes = self._options.index_every_bytes
        return LogPlace(self._folder, self._shard, self._shard_power, self._title, every_bytes)

    @property
    def rotate_bytes(self) -> int:
        return self._options.rotate_bytes

    def stored_files(self) -> list[StoredFile]:
        """The durable files, oldest first, as retention looks at them."""
        # What is staged may begin a new file: then nothing is said of the one that it follows.
        expires_us = self._tail.expires_us if self._stage.head_first is None else None
        return self._view.stored(self._stored_at_us, expires_us or None)

    # --- reading ------------------------------------------------------------------------------------

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

    def walk_heads(self, entry: int, heads: list[RecordHead]) -> Run:
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
        """Stages a segment and moves its block's mark; returns its first entry. Nothing is durable yet.

        ``count`` 0 records a refusal: it takes no entry and is never read back, but its number is used. The
        stored time is raised to that of the record before where a clock was set back. ``expires_us`` is when
        all of its messages have expired.
        """
        assert len(block) == BLOCK_BYTES and len(body) <= FILE_BODY_BYTES_MAX - RECORD_HEADER_BYTES
        stage = self._stage
        if not stage.parts:
            self._begin(stage, stored_at_us, block)
        if count and not self._begun:
            self._begin_incarnation(stored_at_us)
        self._tally_room = min(self._tally_room + RECORD_HEADER_BYTES + len(body), TALLY_BYTES)
        if self.marks.book.dirty:  # whose it is stands before it
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
        """Stages what the ledger knows of blocks and no file does, or leaves it for later where that is a lot.

        Refused segments cost no more room on the disk than stored ones, however many there are. ``last``: there
        is no later.
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
        """Stages that a producer closed its block."""
        stage = self._stage
        if not stage.parts:
            self._begin(stage, at_us, block)
        known = self.marks.get(block)
        stage.ended.append((block, known.ended_us if known is not None else None))
        self.marks.end(block, at_us)
        stage.add_event(BlockEnded(self.entry_next, block, at_us), self._shard)
        self.stage_tallies(at_us)

    def drop_before(self, entry: int) -> int:
        """Drops the files whose entries all lie before ``entry``; returns the first entry that is kept now.

        They are out of sight at once. That they go is staged like a record; the next write removes them
        when it is durable, and opening finishes what a crash cuts short. If that write fails they are back.
        The last file goes too if nothing is on its way to it: a new one, without entries, takes its place.
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
            self._begin(stage, self._stored_at_us, kept=kept, anew=everything)
        if stage.kept_before is None:
            stage.kept_before = self.entry_first
        stage.removed += files[:count]
        self.entry_first = kept
        stage.add_event(Dropped(self.entry_next, kept), self._shard)
        self._show(self._view._replace(files=files[count:], entry_first=kept))
        self._reader.forget_before(kept)
        return kept

    def rotate(self) -> bool:
        """Closes the file being written, by a new one; False where something is on its way to it just now."""
        tail, stage = self._tail, self._stage
        if stage.parts or self._under_way is not None:
            self._retitled = True  # what is appended after that begins a new one anyway
            return False
        if tail.end is not None and self.entry_next > tail.first:
            self._begin(stage, self._stored_at_us, anew=True)
            stage.add_event(Dropped(self.entry_next, self.entry_first), self._shard)
        return True

    def lose_upto(self, entry: int) -> None:
        """Goes on at ``entry``: what lies before it was served once and is not in these files.

        For a caller that knows of positions ahead of the log, as after restoring an old copy of its folder.
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
        """Stages a new incarnation if entries are lost at the end; True where it did.

        It is durable before anyone hears of it.
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
        anew: bool = False,
    ) -> None:
        """Decides where a stage goes. The head of a new file holds the marks as they are before it.

        ``block`` is what the first of the stage belongs to, ``kept`` the first kept entry if that changes.
        ``anew`` asks for a new file.
        """
        # A file without entries of its own would share its name with the one before it.
        tail = self._tail
        full = (
            tail.end is not None
            and (
                anew or self._retitled or self._options.full(tail.end - tail.head_bytes, tail.oldest_us, now_us)
            )
            and self.entry_next > tail.first
        )
        if tail.end is not None and not full:
            stage.offset = tail.end
            stage.point_due = self._point_due()
            return
        first = self.entry_next
        previous = [file.first for file in self._view.files if file.first < first]
        if tail.end is not None:  # a write under way may be making the file before this one
            previous.append(tail.first)
        kept = self.entry_first if kept is None else kept
        head = FileHead(first, max(previous, default=None), kept, self._stored_at_us)
        # An opened log may run for years: what it can forget goes whenever the marks are written down.
        self._forget(now_us, block)
        marks, forgotten = self.marks.encode_within(MARKS_BYTES_MAX, keep=block)
        self.report.blocks_forgotten += forgotten
        body = MarksBody(head, list(self.damaged), self._incarnations, marks)
        frames = encode_head(body, title=self._title, shard=self._shard, shard_power=self._shard_power)
        stage.begin_file(first, frames, self._stored_at_us)
        stage.closes_us = tail.begin()
        self._retitled = False

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
        """The write is durable: returns the records that can be read now, in order (refusals left out)."""
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
        """The write did not become durable: it and what was staged since are as if they had never come.

        The file is not written again: the next append starts a new one at ``entry_durable``, and recovery
        ignores what the old one holds from there on.
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
        """What readers see from now on."""
        if view.files is not self._view.files:
            self._closed_bytes = sum(file.bytes for file in view.files[:-1])
        self._view = view
        self.bytes = self._closed_bytes + (view.end_offset if view.files else 0)

    def close(self) -> SealedFile | None:
        """Writes what is staged, leaves the last file synced and without reserved room; returns how. Does IO.

        With a write under way everything is left as it is: the next opening reads what came of it.
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


class OpenLogs:
    """The logs that keep their file open: those that were written to last.

    Opening a file again costs a few microseconds in a worker thread; an open file costs a handle, of which a
    process has thousands while a node may have tens of thousands of shards.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._logs: dict[ShardLog, None] = {}
        """The one that was written to longest ago first."""

    def wrote(self, log: ShardLog) -> None:
        """A log was written to: it is the last to be closed."""
        self._logs.pop(log, None)
        self._logs[log] = None
        while len(self._logs) > self._count_max:
            oldest = next(iter(self._logs))
            del self._logs[oldest]
            oldest.release()  # where a write is under way it comes back here behind it

    def forget(self, log: ShardLog) -> None:
        self._logs.pop(log, None)

    def __len__(self) -> int:
        return len(self._logs)
