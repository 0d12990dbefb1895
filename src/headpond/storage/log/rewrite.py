"""Rewrites closed files of a log as one new file: without superseded rows, and with small segments packed.

``run`` reads neighbouring files and writes the remaining rows under a name that recovery ignores. ``swap``
gives the new file its name, durably: this one step replaces the others. ``remove_old`` removes those. A crash
before the swap leaves the old files, a crash after it the new one. All of it runs in a worker thread.

Entries do not move. For each record:

1. if none of its rows is removed, it is copied byte for byte;
2. if some are, they become nulls in their places, so that every other row keeps its entry and its identity;
3. if all are, a stub keeps its entries, number and checksum, so that the same segment is still a duplicate when
   a sender repeats it. Neighbours share one stub; a stub of forgotten blocks has entries only;
4. a run of small records of a plain topic becomes one packed record (wire/plain/packed.py).

A damaged file stays as it is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame, BadSegment, SegmentTooLarge
from headpond.storage.append import NEW_SUFFIX, create_new, encode_status, write_whole
from headpond.storage.disk import Disk, DiskFile, open_salvaged
from headpond.storage.frame_file import Bad, Found, scan
from headpond.storage.log.format import (
    NO_BLOCK,
    BlockEnded,
    Compacted,
    FileId,
    LogPlace,
    decode_event,
    encode_event,
    encode_head,
    file_name,
    index_name,
    load_marks,
)
from headpond.storage.log.index import FileIndex, Point
from headpond.storage.log.latest_rows import removed_rows
from headpond.storage.log.marks import Marks
from headpond.storage.log.read import ClosedFile
from headpond.wire.expiry import may_expire
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.packed import (
    PACK_BLOCKS_MAX,
    PACK_BYTES_MAX,
    PACK_ROWS_MAX,
    PlacedSegment,
    can_pack,
    is_packed,
    pack,
    unpack,
)
from headpond.wire.plain.segment import UNFOLDED_BYTES_MAX, encode_plain
from headpond.wire.record import (
    RECORD_HEADER_BYTES,
    SEGMENTS_MAX,
    RecordHeader,
    Stubbed,
    decode_record_header,
    encode_stub,
    is_stub,
    segments_of,
)
from headpond.wire.typed.record import encode_typed_record, fill_messages, stored_rows, version_of
from headpond.wire.typed.versions import SchemaVersions, versions_of

FLUSH_BYTES = 1024 * 1024
STEP_BYTES = 1024 * 1024
"""How many bytes one step reads."""


class Unsound(Exception):
    """A file is damaged, and stays as it is."""


class Rewrite:
    """Writes the remaining rows of ``files`` as one file.

    ``taken_out`` are the entries to remove, and those removed before. ``known`` are the blocks whose segments a
    sender may repeat; None for all.
    """

    def __init__(
        self,
        place: LogPlace,
        files: Sequence[ClosedFile],
        taken_out: EntrySet,
        known: frozenset[bytes] | None = None,
    ) -> None:
        self.files = list(files)
        self.first = files[0].file.first
        self.end = files[-1].end
        self.id = FileId(self.first, 1 + max(each.file.generation for each in files))
        self.taken_out = taken_out
        self.bytes = 0
        """The length of the new file."""
        self.segments_packed = 0
        self.unsound = False
        self.finished = False
        self._place = place
        self._schemas = versions_of(place.title)
        self._known = known
        self._steps: Generator[bool, None, None] | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._expected = self.first
        self._points: list[Point] = []
        self._stub: RecordHeader | None = None
        """The stub that the last records without rows share; not written yet."""
        self._stubbed: list[Stubbed] = []
        """Its segments that a sender may repeat."""
        self._run: list[PlacedSegment] = []
        """Small records that may become one; not written yet."""
        self._run_blocks: set[bytes] = set()
        self._run_bytes = self._run_rows = 0

    @property
    def path(self) -> str:
        return self._place.path(*self.id)

    def run(self, disk: Disk) -> None:
        """Runs one step, so that no other work waits for a long file."""
        if self._steps is None:
            self._steps = self._work(disk)
        self.finished = next(self._steps, None) is None

    def close(self) -> None:
        """Closes the open files of an unfinished rewrite; no further ``run`` follows."""
        if self._steps is not None:
            self._steps.close()

    def _work(self, disk: Disk) -> Generator[bool, None, None]:
        with closing(create_new(disk, self.path)) as new:
            try:
                yield from self._write(disk, new)
            except (Unsound, BadFrame, BadSegment, SegmentTooLarge):
                self.unsound = True
        if self.unsound:
            disk.remove(self.path + NEW_SUFFIX)

    def _write(self, disk: Disk, new: DiskFile) -> Iterator[bool]:
        place, step_end = self._place, STEP_BYTES
        read_bytes = 0
        for number, closed in enumerate(self.files):
            with open_salvaged(disk, place.path(*closed.file.id)) as file:
                if number == 0:
                    self._begin(file)
                for item in scan(file, shard=place.shard):
                    if isinstance(item, Bad):
                        raise Unsound
                    if not self._take(item, closed.end):
                        break
                    if self._held >= FLUSH_BYTES:
                        self._flush(new)
                    if read_bytes + item.end >= step_end:
                        step_end = read_bytes + item.end + STEP_BYTES
                        yield True
                read_bytes += closed.file.bytes
        if self._expected != self.end:
            raise Unsound
        self._end_stub()
        self._end_run()
        at = self.bytes + self._held
        self._add(encode_status(at, self.end, place.shard))
        self._flush(new)
        new.sync()

    def _begin(self, file: DiskFile) -> None:
        """The head of the first file: the marks as they were before it."""
        place = self._place
        loaded = load_marks(file, self.first, place.shard)
        if loaded is None:
            raise Unsound
        Marks.decode(loaded.marks)
        self._add(encode_head(loaded, place))
        self._add(encode_event(Compacted(self.first, self.end, self.taken_out.encode()), place.shard))

    def _add(self, frame: bytes) -> None:
        self._parts.append(frame)
        self._held += len(frame)

    def _flush(self, new: DiskFile) -> None:
        new.write_at(self.bytes, self._parts)
        self.bytes += self._held
        self._parts, self._held = [], 0

    # --- frames -------------------------------------------------------------------------------------

    def _take(self, item: Found, end: int) -> bool:
        """Whether the file goes on: it ends before the first record that was never durable."""
        frame = item.frame
        if frame.type == FrameType.SEGMENT:
            header = decode_record_header(frame.body)
            if header.end_entry > end:
                return False
            if header.first_entry != self._expected:
                raise Unsound
            self._expected = header.end_entry
            self._take_record(header, frame.segment, frame.body[RECORD_HEADER_BYTES:], frame.crc)
        elif frame.type == FrameType.RECORD:
            event = decode_event(frame.body)
            if event is None:
                raise Unsound
            forgotten = isinstance(event, BlockEnded) and not self._knows(event.block)
            if not isinstance(event, Compacted) and not forgotten:
                self._end_stub()
                self._end_run()
                self._add(encode_event(event, self._place.shard))
        return True

    def _take_record(self, header: RecordHeader, segment: int, body: bytes, crc: int) -> None:
        first, end = header.first_entry, header.end_entry
        gone = self.taken_out.count(first, end)
        if header.count and is_packed(body):
            if gone:
                for each in unpack(header, body):
                    self._take_record(*each)
                return
            self._end_stub()
            self._end_run()
            self._write_record(header, segment, body)
            return
        if header.count and (gone == header.count or is_stub(body)):
            self._hold_stub(header, segment, body)
            return
        if header.count == 0 and not self._knows(header.block):
            return
        self._end_stub()
        if gone:
            self._end_run()
            self._write_record(header, segment, _without(body, first, self.taken_out, self._schemas))
        else:
            self._put(PlacedSegment(header, segment, body, crc))

    def _knows(self, block: bytes) -> bool:
        return self._known is None or block in self._known

    def _put(self, placed: PlacedSegment) -> None:
        """Writes a record, or extends the run before it."""
        header, _, body, _ = placed
        small = header.count and may_join(body)
        rows, size = self._run_rows + header.count, self._run_bytes + len(body)
        fits = small and rows <= PACK_ROWS_MAX and size <= PACK_BYTES_MAX and self._same_columns(body)
        if not fits or (header.block not in self._run_blocks and len(self._run_blocks) == PACK_BLOCKS_MAX):
            self._end_run()
        if not small:
            self._write_record(*placed[:3])
            return
        self._run.append(placed)
        self._run_blocks.add(header.block)
        self._run_rows += header.count
        self._run_bytes += len(body)

    def _same_columns(self, body: bytes) -> bool:
        return not self._run or self._run[0].segment[1] == body[1]

    def _end_run(self) -> None:
        run = self._run
        self._run, self._run_blocks, self._run_rows, self._run_bytes = [], set(), 0, 0
        packed = pack(run) if len(run) >= self._place.pack_segments_min else None
        if packed is not None:
            header, body = packed
            self.segments_packed += len(run)
            self._write_record(header, 0, body)
            return
        for each in run:
            self._write_record(*each[:3])

    def _write_record(self, header: RecordHeader, segment: int, body: bytes) -> None:
        offset = self.bytes + self._held
        if not self._points or offset - self._points[-1].offset >= self._place.index_every_bytes:
            self._points.append(Point(header.first_entry, header.stored_at_us, offset))
        whole = header.encode() + body
        self._add(encode(FrameType.SEGMENT, whole, shard=self._place.shard, segment=segment))

    def _hold_stub(self, header: RecordHeader, segment: int, body: bytes) -> None:
        """Extends the stub before it, if both are of one block and consecutive."""
        stubbed = list(segments_of(header, segment, body)) if self._knows(header.block) else []
        block = header.block if stubbed else NO_BLOCK
        held = self._stub
        if held is not None:
            follows = block == held.block and len(self._stubbed) + len(stubbed) <= SEGMENTS_MAX
            if stubbed and self._stubbed:
                follows = follows and stubbed[0].segment == self._stubbed[-1].segment + 1
            if not follows or header.end_entry - held.first_entry >= 2**32:
                self._end_stub()
                held = None
        first = header.first_entry if held is None else held.first_entry
        self._stub = RecordHeader(first, header.end_entry - first, block, header.stored_at_us, 0)
        self._stubbed += stubbed

    def _end_stub(self) -> None:
        if self._stub is not None:
            stub, stubbed = self._stub, self._stubbed
            self._stub, self._stubbed = None, []
            number = stubbed[0].segment if stubbed else 0
            self._end_run()
            self._write_record(stub, number, encode_stub((each.origin_crc, each.count) for each in stubbed))

    # --- the next steps -----------------------------------------------------------------------------

    def swap(self, disk: Disk) -> None:
        """Gives the new file its name, durably."""
        new_path = self.path + NEW_SUFFIX
        with suppress(OSError):  # a reader can build the index again
            index = FileIndex(self.first, self.end, self.bytes, self._points)
            with closing(disk.open(new_path)) as file:
                encoded = index.encode_for(file, self._place.shard)
            write_whole(disk, self._place.index_path(*self.id), encoded)
        disk.rename(new_path, self.path)
        disk.sync_folder(self._place.folder)

    def remove_old(self, disk: Disk) -> None:
        """Removes the files that the new file replaces."""
        ids = [each.file.id for each in self.files]
        self._remove(disk, [name(*each) for each in ids for name in (file_name, index_name)])

    def remove_new(self, disk: Disk) -> None:
        self._remove(disk, [file_name(*self.id) + NEW_SUFFIX, file_name(*self.id), index_name(*self.id)])

    def _remove(self, disk: Disk, names: list[str]) -> None:
        """Removes files; the next opening removes those that it could not."""
        for name in names:
            with suppress(OSError):
                disk.remove(f"{self._place.folder}/{name}")


def _without(body: bytes, first: int, taken_out: EntrySet, schemas: SchemaVersions | None) -> bytes:
    """A segment with nulls in place of the removed rows; their ``sent_at`` stays."""
    batch = stored_rows(body, schemas)
    rows = batch.num_rows
    places = pa.array(range(rows), pa.uint64())
    gone = taken_out.within(first, first + rows).numbers()
    their_entries = pa.Array.from_buffers(pa.uint64(), len(gone), [None, pa.py_buffer(gone)])
    their_places = pc.subtract(their_entries, pa.scalar(first, pa.uint64()))
    places = pc.if_else(pc.is_in(places, value_set=their_places), None, places)
    arrays = [
        column if name == "sent_at" else column.take(places)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    left = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
    if schemas is None:
        return encode_plain(left, UNFOLDED_BYTES_MAX)
    version = version_of(body)
    return encode_typed_record(fill_messages(left, schemas.messages(version)), version)


def may_join(body: bytes) -> bool:
    """Whether a stored segment may be part of a run. One with a time to live expires by its own time."""
    return can_pack(body) and not may_expire(body, None)


def find_compacted(file: DiskFile, first: int, place: LogPlace) -> tuple[int, EntrySet]:
    """The end and the removed entries of a compacted file, from its records; for a damaged head."""
    taken_out, schemas = EntrySet(), versions_of(place.title)
    end = first
    for item in scan(file, shard=place.shard):
        if isinstance(item, Bad) or item.frame.type != FrameType.SEGMENT:
            continue
        try:
            header = decode_record_header(item.frame.body)
            body = item.frame.body[RECORD_HEADER_BYTES:]
            end = max(end, header.end_entry)
            if is_stub(body):
                taken_out.add(header.first_entry, header.end_entry)
            elif header.count:
                taken_out.include(removed_rows(body, header.first_entry, schemas))
        except (BadFrame, BadSegment):
            continue
    return end, taken_out
