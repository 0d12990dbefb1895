"""The log of one topic shard: what was admitted, in order, on disk before anyone hears of it.

Appending stages a record in memory and moves the marks in the same step. ``take`` hands everything staged
over as one ``LogWrite``, which a worker thread runs; ``committed`` makes it readable, ``failed`` puts marks
and entries back to what is durable and never writes to that file again. Reading touches durable bytes only.

``append``, ``take``, ``committed``, ``failed``, ``drop_before`` and ``find_segment`` belong to one thread;
``LogWrite.run``, ``read`` and ``find_time`` may run in others at the same time.
"""

from __future__ import annotations

from headpond.files.disk import Disk
from headpond.files.frame_write import STATUS_BYTES, Rotation
from headpond.files.seal import SealedFile
from headpond.model.identity import BLOCK_BYTES
from headpond.model.topic_settings import TopicSettings
from headpond.node.core.book import refusal_code
from headpond.node.core.log_file import (
    Began,
    BlockEnded,
    Dropped,
    Head,
    MarksBody,
    Tallied,
    encode_head,
    file_name,
    index_name,
)
from headpond.node.core.log_reader import FileView, Run, StoredRecord, View
from headpond.node.core.log_replay import Damage, RecoveryReport
from headpond.node.core.log_stage import LogOptions, LogWrite, Stage, rotation_of
from headpond.node.core.log_state import TALLY_BYTES, LogState
from headpond.node.core.recovery import recover
from headpond.wire.frame import FILE_BODY_BYTES_MAX
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader
from headpond.wire.title import Title

__all__ = ["Damage", "LogOptions", "LogWrite", "RecoveryReport", "Run", "ShardLog", "StoredRecord"]

MARKS_BYTES_MAX = FILE_BODY_BYTES_MAX // 2
"""What the marks of a file's head may take; the damaged spans and the frame itself fit beside them."""


class ShardLog(LogState):
    """Opened with ``ShardLog.open``."""

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
        stage: Stage,
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
        head = Head(first, max(previous, default=None), kept, self._stored_at_us)
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
        self._stage = Stage()
        tail.first = first
        tail.planned(write, stage.head_bytes)
        self.entry_taken = self.entry_next
        return write

    def _rotation(self, first: int, stage: Stage) -> Rotation | None:
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
        self._stage = Stage()
        self.entry_next = self.entry_taken = self._view.entry_durable
        self._tail.failed(write)

    def _undo(self, stage: Stage) -> None:
        stage.take_back(self.marks)
        if stage.begun:
            self._incarnations.take_back()
            self._begun = False
        if stage.kept_before is not None:
            self.entry_first = stage.kept_before
            files = (*stage.removed, *self._view.files)
            self._show(self._view._replace(files=files, entry_first=stage.kept_before))

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
