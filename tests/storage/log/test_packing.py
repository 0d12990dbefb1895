"""Packing writes a closed file again with packed records; nothing that a log answers changes."""

from __future__ import annotations

import errno
import random
from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.storage.append import NEW_SUFFIX
from headpond.storage.frame_file import Found, read_frame, scan
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.format import parse_file
from headpond.storage.log.pack import PackJob
from headpond.storage.log.read import StoredRecord, WalkBounds, segment_of, walk
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import Keep, MemoryDisk, MemoryFile, Operation
from headpond.wire.control.links import RecordHead
from headpond.wire.expiry import with_ttl
from headpond.wire.frame import OVERHEAD_BYTES, TRAILER, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.packed import facts_of, is_packed
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from tests.storage.log.logs import (
    BLOCKS,
    FOLDER,
    LogWriter,
    Row,
    commit,
    log_files,
    marked,
    open_log,
    read_all,
    readable,
    row_of,
)

OPTIONS = LogOptions(rotate_bytes=3_000, preallocate_bytes=1_024, index_every_bytes=300)
PACK_OPERATIONS: list[Operation] = ["write", "sync", "rename", "create"]


class SegmentWriter(LogWriter):
    """Appends segments in the bare form, as single sends make them."""

    def put(self, *, rows: int = 1, key: bool = False, headers: bool = False, size: int = 20) -> Row:
        block = self.draw.choice(BLOCKS)
        batch = rows_to_batch(
            [self.draw.randbytes(size) for _ in range(rows)],
            [b"k"] * rows if key else None,
            None,
            [{"h": str(each)} for each in range(rows)] if headers else None,
            [self.clock_us] * rows,
        )
        return self.store(block, rows, encode_plain(batch))

    def refuse(self) -> Row:
        return self.store(self.draw.choice(BLOCKS), 0, b"refused")

    def store(self, block: bytes, count: int, body: bytes) -> Row:
        segment = self.log.marks.next(block)
        self.clock_us += 10
        facts = {"block": block, "segment": segment, "count": count, "origin_crc": segment * 7}
        first = self.log.append(**facts, stored_at_us=self.clock_us, body=body)  # type: ignore[arg-type]
        row = Row(first, count, block, segment, body)
        self.staged.append(row)
        return row


def written(disk: MemoryDisk, *, rounds: int = 60, options: LogOptions = OPTIONS) -> SegmentWriter:
    writer = SegmentWriter(open_log(disk, options), random.Random(4))
    for _ in range(rounds):
        writer.put()
        writer.commit(disk)
    return writer


def steps_of(log: ShardLog, disk: MemoryDisk, counters: Counter[str] | None = None) -> int:
    """Packs the next file; returns how many steps that took, 0 without a file."""
    if (closed := log.next_unpacked()) is None:
        return 0
    log.packed_to = closed.end
    counters = Counter() if counters is None else counters
    job = PackJob((b"", 0), log, closed, exists=lambda: True, counters=counters, then=lambda: None)
    steps, more = 0, True
    while more:
        error: OSError | None = None
        try:
            job.run(disk)
        except OSError as caught:
            error = caught
        more, steps = job.done(error), steps + 1
    return steps


def pack_all(log: ShardLog, disk: MemoryDisk) -> Counter[str]:
    counters: Counter[str] = Counter()
    while steps_of(log, disk, counters):
        pass
    return counters


def packed_spans(disk: MemoryDisk) -> list[tuple[str, int, int, int]]:
    """Path and offset of every packed record, with its first entry and its end."""
    found = []
    for path in log_files(disk):
        for item in scan(disk.open(path)):
            assert isinstance(item, Found)
            if item.frame.type == FrameType.SEGMENT and is_packed(item.frame.body[RECORD_HEADER_BYTES:]):
                header = decode_record_header(item.frame.body)
                found.append((path, item.offset, header.first_entry, header.end_entry))
    return found


def answers(log: ShardLog, rows: list[Row]) -> list[object]:
    """Everything that can be asked of a log."""
    heads: list[RecordHead] = []
    head_list: list[RecordHead] = []
    entry = 0
    while entry < log.entry_durable:
        entry = log.walk_heads(entry, heads).next_entry
        head_list += heads
    times = [log.find_time(at) for at in range(990, 1_000 + 10 * len(rows) + 20, 7)]
    found = log.find_segments([(row.block, row.segment) for row in rows])
    middles = [read_all(log, entry, bytes_max)[0] for entry in (0, 7, 33) for bytes_max in (1, 300, 10_000)]
    return [read_all(log), middles, head_list, times, found, marked(log), list(log.damaged)]


SHAPES = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 60)), min_size=1, max_size=60
)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.booleans())
def test_a_packed_log_gives_every_answer_that_it_gave_before(
    shapes: list[tuple[int, bool, bool, int]], uniform: bool
) -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(1))
    for rows, key, headers, size in shapes:
        if not rows:
            writer.refuse()
        elif uniform:
            writer.put(rows=rows, size=size)
        else:
            writer.put(rows=rows, key=key, headers=headers, size=size)
        writer.commit(disk)
    before = answers(writer.log, writer.durable)
    pack_all(writer.log, disk)
    assert answers(writer.log, writer.durable) == before
    assert answers(open_log(disk, OPTIONS), writer.durable) == before


def test_a_log_of_many_packed_runs_gives_every_answer_that_it_gave_before() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    before = answers(writer.log, writer.durable)
    assert pack_all(writer.log, disk)["files_packed"] > 1
    assert answers(writer.log, writer.durable) == before
    assert answers(open_log(disk, OPTIONS), writer.durable) == before


def test_runs_of_small_segments_are_packed_and_the_file_is_smaller() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    before, files = writer.log.bytes, len(log_files(disk))
    counters = pack_all(writer.log, disk)
    assert counters["files_packed"] == files - 1 and counters["packs_failed"] == 0
    assert counters["segments_packed"] > 40 and writer.log.bytes < 0.7 * before
    assert sum(path.endswith(".00000001.log") for path in log_files(disk)) == files - 1
    assert read_all(writer.log) == (writer.durable, [])


def test_a_reader_that_asks_for_packed_records_gets_each_run_once_also_from_its_middle() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    _, _, first, end = packed_spans(disk)[1]
    records = writer.log.read(first + 3, 10_000, packed=True).records
    assert (records[0].header.first_entry, records[0].header.end_entry) == (first, end)
    assert records[0].packed and records[1].header.first_entry == end
    originals = [each for record in records for each in (_originals(record) if record.packed else [record])]
    assert originals[3:] == writer.log.read(first + 3, 20_000).records[: len(originals) - 3]


def _originals(record: StoredRecord) -> list[StoredRecord]:
    return record.originals(3, record.header.first_entry, record.header.end_entry)


def test_a_file_of_large_segments_is_left_alone_and_not_looked_at_again() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    for _ in range(30):
        writer.append(size=400, count=1)  # no bare form
        writer.commit(disk)
    before = {path: disk.contents(path) for path in log_files(disk)}
    assert pack_all(writer.log, disk) == Counter()
    assert {path: disk.contents(path) for path in log_files(disk)} == before
    assert writer.log.next_unpacked() is None


def test_a_head_that_is_longer_than_the_probe_does_not_keep_a_file_from_being_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    writer = written(disk)
    assert min(head_bytes(disk, path) for path in log_files(disk)) > 100
    monkeypatch.setattr("headpond.storage.log.pack.PROBE_BYTES", 100)
    monkeypatch.setattr(writer.log, "place", replace(writer.log.place, pack_segments_min=2))
    assert pack_all(writer.log, disk)["files_packed"] == len(log_files(disk)) - 1


def head_bytes(disk: MemoryDisk, path: str) -> int:
    items = (item for item in scan(disk.open(path)) if isinstance(item, Found))
    return next(item.offset for item in items if item.frame.type not in (FrameType.TITLE, FrameType.MARKS))


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(("size", "files"), [(20, 4), (3_000, 1)])
def test_a_file_of_small_segments_is_closed_sooner(size: int, files: int, reopened: bool) -> None:
    options = LogOptions(rotate_bytes=200_000, rotate_small_bytes=20_000, preallocate_bytes=0)
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, options), random.Random(4))
    for number in range(500 if size == 20 else 20):
        if reopened and number % 8 == 7:
            writer.log.close()
            writer.log = open_log(disk, options)
        writer.put(size=size)
        writer.commit(disk)
    assert len(log_files(disk)) == files
    assert read_all(writer.log) == (writer.durable, [])


def test_a_file_that_will_not_be_packed_is_not_closed_sooner() -> None:
    for options in (
        LogOptions(rotate_small_bytes=5_000, pack_segments_min=1_000_000),
        LogOptions(rotate_small_bytes=5_000),
    ):
        disk = MemoryDisk()
        writer = SegmentWriter(open_log(disk, options), random.Random(4))
        writer.log.of_state = options.pack_segments_min < 1_000
        for _ in range(100):
            writer.put()
            writer.commit(disk)
        assert len(log_files(disk)) == 1


def test_messages_with_a_time_to_live_stay_apart() -> None:
    """Each expires by its own time, which the records of files and of deliveries have."""
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    for number in range(80):
        headers = with_ttl(None, 5.0) if number % 20 == 0 else {"a": "b"}
        body = encode_plain(rows_to_batch([b"v"], None, None, [headers], [writer.clock_us]))
        writer.store(BLOCKS[0], 1, body)
        writer.commit(disk)
    pack_all(writer.log, disk)
    spans = [(first, end) for _, _, first, end in packed_spans(disk)]
    assert len(spans) > 1 and not any(
        first <= entry < end for first, end in spans for entry in range(0, 80, 20)
    )
    assert read_all(writer.log) == (writer.durable, [])


def test_a_file_of_messages_with_a_time_to_live_is_not_written_again() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    body = encode_plain(rows_to_batch([b"v"], None, None, [with_ttl(None, 5.0)], [5]))
    for _ in range(80):
        writer.store(BLOCKS[0], 1, body)
        writer.commit(disk)
    disk.operations.clear()
    assert pack_all(writer.log, disk) == Counter()
    assert not any(operation == "create" for operation, *_ in disk.operations)


def test_a_refusal_without_a_reason_ends_a_run() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    for number in range(80):
        if number % 20 == 10:
            writer.store(BLOCKS[0], 0, b"")
        writer.put()
        writer.commit(disk)
    assert pack_all(writer.log, disk)["files_packed"] > 1
    assert read_all(writer.log) == (readable(writer.durable), [])


def test_a_run_ends_where_the_columns_change() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    for number in range(60):
        writer.put(key=number % 20 >= 10)
        writer.commit(disk)
    pack_all(writer.log, disk)
    spans = [(first, end) for _, _, first, end in packed_spans(disk)]
    assert (0, 10) in spans and all(first // 10 == (end - 1) // 10 for first, end in spans)


def test_a_run_has_only_so_many_blocks_as_one_answer_can_name() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, LogOptions(rotate_bytes=40_000)), random.Random(4))
    body = encode_plain(rows_to_batch([b"v"], None, None, None, [5]))
    for number in range(450):
        writer.store(number.to_bytes(16, "little"), 1, body)
        writer.commit(disk)
    pack_all(writer.log, disk)
    records = writer.log.read(0, 100_000, packed=True).records
    assert next(len(record.blocks) for record in records if record.packed) == 200
    assert read_all(writer.log) == (writer.durable, [])


def test_a_file_that_lacks_a_record_is_not_packed() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    path = log_files(disk)[0]
    file = disk.open(path, writable=True)
    gone = [item for item in scan(file) if isinstance(item, Found) and item.frame.type == FrameType.SEGMENT][5]
    rest = file.read_at(gone.end, file.size())
    file.truncate(gone.offset)
    file.write_at(gone.offset, [rest])
    before = disk.contents(path)
    counters = pack_all(writer.log, disk)
    assert counters["packs_unsound"] == 1 and disk.contents(path) == before


def test_a_segment_whose_bytes_would_not_come_back_stays_as_it_is() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    good = encode_plain(rows_to_batch([b"value"], None, None, None, [5]))
    for number in range(60):
        body = good if number % 20 else good + b"\0"  # bytes behind its end, as no producer's has
        writer.store(BLOCKS[0], 1, body)
        writer.commit(disk)
    pack_all(writer.log, disk)
    assert read_all(writer.log) == (writer.durable, [])


def rot_marks(disk: MemoryDisk, path: str) -> None:
    """Recovery then replays the file before this one."""
    (place,) = [
        item.offset
        for item in scan(disk.open(path))
        if isinstance(item, Found) and item.frame.type == FrameType.MARKS
    ]
    disk.flip(path, place + 60)


# --- faults -------------------------------------------------------------------------------------------


def changes_while_packing() -> int:
    disk = MemoryDisk()
    writer = written(disk)
    before = len(disk.operations)
    pack_all(writer.log, disk)
    return sum(operation[0] not in ("read", "open") for operation in disk.operations[before:])


@pytest.mark.parametrize("keep", ["none", "all", "some"])
def test_a_power_cut_at_any_step_of_packing_loses_nothing(keep: Keep) -> None:
    for changes in range(changes_while_packing() + 1):
        disk = MemoryDisk(changes)
        writer = written(disk)
        disk.cut_power_after(changes)
        pack_all(writer.log, disk)
        disk.crash(keep=keep)
        again = open_log(disk, OPTIONS)
        assert again.report.lines() == [] and list(again.damaged) == []
        assert read_all(again) == (writer.durable, [])
        assert not [name for name in disk.list(FOLDER) if name.endswith(NEW_SUFFIX)]
        pack_all(again, disk)
        assert read_all(again) == (writer.durable, []) and packed_spans(disk)
        writer.log = again
        writer.put()
        writer.commit(disk)
        assert read_all(again) == (writer.durable, [])


def test_what_a_failed_write_left_behind_the_end_is_not_packed_either() -> None:
    disk = MemoryDisk()
    writer = written(disk, rounds=10)
    log = writer.log
    writer.put()
    log.append_end(BLOCKS[1], writer.clock_us)
    write = log.take()
    assert write is not None
    disk.fail_next("sync", errno.EIO, 1, FOLDER)
    with pytest.raises(OSError, match="Input/output"):
        write.run(disk)
    log.failed(write)
    writer.staged = []
    writer.put()  # in a new file, since nothing is known of the end of the other
    writer.commit(disk)
    before, last = marked(log), log_files(disk)[-1]
    assert pack_all(log, disk)["files_packed"] == 1
    rot_marks(disk, last)  # so that the packed file is replayed
    again = open_log(disk, OPTIONS)
    assert marked(again) == before and read_all(again) == (writer.durable, [])


@pytest.mark.parametrize("operation", PACK_OPERATIONS)
def test_a_disk_that_fails_a_step_leaves_the_file_as_it_was(operation: Operation) -> None:
    for after in range(6):
        disk = MemoryDisk()
        writer = written(disk)
        disk.fail_next(operation, errno.EIO, 1, FOLDER, after=after)
        pack_all(writer.log, disk)
        disk.fail_never()
        assert read_all(writer.log) == (writer.durable, [])
        again = open_log(disk, OPTIONS)
        assert again.report.lines() == [] and read_all(again) == (writer.durable, [])


def readable_of(log: ShardLog) -> list[Row]:
    """What a reader that takes packed records gets."""
    rows: list[Row] = []
    at = 0
    while at < log.entry_durable:
        run = log.read(at, 1_500, packed=True)
        for record in run.records:
            rows += map(row_of, _originals(record) if record.packed else [record])
        at = run.next_entry
    return rows


def test_one_flipped_bit_costs_the_segments_that_it_belongs_to_and_no_others() -> None:
    sample = MemoryDisk()
    writer = written(sample)
    pack_all(writer.log, sample)
    path, offset, first, end = packed_spans(sample)[1]
    found = read_frame(sample.open(path), offset)
    dear = 0
    for at in range(offset, found.end):
        disk = sample.copy()
        disk.flip(path, at, at % 8)
        log = open_log(disk, OPTIONS)
        rows, lost = read_all(log)
        gone = {entry for start, stop in lost for entry in range(start, stop)}
        assert gone <= set(range(first, end))
        assert rows == [row for row in writer.durable if row.first_entry not in gone]
        assert readable_of(log) == rows
        assert {entry for start, stop in log.damaged for entry in range(start, stop)} == gone
        dear += len(gone) > 2
    heads = 7 + 8 + 8 + 8  # of the frame, the first entry, and of the two forms
    assert 0 < dear <= heads + 16 * len(BLOCKS) + 2 * 4  # blocks, first and last offset


def test_a_packed_record_that_contradicts_itself_is_lost_and_reported() -> None:
    """No disk makes one: its checksum is right. A fault of the program would."""
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    path, offset, first, end = packed_spans(disk)[1]
    frame = read_frame(disk.open(path), offset).frame
    facts = facts_of(frame.body[RECORD_HEADER_BYTES:])
    counts_at = RECORD_HEADER_BYTES + facts.rows_at - 4 * len(facts.counts)
    body = frame.body[:counts_at] + b"\7" + frame.body[counts_at + 1 :]
    disk.open(path, writable=True).write_at(offset, [encode(frame.type, body, shard=frame.shard)])
    rows, lost = read_all(writer.log)
    assert lost == [(first, end)] and list(writer.log.damaged) == [(first, end)]
    assert rows == [row for row in writer.durable if not first <= row.first_entry < end]


def test_a_walk_from_the_middle_of_a_damaged_packed_record_begins_there() -> None:
    disk = MemoryDisk()
    pack_all(written(disk).log, disk)
    path, offset, first, end = packed_spans(disk)[1]
    disk.flip(path, offset + 5)
    file = disk.open(path)
    found = list(walk(file, WalkBounds(offset, file.size(), first + 3, end), 3, 4096))
    assert [item.header.first_entry for item in found] == list(range(first + 3, end))
    assert list(walk(file, WalkBounds(offset, file.size(), first, end), 4, 4096)) == []  # of another shard


def test_a_lost_sector_costs_neither_what_is_before_it_nor_what_is_behind() -> None:
    disk = MemoryDisk()
    writer = written(disk, rounds=400, options=LogOptions(rotate_bytes=40_000, index_every_bytes=4_000))
    pack_all(writer.log, disk)
    path, offset, _, end = packed_spans(disk)[0]
    at = read_frame(disk.open(path), offset).end - 1_000  # among the values
    for place in range(at, at + 512):
        for bit in range(8):
            disk.flip(path, place, bit)
    rows, lost = read_all(writer.log)
    assert len(lost) == 1 and end - 52 < lost[0][0] < lost[0][1] < end and lost[0][1] - lost[0][0] < 30
    assert len(rows) == 400 - (lost[0][1] - lost[0][0])


def lose_the_last_sector(disk: MemoryDisk, path: str, *, cut: bool) -> None:
    """The end of the last record and the STATUS behind it are gone, or zeros."""
    file = disk.open(path, writable=True)
    if cut:
        file.truncate(file.size() - 512)
    else:
        file.write_at(file.size() - 512, [bytes(512)])


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("rows_each", [1, 3])
def test_a_lost_sector_at_the_end_of_a_packed_file_costs_only_what_was_in_it(rows_each: int, cut: bool) -> None:
    options = LogOptions(rotate_bytes=40_000, index_every_bytes=4_000)
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, options), random.Random(4))
    for _ in range(400):
        writer.put(rows=rows_each)
        writer.commit(disk)
    pack_all(writer.log, disk)
    path, _, first, end = packed_spans(disk)[0]
    lose_the_last_sector(disk, path, cut=cut)
    rows, lost = read_all(writer.log)
    assert len(lost) == 1 and lost[0][1] == end and 0 < end - lost[0][0] < 30 < (end - first) // 2
    assert rows == [row for row in writer.durable if not lost[0][0] <= row.first_entry < end]
    rot_marks(disk, log_files(disk)[1])
    again = open_log(disk, options)
    assert read_all(again) == (rows, lost) and list(again.damaged) == lost
    gone = {(row.block, row.segment) for row in writer.durable if row not in rows}
    before = {(block, number) for block, numbers in marked(writer.log).items() for number in numbers}
    assert before - {(block, number) for block, numbers in marked(again).items() for number in numbers} == gone


def test_two_lost_sectors_of_a_packed_file_cost_nothing_between_them() -> None:
    """Sectors of zeros do not make it a file whose last write was torn."""
    options = LogOptions(rotate_bytes=40_000, index_every_bytes=4_000)
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, options), random.Random(4))
    for number in range(400):
        if number % 50 == 49:
            writer.refuse()
        writer.put(size=60)
        writer.commit(disk)
    pack_all(writer.log, disk)
    path, offset, *_ = packed_spans(disk)[0]
    at = (read_frame(disk.open(path), offset).end - 1_000) // 512 * 512
    disk.open(path, writable=True).write_at(at, [bytes(512)])
    lose_the_last_sector(disk, path, cut=False)
    rows, lost = read_all(writer.log)
    gone = sum(end - start for start, end in lost)
    assert len(lost) == 2 and gone < 30
    rot_marks(disk, log_files(disk)[1])
    again = open_log(disk, options)
    assert read_all(again) == (rows, lost) and list(again.damaged) == lost
    assert sum(map(len, marked(again).values())) == len(writer.durable) - gone


def test_two_damaged_neighbours_both_give_back_what_is_whole() -> None:
    disk = MemoryDisk()
    options = LogOptions(rotate_bytes=450_000, index_every_bytes=100_000)
    writer = SegmentWriter(open_log(disk, options), random.Random(4))
    for _ in range(350):
        writer.put(rows=20, size=60)
        writer.commit(disk)
    pack_all(writer.log, disk)
    one, other, *_ = packed_spans(disk)
    assert one[0] == other[0] and one[3] == other[2]
    for path, offset, _, _ in (one, other):
        disk.flip(path, read_frame(disk.open(path), offset).end - 100)
    rows, lost = read_all(writer.log, bytes_max=20_000)
    assert [stop - start for start, stop in lost] == [20, 20]
    assert read_all(writer.log, bytes_max=1) == (rows, lost)  # each read continues where the one before ended
    assert [row.first_entry for row in rows] == [
        row.first_entry for row in writer.durable if (row.first_entry, row.first_entry + 20) not in lost
    ]


def test_a_copy_of_a_packed_record_in_a_damaged_message_is_never_served() -> None:
    """Whoever sends a message knows every byte of the copy, and here the damaged size leads to it."""
    disk = MemoryDisk()
    pack_all(written(disk).log, disk)
    path, offset, *_ = packed_spans(disk)[-1]
    copied = read_frame(disk.open(path), offset)
    copy = bytearray(disk.open(path).read_at(offset, copied.size))
    copy[-1] ^= 1  # no valid frame, but all its segments are whole
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk), random.Random(4))
    writer.store(BLOCKS[0], 1, bytes(100) + copy)
    writer.put()
    writer.commit(disk)
    (path,) = log_files(disk)
    items = [item for item in scan(disk.open(path)) if isinstance(item, Found)]
    place = next(item for item in items if item.frame.type == FrameType.SEGMENT)
    size_to_the_copy = RECORD_HEADER_BYTES + 100 - TRAILER.size
    rot_size(disk, path, place, size_to_the_copy)
    assert read_all(writer.log) == (writer.durable[1:], [(0, 1)])


def rot_size(disk: MemoryDisk, path: str, item: Found, size: int) -> None:
    rot = len(item.frame.body) ^ size
    for bit in range(32):
        if rot >> bit & 1:
            disk.flip(path, item.offset + 7 + bit // 8, bit % 8)


def test_nor_is_a_copy_in_a_message_of_a_damaged_packed_record() -> None:
    disk = MemoryDisk()
    pack_all(written(disk).log, disk)
    path, offset, *_ = packed_spans(disk)[0]
    copy = bytearray(disk.open(path).read_at(offset, read_frame(disk.open(path), offset).size))
    copy[-1] ^= 1
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(5))
    for value in [b"value"] * 9 + [bytes(copy)] + [b"value"] * 40:
        writer.store(BLOCKS[0], 1, encode_plain(rows_to_batch([value], None, None, None, [5])))
        writer.commit(disk)
    pack_all(writer.log, disk)
    path, offset, first, end = packed_spans(disk)[0]
    place = disk.contents(path).index(copy)
    item = read_frame(disk.open(path), offset)
    assert first == 0 and offset < place < item.end
    rot_size(disk, path, item, place - offset - OVERHEAD_BYTES)
    assert read_all(writer.log) == (writer.durable[end:], [(first, end)])


def test_a_packed_file_is_replayed_where_the_marks_behind_it_rotted() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    before = marked(writer.log)
    rot_marks(disk, log_files(disk)[-1])
    again = open_log(disk, OPTIONS)
    assert marked(again) == before
    assert read_all(again) == (writer.durable, [])
    for row in writer.durable:
        found = again.find_segments([(row.block, row.segment)])[row.block, row.segment]
        assert found == (row.segment * 7, row.first_entry, row.count)


def test_the_end_of_a_block_keeps_its_place_among_packed_segments() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
    for number in range(80):
        if number % 20 == 10:
            writer.log.append_end(BLOCKS[0], writer.clock_us)
        writer.put()
        writer.commit(disk)
    assert pack_all(writer.log, disk)["files_packed"] > 1
    before = marked(writer.log)
    rot_marks(disk, log_files(disk)[-1])
    again = open_log(disk, OPTIONS)
    assert marked(again) == before and not list(again.damaged)
    assert read_all(again) == (writer.durable, [])


def test_a_replay_of_a_damaged_packed_file_knows_the_segments_that_are_whole() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    path, offset, _, end = packed_spans(disk)[-1]
    disk.flip(path, read_frame(disk.open(path), offset).end - 10)  # in the last value
    rot_marks(disk, log_files(disk)[-1])
    again = open_log(disk, OPTIONS)
    assert list(again.damaged) == [(end - 1, end)] and read_all(again)[1] == [(end - 1, end)]
    lost = writer.durable[end - 1]
    assert marked(again)[lost.block] == marked(writer.log)[lost.block] - {lost.segment}


@pytest.mark.parametrize("cut", [0, 10, 60, 400])
def test_a_copy_that_ends_inside_a_packed_file_reports_its_loss_and_keeps_what_is_stored_then(cut: int) -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    *_, packed, written_to = log_files(disk)
    end = parse_file(written_to.rpartition("/")[2])
    assert end is not None
    disk.remove(written_to)
    file = disk.open(packed, writable=True)
    file.truncate(file.size() - cut)
    writer.log = open_log(disk, OPTIONS)
    assert writer.log.report.new_incarnation and writer.log.entry_durable == end.first
    before, lost = read_all(writer.log)
    assert all(row in writer.durable for row in before) and bool(lost) == (cut > 10)  # the end is a STATUS
    assert {each for span in lost for each in range(*span)} == set(range(len(before), end.first))
    writer.durable = []
    writer.put()
    writer.commit(disk)
    again = open_log(disk, OPTIONS)
    assert again.report.lines() == [] and read_all(again) == (before + writer.durable, lost)


def test_wherever_a_packed_file_was_cut_what_is_stored_then_survives() -> None:
    whole = MemoryDisk()
    pack_all(written(whole).log, whole)
    *_, packed, written_to = log_files(whole)
    whole.remove(written_to)
    size = len(whole.contents(packed))
    for left in (*range(0, size, 41), size):
        disk = whole.copy()
        disk.open(packed, writable=True).truncate(left)
        writer = SegmentWriter(open_log(disk, OPTIONS), random.Random(4))
        assert writer.log.report.new_incarnation
        before, lost = read_all(writer.log)
        writer.put()
        writer.commit(disk)
        assert read_all(open_log(disk, OPTIONS)) == (before + writer.durable, lost)


def test_an_opening_reads_only_the_heads_of_packed_files() -> None:
    disk = MemoryDisk()
    options = LogOptions(rotate_bytes=60_000)
    pack_all(written(disk, rounds=2_500, options=options).log, disk)
    packed = log_files(disk)[:-1]
    assert len(packed) > 2
    disk.operations.clear()
    open_log(disk, options)
    read = Counter[str | int]()
    for operation, path, *rest in disk.operations:
        if operation == "read":
            read[path] += int(rest[1])
    assert all(read[path] < 15_000 < len(disk.contents(path)) for path in packed)


def test_rot_in_the_event_of_a_packed_file_takes_no_row_for_a_compacted_one() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    path = log_files(disk)[1]
    event = next(
        item
        for item in scan(disk.open(path))
        if isinstance(item, Found) and item.frame.type == FrameType.RECORD
    )
    disk.flip(path, event.offset + event.size - 6)
    again = open_log(disk, OPTIONS)
    assert not again.compacted and read_all(again) == (writer.durable, [])


@pytest.mark.parametrize(
    "rotten",
    [FrameType.TITLE, FrameType.MARKS, FrameType.RECORD, FrameType.SEGMENT, FrameType.STATUS],
    ids=lambda each: each.name,
)
def test_a_file_with_a_damaged_frame_of_any_type_stays_as_it_is(rotten: FrameType) -> None:
    disk = MemoryDisk()
    writer = written(disk)
    path = log_files(disk)[0]
    items = [item for item in scan(disk.open(path)) if isinstance(item, Found)]
    disk.flip(path, next(item.end for item in items if item.frame.type == rotten) - 6)
    before = disk.contents(path)
    assert pack_all(writer.log, disk)["packs_unsound"] == 1
    assert disk.contents(path) == before


def test_a_damaged_file_is_not_packed() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    path = log_files(disk)[1]
    disk.flip(path, 1_000)
    assert pack_all(writer.log, disk)["packs_failed"] == 0
    assert path in log_files(disk)
    _, lost = read_all(writer.log)
    assert len(lost) == 1 and lost[0][1] - lost[0][0] == 1


def test_retention_drops_packed_files_and_those_that_are_being_packed() -> None:
    for steps in range(5):
        disk = MemoryDisk()
        writer = written(disk)
        log = writer.log
        closed = log.next_unpacked()
        assert closed is not None
        job = PackJob((b"", 0), log, closed, exists=lambda: True, counters=Counter(), then=lambda: None)
        more = True
        for _ in range(steps):
            if more:
                job.run(disk)
                more = job.done(None)
        log.drop_before(log.entry_durable // 2)
        commit(log, disk)
        while more:
            error: OSError | None = None
            try:
                job.run(disk)
            except OSError as caught:
                error = caught
            more = job.done(error)
        pack_all(log, disk)
        assert read_all(log) == (readable(writer.durable, log.entry_first), [])
        firsts = {file.first for file in log.stored_files()}
        assert {parse_file(name).first for name in disk.list(FOLDER) if name.endswith(".log")} == firsts  # type: ignore[union-attr]
        log.drop_before(log.entry_next)
        commit(log, disk)
        again = open_log(disk, OPTIONS)
        assert again.report.lines() == [] and len(disk.list(FOLDER)) == 1


def test_a_read_that_took_its_view_before_the_swap_reads_on() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    first = writer.log.read(0, 500)
    pack_all(writer.log, disk)
    second = writer.log.read(first.next_entry, 100_000)
    rest = read_all(writer.log, second.next_entry)[0]
    entries = [each.header.first_entry for run in (first, second) for each in run.records]
    assert entries + [row.first_entry for row in rest] == list(range(60))


@pytest.mark.parametrize("opened_before", range(4))
def test_a_search_for_segments_goes_on_where_their_file_is_replaced_under_it(opened_before: int) -> None:
    """One that is not found counts as a repeat whatever it contains."""
    disk = MemoryDisk()
    writer = written(disk)
    log, row = writer.log, writer.durable[5]
    opens, open_file = count(), disk.open

    def open_late(path: str, *, writable: bool = False) -> MemoryFile:
        if next(opens) == opened_before:
            pack_all(log, disk)
        return open_file(path, writable=writable)

    disk.open = open_late  # type: ignore[method-assign]
    found = log.find_segments([(row.block, row.segment)])
    assert found == {(row.block, row.segment): (row.segment * 7, row.first_entry, row.count)}


def test_a_search_that_read_the_beginning_of_a_file_finds_its_rest_where_it_was_packed_since() -> None:
    disk = MemoryDisk()
    writer = written(disk, rounds=10)
    log, row = writer.log, writer.durable[-1]
    assert log.find_segments([(row.block, row.segment)])[row.block, row.segment] is not None
    for _ in range(30):
        writer.put()
        writer.commit(disk)
    assert pack_all(log, disk)["files_packed"] > 0
    found = log.find_segments([(row.block, row.segment) for row in writer.durable])
    assert None not in found.values()


def test_a_packed_record_has_the_facts_of_every_segment() -> None:
    disk = MemoryDisk()
    writer = written(disk)
    pack_all(writer.log, disk)
    record = writer.log.read(0, 1, packed=True).records[0]
    facts = facts_of(segment_of(record))
    rows = writer.durable[: len(facts.counts)]
    assert [facts.blocks[place] for place in facts.places] == [row.block for row in rows]
    assert list(facts.numbers) == [row.segment for row in rows]
    assert list(facts.stored_at_us) == [1_010 + 10 * number for number in range(len(rows))]
