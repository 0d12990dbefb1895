"""Opens a log: reads its last file in full, and only the heads of the others.

storage/recovery.py has the rule for each file. A log adds:

1. Recovery replays frames onto the marks at the head of the last file. If those are damaged, it starts in the
   file before it.
2. The entries lost in damage are exactly those between the valid record before it and the valid record, STATUS
   or event behind it.
3. Damage without a record behind it may hide entries that were served. A new incarnation then begins, in a new
   file, at the end that the next STATUS or the seal names, or else behind an upper bound.
4. Every file names the one before it, so recovery notices a missing file and reports its exact span. After a
   clean stop the seal names the last file.
5. A rewritten file (rewrite.py) replaces all files of lower generations in its span: recovery removes those
   that still exist. All of it was durable before it got its name, and another file followed it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadData, BadFrame, BadSegment
from headpond.model.ranges import RangeSet
from headpond.storage.append import NEW_SUFFIX, decode_status
from headpond.storage.disk import Disk, DiskFile, open_salvaged
from headpond.storage.frame_file import Bad, Found
from headpond.storage.log.book import refusal_code
from headpond.storage.log.format import (
    INDEX_SUFFIX,
    Began,
    BlockEnded,
    BlockTallied,
    Dropped,
    FileHead,
    FileId,
    LogPlace,
    decode_event,
    decode_marks_body,
    file_name,
    load_compacted,
    load_marks,
    parse_expiry_name,
    parse_file,
    peek_head,
)
from headpond.storage.log.incarnations import Incarnations
from headpond.storage.log.index import Point, load_index
from headpond.storage.log.marks import Marks
from headpond.storage.log.read import FileView, belongs, build_index, salvaged
from headpond.storage.log.rewrite import find_compacted
from headpond.storage.recovery import DamageReport, FileDamage, Recovery
from headpond.storage.seal import SealedFile
from headpond.wire.expiry import last_us
from headpond.wire.frame import HEADER_BYTES, TRAILER, Frame, FrameType, frame_of
from headpond.wire.plain.packed import is_packed, unpack
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader, decode_record_header, segments_of
from headpond.wire.title import decode_title
from headpond.wire.typed.versions import versions_of

_SEGMENT = int(FrameType.SEGMENT)


@dataclass
class RecoveryReport(DamageReport):
    """Torn, damaged and missing parts that opening a log found."""

    missing: list[tuple[int, int]] = field(default_factory=list)
    """Entries of missing files."""
    new_incarnation: bool = False
    blocks_forgotten: int = 0
    """Silent blocks left out of heads since the opening, because a head would have been too long."""
    files_read: int = 0

    def lines(self, one: str = "entry", many: str = "entries") -> list[str]:
        found = super().lines(one, many)
        found += [f"a file is missing: entries {first} to {end - 1} are lost" for first, end in self.missing]
        if self.blocks_forgotten:
            found.append(f"{self.blocks_forgotten:,} silent blocks were forgotten early: there were too many")
        if self.new_incarnation:
            found.append("entries that may have been read are lost at the end: a new incarnation begins")
        return found


@dataclass
class RecoveredLog:
    """The state from which a log starts."""

    report: RecoveryReport = field(default_factory=RecoveryReport)
    marks: Marks = field(default_factory=Marks)
    incarnations: Incarnations = field(default_factory=Incarnations)
    lost_from: int | None = None
    """The first entry that is lost at the end and may have been read."""
    kept: int = 0
    next_entry: int = 0
    stored_at_us: int = 0
    """The time of the last record."""
    damaged: RangeSet = field(default_factory=RangeSet)
    files: list[FileView] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    """The index points of the last file."""
    segments: int = 0
    """How many the last file has."""
    end_offset: int = 0
    head_bytes: int = 0
    """The end of the head of the last file."""
    expires_us: int | None = 0
    """When all messages of the last file have expired; 0 if it has none, None if some never do."""
    file: DiskFile | None = None
    """The last file; None if the next append has to begin a new one."""
    named: bool = False
    """Whether the name of the last file is durable for certain: a second write to it exists."""
    outdated: bool = False
    """Whether the title of the last file has other schemas than the topic now."""
    compacted: EntrySet = field(default_factory=EntrySet)
    """Entries that compaction has removed."""

    def lose_from(self, entry: int) -> None:
        self.lost_from = entry if self.lost_from is None else min(entry, self.lost_from)
        self.report.new_incarnation = True


class Replay:
    """Applies one file to the state. ``limit`` is the end of its entries; None: the last file notes none."""

    def __init__(
        self,
        state: RecoveredLog,
        disk: Disk,
        place: LogPlace,
        its_id: FileId,
        limit: int | None,
        sealed: SealedFile | None,
    ) -> None:
        self.state = state
        self.place = place
        self.name = file_name(*its_id)
        self.first = its_id.first
        self.rewritten = its_id.generation > 0
        self.limit = limit
        self.bad: Bad | None = None
        """Bad bytes whose entries are still unknown."""
        self.lost_from: int | None = None
        """The first entry lost in damage behind which no record has come yet."""
        self.over = False
        """Whether a record with entries of the next file has come: the rest of the file does not count."""
        self.head_seen = False
        self.in_head = True
        """Whether only TITLE and MARKS have come."""
        self.first_write_ended = state.named = False
        state.points, state.segments, state.expires_us = [], 0, 0
        self.schemas = versions_of(place.title)
        self.file = open_salvaged(disk, place.path(*its_id), writable=limit is None)
        self.sealed = sealed
        """The entry of this file in the seal of a clean stop."""
        sealed_bytes = self.file.size() if self.rewritten else 0  # it was whole before it got its name
        if sealed is not None:
            sealed_bytes = sealed.bytes
        self.recovery = Recovery(self.file, shard=place.shard, accept=self._accept, sealed_bytes=sealed_bytes)

    def run(self, *, trust_marks: bool) -> None:
        self.state.report.files_read += 1
        self._expect(self.first, 0, "records are missing before this file")
        for item in self.recovery.items():
            self._take(item, trust_marks=trust_marks)
            if self.over:
                break
        if self.limit is None:
            self._finish_last()
        else:
            self._finish_closed()

    def _accept(self, offset: int, frame: Frame) -> bool:
        if frame.type == FrameType.STATUS:
            status = decode_status(frame.body)
            return status is not None and status.end_entry >= self.state.next_entry
        if frame.type == FrameType.RECORD:
            event = decode_event(frame.body)
            return event is not None and event.entry >= self.state.next_entry
        if frame.type == FrameType.MARKS:
            return self.in_head and _marks_of(frame.body, self.first)
        return belongs(frame, self.state.next_entry)

    def _take(self, item: Found | Bad, *, trust_marks: bool) -> None:
        if isinstance(item, Bad):
            self._take_bad(item)
            return
        type_, body = item.frame.type, item.frame.body
        if self.first_write_ended:
            self.state.named = True
        self.first_write_ended = self.first_write_ended or type_ == FrameType.STATUS
        if type_ == _SEGMENT and len(body) >= RECORD_HEADER_BYTES:
            try:
                self._take_record(item)
            except (BadFrame, BadSegment):  # a stub that is none, or a packed record that contradicts itself
                self.bad = Bad(item.offset, item.end)
        elif type_ == FrameType.STATUS:
            self._take_status(item)
        elif type_ == FrameType.RECORD:
            self._take_event(item)
        elif type_ == FrameType.TITLE:
            self._take_title(item.frame)
        elif type_ == FrameType.MARKS and trust_marks and not self.head_seen:
            self._take_marks(body)
            self.state.head_bytes = item.end

    def _take_bad(self, bad: Bad) -> None:
        """Counts what is whole in a damaged packed record."""
        self.bad = Bad(self.bad.offset if self.bad else bad.offset, bad.end)
        for each in salvaged(self.file, bad.offset, bad.end, self.place.shard):
            frame = frame_of(_SEGMENT, each.raw[HEADER_BYTES : -TRAILER.size], segment=each.segment)
            self._take_record(Found(each.offset, frame, 0))

    def _take_record(self, item: Found) -> None:
        header = decode_record_header(item.frame.body)
        state = self.state
        if self.limit is not None and header.end_entry > self.limit:
            self.over = True
            return
        if header.first_entry < state.next_entry:
            return
        if self.bad is not None or header.first_entry > state.next_entry:
            self._expect(header.first_entry, item.offset, "bytes are damaged")
        self.lost_from, self.in_head = None, False
        if not state.points or item.offset - state.points[-1].offset >= self.place.index_every_bytes:
            state.points.append(Point(header.first_entry, header.stored_at_us, item.offset))
        segment = item.frame.body[RECORD_HEADER_BYTES:]
        if header.count and is_packed(segment):
            for its_header, number, one, _ in list(unpack(header, segment)):  # all of it, or nothing
                self._admit(its_header, number, one)
        else:
            self._admit(header, item.frame.segment, segment)
        state.next_entry = header.end_entry
        state.stored_at_us = max(state.stored_at_us, header.stored_at_us)

    def _admit(self, header: RecordHeader, segment: int, body: bytes) -> None:
        state, unknown = self.state, header.count
        state.segments += header.count > 0
        for number, crc, first, count in segments_of(header, segment, body):
            code = "" if count else refusal_code(body)
            state.marks.admit(header.block, number, (crc, first, count), header.stored_at_us, code)
            state.marks.settle((header.block,))
            unknown -= count
        if unknown:  # a stub of forgotten blocks
            state.marks.book.stored_by_forgotten(unknown)
        if header.count and state.expires_us is not None:
            expires_us = last_us(body, self.schemas, header.stored_at_us)
            state.expires_us = None if expires_us is None else max(state.expires_us, expires_us)

    def _take_status(self, item: Found) -> None:
        status = decode_status(item.frame.body)
        if status is None or (self.limit is not None and status.end_entry > self.limit):
            return
        self._take_end(status.end_entry, item.offset)

    def _take_end(self, entry: int, offset: int) -> None:
        """A STATUS or an event names the next entry."""
        self.in_head = False
        if entry > self.state.next_entry and self.lost_from is None:
            self.lost_from = self.state.next_entry
        self._expect(entry, offset, "bytes are damaged")

    def _take_event(self, item: Found) -> None:
        event = decode_event(item.frame.body)
        if event is None:
            return
        self._take_end(event.entry, item.offset)
        if isinstance(event, BlockEnded):
            self.state.marks.end(event.block, event.at_us)
        elif isinstance(event, Dropped):
            self.state.kept = max(self.state.kept, event.kept)
        elif isinstance(event, Began):
            self.state.incarnations.add(event.name, event.first)
        elif isinstance(event, BlockTallied):
            self.state.marks.book.restore(event.block, event.tally)

    def _take_title(self, frame: Frame) -> None:
        try:
            title, wanted = decode_title(frame.body)[2], self.place.title
        except BadFrame:
            return
        if title.topic_uuid != wanted.topic_uuid:
            raise BadData(f"{self.file.path} belongs to topic {title.topic}, not to {wanted.topic}")
        if frame.shard != self.place.shard:
            raise BadData(f"{self.file.path} belongs to shard {frame.shard}, not to {self.place.shard}")
        self.state.outdated = title.schemas != wanted.schemas

    def _take_marks(self, body: bytes) -> None:
        state = self.state
        try:
            head, damaged, state.incarnations, marks = decode_marks_body(body)
            state.marks = Marks.decode(marks)
        except BadFrame as error:  # as another version wrote it: rot does not get past the checksum
            raise BadData(f"{self.file.path}: {error.message}") from error
        state.kept = max(state.kept, head.kept)
        state.stored_at_us = max(state.stored_at_us, head.stored_at_us)
        for start, end in damaged:
            state.damaged.add(start, end)
        self.head_seen = True

    def _expect(self, entry: int, offset: int, reason: str) -> None:
        """The next entry is ``entry``: missing ones before it were lost in the bad bytes before ``offset``."""
        state = self.state
        bad = self.bad or Bad(offset, offset)
        if entry > state.next_entry or self.bad is not None:
            span = (state.next_entry, max(entry, state.next_entry))
            state.report.damaged.append(FileDamage(self.name, bad.offset, bad.end, span, reason))
            state.damaged.add(*span)
            state.marks.book.lost += span[1] - span[0]
        self.bad = None
        state.next_entry = max(state.next_entry, entry)

    def _finish_closed(self) -> None:
        assert self.limit is not None
        recovery = self.recovery
        damaged = bool(recovery.tail or self.bad)
        if recovery.tail is not None:
            self._take_bad(recovery.tail)
        if self.state.next_entry < self.limit:
            reason = "bytes are damaged" if damaged else "records are missing at the end"
            self._expect(self.limit, recovery.end, reason)
        self.state.end_offset = recovery.tail.end if recovery.tail is not None else recovery.end
        self.file.close()

    def _finish_last(self) -> None:
        """Cuts off a torn tail and makes the rest durable. Damage at the end stays where it is."""
        state, recovery = self.state, self.recovery
        if recovery.unreadable or recovery.tail_damaged or self.rewritten:
            self._lose_tail(recovery.tail or Bad(0, recovery.file.size()))
        elif recovery.tail is not None:
            span, reason = (state.next_entry,) * 2, "a torn write, never recorded as synced, is cut off"
            state.report.torn.append(FileDamage(self.name, *recovery.tail, span, reason))
        lost_at_end = self.lost_from is not None
        if self.lost_from is not None:
            state.lose_from(self.lost_from)
        cut = not recovery.unreadable and not (recovery.tail_damaged and lost_at_end)
        state.end_offset = recovery.settle(state.next_entry, cut=cut)
        if lost_at_end or not self.head_seen:
            self.file.close()  # the log continues in a new file
        else:
            state.file = self.file.inner

    def _lose_tail(self, tail: Bad) -> None:
        """The end of the file is damaged. If nothing names its entries, the bound is one entry per byte."""
        state, reason = self.state, "bytes are damaged"
        if self.sealed is not None:
            end_entry = max(self.sealed.next, state.next_entry)
        elif self.recovery.tail_is_status and not (self.recovery.unreadable or self.rewritten):
            end_entry = state.next_entry
        else:
            end_entry = state.next_entry + max(tail.end - tail.offset, 1)
            reason = "bytes are damaged or cannot be read, and which entries they held is an upper bound"
        self.bad = tail
        if end_entry > state.next_entry and self.lost_from is None:
            self.lost_from = state.next_entry
        self._expect(end_entry, tail.end, reason)


def _marks_of(body: bytes, first: int) -> bool:
    try:
        return decode_marks_body(body).head.first == first
    except BadFrame:
        return False


def recover(disk: Disk, place: LogPlace, sealed: SealedFile | None = None) -> RecoveredLog:
    """Reads the folder of a log; cuts off a torn tail and removes leftover files.

    ``sealed`` is the last file at a clean stop.
    """
    state = RecoveredLog()
    if sealed is not None:
        state.kept = sealed.kept
    files = _files(state, disk, place)
    if not files:
        _lose_end(state, sealed)
        return state
    heads = [_add_file(state, disk, place, each) for each in files]
    base = _replay_start(disk, place, files)
    state.next_entry = state.marks.book.counted_from = files[base].first
    end = _noted_end(disk, place, files[-1])
    limits = [*(file.first for file in files[1:]), end]
    for number in range(base, len(files)):
        mine = sealed if sealed is not None and sealed.name == file_name(*files[number]) else None
        Replay(state, disk, place, files[number], limits[number], mine).run(trust_marks=number == base)
    if end is not None:  # only a file that another one follows is rewritten, so that one is missing
        state.lose_from(end)
    _note_expiries(state, disk, place)
    _report_missing(state, disk, place, heads)
    _lose_end(state, sealed)
    _remove_dropped(state, disk, place)
    if not state.named:  # its creation may have failed at the last step, before its name was durable
        disk.sync_folder(place.folder)
    return state


def _files(state: RecoveredLog, disk: Disk, place: LogPlace) -> list[FileId]:
    """The files that count, in order; removes those that a crash left beside them."""
    found: list[FileId] = []
    indexes: list[FileId] = []
    for name in disk.list(place.folder):
        if (its_id := parse_file(name)) is not None:
            found.append(its_id)
        elif (its_id := parse_file(name, INDEX_SUFFIX)) is not None:
            indexes.append(its_id)
        elif name.endswith(NEW_SUFFIX):  # an unfinished file
            disk.remove(f"{place.folder}/{name}")
    kept: list[FileId] = []
    needless: list[str] = []
    rewritten = RangeSet()
    """The entries of rewritten files."""
    for each in sorted(found, key=lambda file: file.generation, reverse=True):
        if each.first in rewritten:
            needless.append(place.path(*each))
            continue
        kept.append(each)
        if each.generation:
            rewritten.add(each.first, _end_of(state, disk, place, each))
    counting = frozenset(kept)
    needless += [place.index_path(*each) for each in indexes if each not in counting]
    if needless:
        disk.sync_folder(place.folder)  # the files that replace them are durable first
    for path in needless:
        disk.remove(path)
    return sorted(kept)


def _end_of(state: RecoveredLog, disk: Disk, place: LogPlace, its_id: FileId) -> int:
    """One past the last entry of a compacted file; notes its removed entries."""
    with open_salvaged(disk, place.path(*its_id)) as file:
        noted = load_compacted(file, its_id.first, place.shard)
        if noted is None:
            end, taken_out = find_compacted(file, its_id.first, place)
        else:
            end, taken_out = noted.end, EntrySet.decode(noted.bitmap)
    state.compacted.include(taken_out)
    return end


def _noted_end(disk: Disk, place: LogPlace, its_id: FileId) -> int | None:
    """The end of a rewritten file, from its head; None for another file, or if that is damaged."""
    if not its_id.generation:
        return None
    with open_salvaged(disk, place.path(*its_id)) as file:
        noted = load_compacted(file, its_id.first, place.shard)
    return None if noted is None else noted.end


def _add_file(state: RecoveredLog, disk: Disk, place: LogPlace, its_id: FileId) -> FileHead | None:
    """Adds a file with the time of the last record before it; a damaged head gets its neighbour's time."""
    with open_salvaged(disk, place.path(*its_id)) as file:
        head, size = peek_head(file, its_id.first), file.size()
    floor_us = state.files[-1].floor_us if state.files else 0
    if head is not None:
        floor_us = max(floor_us, head.stored_at_us)
    state.files.append(FileView(its_id.first, floor_us, size, generation=its_id.generation))
    return head


def _replay_start(disk: Disk, place: LogPlace, files: list[FileId]) -> int:
    """The number of the last file with valid MARKS; 0 if there is none."""
    for number in range(len(files) - 1, -1, -1):
        with open_salvaged(disk, place.path(*files[number])) as file, suppress(BadFrame):
            loaded = load_marks(file, files[number].first, place.shard)
            if loaded is not None:
                Marks.decode(loaded.marks)
                return number
    return 0


def _note_expiries(state: RecoveredLog, disk: Disk, place: LogPlace) -> None:
    """Reads the expiry names beside closed files; removes a name without its file."""
    places = {file.first: number for number, file in enumerate(state.files[:-1])}
    for name in disk.list(place.folder):
        note = parse_expiry_name(name)
        if note is None:
            continue
        if (number := places.get(note[0])) is None:
            disk.remove(f"{place.folder}/{name}")
        else:
            state.files[number] = state.files[number]._replace(expires_us=note[1])


def _report_missing(state: RecoveredLog, disk: Disk, place: LogPlace, heads: list[FileHead | None]) -> None:
    """Follows the chain of files; the span of a missing file begins at the real end of the file before it."""
    if state.files[0].first > state.kept:
        _lose_file(state, state.kept, state.files[0].first)
    for before, file, head in zip(state.files, state.files[1:], heads[1:], strict=False):
        if head is None or head.previous in (None, before.first) or file.first <= state.kept:
            continue
        with open_salvaged(disk, place.path(*before.id)) as opened:
            index = load_index(disk, place.index_path(*before.id), opened, before.first)
            if index is None:
                index = build_index(opened, before.first, file.first, place.shard, place.index_every_bytes)
        _lose_file(state, index.end_entry, file.first)


def _lose_file(state: RecoveredLog, start: int, end: int) -> None:
    if start < end:
        state.report.missing.append((start, end))
        state.damaged.add(start, end)


def _lose_end(state: RecoveredLog, sealed: SealedFile | None) -> None:
    """Notes the last entries of a clean stop as lost if their file is missing."""
    if sealed is None or state.next_entry >= sealed.next:
        return
    start = max(state.next_entry, state.kept)
    state.lose_from(state.next_entry)
    _lose_file(state, start, sealed.next)
    state.marks.book.lost += sealed.next - start
    if state.file is not None:
        state.file.close()
        state.file = None
    state.next_entry = sealed.next


def _remove_dropped(state: RecoveredLog, disk: Disk, place: LogPlace) -> None:
    """Finishes a recorded drop that a crash cut short."""
    while len(state.files) > 1 and state.files[1].first <= state.kept:
        for path in state.files.pop(0).paths(place.folder):
            with suppress(OSError):
                disk.remove(path)
    state.damaged.discard(0, state.kept)
    state.compacted.discard(0, state.kept)
