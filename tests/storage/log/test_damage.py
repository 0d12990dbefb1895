"""A log reports rot by its exact entries and never serves it; it serves everything else, and always opens."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest

from headpond.model.errors import BadData
from headpond.storage.append import encode_status
from headpond.storage.frame_file import Found, scan
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.read import build_index
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import FrameType, encode
from headpond.wire.record import RECORD_HEADER, RecordHeader, decode_record_header
from headpond.wire.title import Title
from tests.storage.log.logs import (
    FOLDER,
    SHARD,
    TITLE,
    LogWriter,
    Row,
    admitted,
    commit,
    filled,
    log_files,
    marked,
    open_log,
    read_all,
    readable,
)

TINY = LogOptions(rotate_bytes=2_000, preallocate_bytes=1_024, index_every_bytes=300)


class FramePlace(NamedTuple):
    path: str
    offset: int
    size: int
    type: int
    row: Row | None


def places(disk: MemoryDisk, rows: list[Row]) -> list[FramePlace]:
    """Every frame of every file of a log, with the row that stands in it."""
    by_segment = {(row.block, row.segment): row for row in rows}
    found = []
    for path in log_files(disk):
        for item in scan(disk.open(path)):
            assert isinstance(item, Found)
            row = None
            if item.frame.type == FrameType.SEGMENT:
                row = by_segment[decode_record_header(item.frame.body).block, item.frame.segment]
            found.append(FramePlace(path, item.offset, item.size, item.frame.type, row))
    return found


def closed_log(seed: int) -> tuple[MemoryDisk, list[Row]]:
    disk = MemoryDisk(seed)
    writer = filled(disk, rounds=16, seed=seed, options=TINY)
    writer.append(count=2)  # the last record is one with entries
    writer.commit(disk)
    writer.log.close()
    return disk, writer.durable


def check_goes_on(disk: MemoryDisk, log: ShardLog, left: list[Row], span: Row | None) -> None:
    """A damaged log accepts appends, and has them after the next start."""
    writer = LogWriter(log, random.Random(1), durable=list(left))
    writer.append(count=1)
    writer.commit(disk)
    log.close()
    again = open_log(disk, TINY)
    assert again.holds(log.incarnation, log.entry_durable)
    assert read_all(again)[0] == readable(writer.durable)


def test_the_next_read_finds_rot_that_came_after_the_opening() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=10)
    log = writer.log
    assert read_all(log) == (readable(writer.durable), [])
    place = next(
        place for place in places(disk, writer.durable) if place.row is not None and place.row.count == 3
    )
    disk.flip(place.path, place.offset + place.size // 2)
    rows, lost = read_all(log)
    assert place.row is not None
    first = place.row.first_entry
    assert rows == readable([row for row in writer.durable if row is not place.row])
    assert lost == [(first, first + 3)] == list(log.damaged)
    # A read that starts inside the lost span gets the rest of the span as lost, and continues behind it.
    run = log.read(first + 1, 1)
    assert run.lost == [(first + 1, first + 3)] and run.records[0].header.first_entry == first + 3


def test_damage_that_is_known_when_a_new_file_begins_is_known_after_the_next_start() -> None:
    disk, rows = closed_log(2)
    middle = [place for place in places(disk, rows) if place.row is not None and place.row.count][3]
    assert middle.row is not None and middle.path != log_files(disk)[-1]
    disk.flip(middle.path, middle.offset + 20)
    log = open_log(disk, TINY)
    assert list(log.damaged) == [], "only the last file is read when a log is opened"
    read_all(log)
    span = (middle.row.first_entry, middle.row.first_entry + middle.row.count)
    assert list(log.damaged) == [span]
    writer = LogWriter(log, random.Random(2))
    files = len(log_files(disk))
    while len(log_files(disk)) == files:
        writer.append()
        writer.commit(disk)
    assert list(open_log(disk, TINY).damaged) == [span]


def test_after_a_clean_stop_the_last_file_that_is_gone_is_lost_by_its_exact_span() -> None:
    disk = MemoryDisk(1)
    writer = filled(disk, rounds=16, options=TINY)
    writer.append(count=2)
    writer.commit(disk)
    sealed = writer.log.close()
    assert sealed is not None
    gone = log_files(disk)[-1]
    first, end = int(gone[-24:-4]), writer.log.entry_next
    disk.remove(gone)
    log = open_log(disk, TINY, sealed)
    assert log.report.missing == [(first, end)] == list(log.damaged) and log.entry_next == end
    assert log.report.new_incarnation
    left = [row for row in writer.durable if row.first_entry < first]
    assert read_all(log)[0] == readable(left)
    check_goes_on(disk, log, left, span=None)
    again = open_log(disk, TINY)
    before = writer.log.incarnation
    assert again.holds(before, first) and not again.holds(before, first + 1)


@pytest.mark.parametrize("what", ["gone", "flipped", "empty"])
def test_a_missing_or_damaged_index_is_built_again(what: str) -> None:
    disk, rows = closed_log(1)
    indexes = [f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".index")]
    before = {path: disk.contents(path) for path in indexes}
    assert len(indexes) == len(log_files(disk)) - 1
    for path in indexes:
        if what == "gone":
            disk.remove(path)
        elif what == "flipped":
            disk.flip(path, len(before[path]) // 2)
        else:
            disk.open(path, writable=True).truncate(0)
    assert read_all(open_log(disk, TINY)) == (readable(rows), [])
    assert {path: disk.contents(path) for path in indexes} == before


def test_marks_that_rotted_are_found_again_from_the_file_before() -> None:
    disk, rows = closed_log(3)
    whole = open_log(disk.copy(), TINY)
    for depth in (1, 2, 3):
        place = next(
            place
            for place in places(disk.copy(), rows)
            if place.path == log_files(disk)[-1] and place.type == FrameType.MARKS
        )
        twin = disk.copy()
        for path in log_files(twin)[-depth:]:
            twin.flip(path, place.offset + 30)
        log = open_log(twin, TINY)
        assert marked(log) == admitted(rows)
        assert log.report.files_read == depth + 1
        assert log.holds(whole.incarnation, whole.entry_durable) and not log.report.new_incarnation
        assert read_all(log) == (readable(rows), [])


def test_every_segment_is_found_whichever_heads_rotted() -> None:
    """One that is not found counts as a repeat whatever it contains."""
    disk = MemoryDisk()
    writer = filled(disk, rounds=30, options=TINY)
    heads = [place for place in places(disk, writer.durable) if place.type == FrameType.MARKS]
    assert len(heads) > 4
    for rotten in itertools.chain(itertools.combinations(heads, 1), itertools.combinations(heads, 2)):
        twin = disk.copy()
        for place in rotten:
            twin.flip(place.path, place.offset + 60)
        log = open_log(twin, TINY)
        for row in writer.durable:
            found = log.find_segments([(row.block, row.segment)])[row.block, row.segment]
            assert found == (row.segment * 7, row.first_entry, row.count)


def test_a_last_file_in_which_nothing_can_be_read_is_kept_and_its_entries_are_not_used_again() -> None:
    disk, rows = closed_log(1)
    last = log_files(disk)[-1]
    first = int(last[-24:-4])
    garbage = random.Random(1).randbytes(3_000)
    disk.open(last, writable=True).write_at(0, [garbage])
    disk.open(last, writable=True).truncate(len(garbage))
    log = open_log(disk, TINY)
    assert log.report.new_incarnation
    before = log.incarnation
    assert read_all(log)[0] == [row for row in readable(rows) if row.first_entry < first]
    assert log.entry_next >= sum(row.count for row in rows)
    writer = LogWriter(log, random.Random(1))
    row = writer.append(count=1)
    writer.commit(disk)
    assert disk.contents(last) == garbage
    again = open_log(disk, TINY)
    assert read_all(again, row.first_entry)[0] == [row]
    assert again.holds(before, first) and not again.holds(before, first + 1)


@pytest.mark.parametrize("copied", ["a file", "a record"])
def test_a_copy_of_a_log_inside_a_message_is_not_taken_for_the_log(copied: str) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=3)
    inner = disk.contents(log_files(disk)[0]).rstrip(b"\0")
    if copied == "a record":
        (inner,) = writer.log.read(0, 1).records[0].parts
    log = writer.log
    first = log.entry_next
    log.append(block=b"c" * 16, segment=0, count=1, origin_crc=0, stored_at_us=5, body=inner)
    commit(log, disk)
    writer.append(count=1)
    writer.commit(disk)
    at = disk.contents(log_files(disk)[-1]).rindex(inner)
    disk.flip(log_files(disk)[-1], at - 51 + 8)  # the size in its header: the way on has to be searched
    rows, lost = read_all(log)
    assert lost == [(first, first + 1)]
    assert rows == readable(writer.durable)
    assert read_all(open_log(disk, TINY)) == (rows, lost)


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_log_of_another_topic_inside_a_message_is_not_served_for_this_one(bit: int) -> None:
    """Its frames are valid, of the same shard, and their entries are higher; the slice ends in any place."""
    elsewhere = MemoryDisk()
    other = LogWriter(open_log(elsewhere, LogOptions()), random.Random(9))
    for _ in range(60):
        other.append(size=20, count=2)
        other.commit(elsewhere)
    source = elsewhere.contents(log_files(elsewhere)[0])
    for end in range(2_300, 2_450):
        check_not_served(source[2_000:end], bit)


def check_not_served(inner: bytes, bit: int) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=2, options=LogOptions())
    log = writer.log
    assert log.entry_next < 20
    first = log.append(block=b"c" * 16, segment=0, count=1, origin_crc=0, stored_at_us=5, body=inner)
    commit(log, disk)
    writer.append(count=1)
    writer.commit(disk)
    path = log_files(disk)[0]
    disk.flip(path, disk.contents(path).index(inner) - 51 + 8, bit)
    rows, lost = read_all(log)
    assert lost == [(first, first + 1)] and rows == readable(writer.durable)
    assert read_all(open_log(disk, LogOptions())) == (rows, lost)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_forged_record_in_a_message_is_not_served_though_its_status_says_nothing_of_its_place(
    sealed: bool,
) -> None:
    """A record of entries ahead, and behind it a STATUS as a write without a sync leaves it."""
    disk = MemoryDisk()
    writer = filled(disk, rounds=2, options=LogOptions())
    log = writer.log
    header = RecordHeader(log.entry_next + 1, 1, b"f" * 16, 2_000, 0)
    forged = encode(FrameType.SEGMENT, RECORD_HEADER.pack(*header) + b"forged", shard=SHARD, segment=9)
    inner = bytes(30) + forged + encode_status(0, log.entry_next + 2, SHARD)
    first = log.append(block=b"c" * 16, segment=0, count=1, origin_crc=0, stored_at_us=5, body=inner)
    commit(log, disk)
    writer.append(count=1)
    writer.commit(disk)
    path = log_files(disk)[0]
    disk.flip(path, disk.contents(path).index(inner) - 51 + 8)
    if sealed:
        index = build_index(disk.open(path), 0, log.entry_next, SHARD, 1)
        assert first + 1 in {point.entry for point in index.points}
        offsets = {place.offset for place in index.points}
        assert disk.contents(path).index(forged) not in offsets
        return
    rows, lost = read_all(log)
    assert lost == [(first, first + 1)] and rows == readable(writer.durable)
    assert read_all(open_log(disk, LogOptions())) == (rows, lost)


@pytest.mark.parametrize("left", ["cut", "zeros"])
@pytest.mark.parametrize("frames", range(1, 12))
def test_records_inside_a_message_whose_write_was_torn_are_not_served(frames: int, left: str) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=2, options=LogOptions())
    log = writer.log
    header = RecordHeader(log.entry_next + 1, 1, b"f" * 16, 2_000, 0)
    forged = encode(FrameType.SEGMENT, RECORD_HEADER.pack(*header) + b"forged", shard=SHARD, segment=9)
    log.append(block=b"c" * 16, segment=0, count=1, origin_crc=0, stored_at_us=5, body=b"x" * 30 + forged * 40)
    commit(log, disk)
    file = disk.open(log_files(disk)[0], writable=True)
    end = disk.contents(file.path).index(forged) + frames * len(forged)
    file.truncate(end)
    file.preallocate(end + (0 if left == "cut" else 8_000))
    assert read_all(open_log(disk, LogOptions()))[0] == readable(writer.durable)


@pytest.mark.parametrize(
    ("title", "shard", "said"),
    [
        (Title("other", b"v" * 16), SHARD, "belongs to topic"),
        (TITLE, 9, "belongs to shard 3, not to 9"),
    ],
)
def test_a_log_of_another_topic_or_shard_is_refused(title: Title, shard: int, said: str) -> None:
    disk, _ = closed_log(0)
    with pytest.raises(BadData, match=said):
        ShardLog.open(disk, FOLDER, title=title, shard=shard, shard_power=2, now_us=1, options=LogOptions())


def test_the_report_describes_each_fault_in_words() -> None:
    disk, rows = closed_log(1)
    last = [place for place in places(disk, rows) if place.row is not None][-1]
    disk.flip(last.path, last.offset + last.size - 1)
    disk.remove(log_files(disk)[1])
    lines = open_log(disk, TINY).report.lines()
    assert f"entries {rows[-1].first_entry} to {rows[-1].first_entry + 1} are lost" in lines[0]
    assert "a file is missing" in lines[1] and "a new incarnation begins" in lines[2]
