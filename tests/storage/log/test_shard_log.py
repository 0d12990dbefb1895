"""A healthy log has durable records once they are committed, and finds them by entry, segment and time."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from headpond.storage.append import STATUS_BYTES
from headpond.storage.disk import Disk, read_whole
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.marks import DAY_US, RECENT_MAX, Stored
from headpond.storage.log.segments import SCANNED_MAX
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.os_disk import OsDisk
from tests.storage.log.logs import (
    BLOCKS,
    FOLDER,
    SMALL,
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
    row_of,
)


def found(log: ShardLog, segment: int) -> Stored | None:
    """A segment of the first block, from memory or from the files."""
    known = log.marks.get(BLOCKS[0])
    assert known is not None
    return known.recent.get(segment) or log.find_segments([(BLOCKS[0], segment)])[BLOCKS[0], segment]


@pytest.fixture(params=["memory", "os"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MemoryDisk() if request.param == "memory" else OsDisk(tmp_path / "data")


def write_rows(disk: Disk, rounds: int, options: LogOptions = SMALL) -> LogWriter:
    writer = LogWriter(open_log(disk, options), random.Random(1))
    for _ in range(rounds):
        for _ in range(3):
            writer.append()
        writer.commit(disk)
    return writer


def test_a_staged_record_moves_the_marks_and_cannot_be_read(disk: Disk) -> None:
    log = open_log(disk)
    first = log.append(block=BLOCKS[0], segment=0, count=2, origin_crc=5, stored_at_us=1, body=b"xy")
    assert (first, log.entry_next, log.entry_durable, log.entry_taken) == (0, 2, 0, 0)
    assert log.marks.next(BLOCKS[0]) == 1
    assert found(log, 0) == (5, 0, 2)
    assert log.read(0, 100) == ([], 0, [])
    assert disk.list(FOLDER) == []
    write = log.take()
    assert write is not None and write.bytes > 0 and log.appender.staged.bytes == 0
    assert (log.entry_taken, log.entry_durable) == (2, 0)
    write.run(disk)
    assert log.read(0, 100) == ([], 0, []), "durable is what was committed"
    committed = log.committed(write)
    assert [row_of(record) for record in committed] == [Row(0, 2, BLOCKS[0], 0, b"xy")] == read_all(log)[0]
    assert log.take() is None


def test_a_log_accepts_appends_while_a_write_is_under_way(disk: Disk) -> None:
    writer = write_rows(disk, 2)
    before = writer.log.entry_next
    writer.append(count=1)
    write = writer.log.take()
    assert write is not None
    later = writer.append(count=1)
    assert later.first_entry == before + 1
    write.run(disk)
    writer.log.committed(write)
    assert writer.log.entry_durable == before + 1
    writer.commit(disk)
    assert read_all(writer.log) == (readable(writer.durable), [])


def test_a_file_keeps_a_status_that_was_written_after_its_last_write_was_committed(disk: Disk) -> None:
    writer = write_rows(disk, 1)
    log = writer.log
    writer.append(count=1)
    write = log.take()
    assert write is not None and not write.creates
    write.append(disk)
    log.committed(write)
    log.appender.prove(write)
    assert log.rotate()
    commit(log, disk)
    first, *_ = log.stored_files()
    assert first.bytes == write.end + STATUS_BYTES
    assert read_whole(disk, write.path).endswith(write.status)


def test_one_write_is_under_way_at_a_time(disk: Disk) -> None:
    writer = write_rows(disk, 1)
    writer.append()
    writer.log.take()
    writer.append()
    with pytest.raises(AssertionError, match="not done"):
        writer.log.take()


def test_a_reopened_log_is_the_same_log(disk: Disk) -> None:
    writer = write_rows(disk, 20)
    assert len(log_files(disk)) > 3
    positions = [(0, 0)]
    for _ in range(3):
        positions.append((writer.log.incarnation, writer.log.entry_durable))
        writer.log.close()
        log = open_log(disk)
        assert log.report.lines() == []
        assert read_all(log) == (readable(writer.durable), [])
        assert marked(log) == admitted(writer.durable)
        assert log.entry_next == log.entry_durable == sum(row.count for row in writer.durable)
        assert all(log.holds(*position) for position in positions)
        writer.log = log
        writer.append(count=1)
        writer.commit(disk)
    assert len(dict(positions)) == 4, "every run that stores something is an incarnation"


def test_closing_leaves_no_reserved_room_and_opening_again_changes_nothing(disk: Disk) -> None:
    writer = write_rows(disk, 5)
    writer.append(count=1)
    writer.log.close()  # commits what is staged
    writer.durable += writer.staged
    sizes = {path: disk.open(path).size() for path in log_files(disk)}
    log = open_log(disk)
    assert log.bytes == sum(sizes.values())
    assert read_all(log) == (readable(writer.durable), [])
    log.close()
    assert {path: disk.open(path).size() for path in log_files(disk)} == sizes


def test_a_read_gives_at_least_one_record_and_stays_within_its_bytes_otherwise(disk: Disk) -> None:
    writer = write_rows(disk, 10)
    rows = readable(writer.durable)
    sizes = {row.first_entry: len(row.body) + 55 for row in rows}
    for row in rows:
        for inside in range(row.count):
            one = writer.log.read(row.first_entry + inside, 1)
            assert [row_of(record) for record in one.records] == [row]
            assert one.next_entry == row.first_entry + row.count
        several = writer.log.read(row.first_entry, 900)
        assert sum(sizes[record.header.first_entry] for record in several.records) <= max(
            900, sizes[row.first_entry]
        )
        start = rows.index(row)
        assert [row_of(record) for record in several.records] == rows[start : start + len(several.records)]
    assert writer.log.read(writer.log.entry_durable, 100).records == []
    assert writer.log.read(writer.log.entry_durable + 7, 100) == ([], writer.log.entry_durable + 7, [])


def test_a_record_larger_than_the_chunks_it_is_read_in_comes_back_whole(disk: Disk) -> None:
    writer = LogWriter(open_log(disk, LogOptions(preallocate_bytes=1 << 20)), random.Random(1))
    sizes = [10, 3_000_000, 10, 200_000, 1_100_000, 10]
    for size in sizes:
        writer.append(size=size, count=1)
        writer.commit(disk)
    for bytes_max in (1, 5_000_000):
        assert read_all(writer.log, bytes_max=bytes_max) == (readable(writer.durable), [])
    writer.log.close()
    assert read_all(open_log(disk)) == (readable(writer.durable), [])


def test_files_are_named_by_their_first_entry_and_each_knows_the_one_before(disk: Disk) -> None:
    writer = write_rows(disk, 20)
    firsts = [int(path[-24:-4]) for path in log_files(disk)]
    assert firsts[0] == 0 and firsts == sorted(firsts) and len(firsts) > 3
    starts = {row.first_entry for row in writer.durable}
    assert set(firsts) <= starts
    for path in log_files(disk)[:-1]:
        assert disk.exists(path.replace(".log", ".index"))
        assert disk.open(path).size() >= SMALL.rotate_bytes, "room that was reserved and not used is given back"


def test_refusals_alone_never_begin_a_file(disk: Disk) -> None:
    writer = LogWriter(open_log(disk), random.Random(1))
    for _ in range(20):
        writer.append(size=700, count=0)
        writer.commit(disk)
    assert len(log_files(disk)) == 1
    writer.append(count=1)
    writer.commit(disk)
    writer.append(count=1)
    writer.commit(disk)
    assert len(log_files(disk)) == 2
    log = open_log(disk)
    assert marked(log) == admitted(writer.durable)
    assert read_all(log) == (readable(writer.durable), [])


def test_a_segment_is_found_however_old_it_is(disk: Disk) -> None:
    log = open_log(disk, LogOptions(rotate_bytes=20_000, preallocate_bytes=4_096))
    count = RECENT_MAX + 300
    for segment in range(count):
        log.append(
            block=BLOCKS[0], segment=segment, count=1, origin_crc=segment, stored_at_us=segment, body=b"b"
        )
        if segment % 50 == 49:
            commit(log, disk)
    commit(log, disk)
    assert len(log_files(disk)) > 3
    for segment in (0, 1, 299, 300, count - 1):
        assert log.find_segments([(BLOCKS[0], segment)])[BLOCKS[0], segment] == (segment, segment, 1)
    log.close()
    again = open_log(disk)
    for segment in range(0, count, 37):
        assert again.find_segments([(BLOCKS[0], segment)])[BLOCKS[0], segment] == (segment, segment, 1)
    assert again.find_segments([(BLOCKS[0], count)])[BLOCKS[0], count] is None
    assert again.find_segments([(BLOCKS[1], 0)])[BLOCKS[1], 0] is None
    again.drop_before(700)
    assert again.find_segments([(BLOCKS[0], 3)])[BLOCKS[0], 3] is None, "it was admitted, and its file is gone"
    assert again.marks.next(BLOCKS[0]) == count


@pytest.mark.parametrize("count", [0, 1])
def test_a_segment_is_found_from_when_it_is_staged_however_many_follow(count: int) -> None:
    """One that is not found would be answered as a repeat of something durable, before it is."""
    disk = MemoryDisk()
    log = open_log(disk, LogOptions())
    half = RECENT_MAX + 100

    def append(segments: range) -> None:
        for segment in segments:
            log.append(
                block=BLOCKS[0], segment=segment, count=count, origin_crc=segment, stored_at_us=1, body=b""
            )

    append(range(half))
    write = log.take()
    append(range(half, 2 * half))
    assert write is not None
    for segment in (0, 1, half - 1, half, 2 * half - 1):
        assert found(log, segment) == (segment, segment * count, count)
    write.run(disk)
    log.committed(write)
    commit(log, disk)
    known = log.marks.get(BLOCKS[0])
    assert known is not None and len(known.recent) == RECENT_MAX, "what is durable is looked up in the files"
    for segment in (0, 1, half - 1, half, 2 * half - 1):
        assert found(log, segment) == (segment, segment * count, count)


def test_looking_for_more_old_segments_does_not_read_the_file_again() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogOptions(preallocate_bytes=0))

    def append(segments: range) -> None:
        for segment in segments:
            log.append(
                block=BLOCKS[0], segment=segment, count=1, origin_crc=segment, stored_at_us=1, body=b"b" * 200
            )
        commit(log, disk)

    def bytes_read(segment: int) -> int:
        disk.operations.clear()
        assert log.find_segments([(BLOCKS[0], segment)])[BLOCKS[0], segment] == (segment, segment, 1)
        sizes = [(int(one[2]), int(one[3])) for one in disk.operations if one[0] == "read"]
        return sum(len(disk.contents(log_files(disk)[0])[offset : offset + size]) for offset, size in sizes)

    append(range(RECENT_MAX + 200))
    assert bytes_read(0) > 200_000
    assert bytes_read(1) == 0
    append(range(RECENT_MAX + 200, RECENT_MAX + 210))
    assert 0 < bytes_read(205) < 10_000, "only what came since"


def test_the_cache_of_old_segments_is_bounded() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogOptions(preallocate_bytes=0))
    blocks = [number.to_bytes(16, "big") for number in range(SCANNED_MAX + 20)]
    for block in blocks:
        log.append(block=block, segment=0, count=1, origin_crc=7, stored_at_us=1, body=b"")
    commit(log, disk)
    for entry, block in enumerate(blocks):
        known = log.marks.get(block)
        assert known is not None
        known.recent.clear()
        assert log.find_segments([(block, 0)]) == {(block, 0): (7, entry, 1)}
    assert len(log._finder._segments) <= SCANNED_MAX


def append_block(log: ShardLog, number: int, at_us: int = 1) -> bytes:
    """One segment of a separate block."""
    block = number.to_bytes(16, "big")
    log.append(block=block, segment=0, count=1, origin_crc=0, stored_at_us=at_us, body=b"b" * 100)
    return block


def test_a_log_that_stays_open_forgets_blocks_when_it_begins_a_file() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogOptions(rotate_bytes=1_000, preallocate_bytes=0))
    closed, silent, back = (append_block(log, number) for number in range(3))
    log.append_end(closed, 2)
    commit(log, disk)
    for number in range(10, 30):
        append_block(log, number, at_us=DAY_US)
        commit(log, disk)
    assert closed in log.marks, "it was closed less than a day before"
    for number in range(30, 50):
        append_block(log, number, at_us=DAY_US + 2)
        commit(log, disk)
    assert closed not in log.marks and silent in log.marks
    log.append(block=BLOCKS[0], segment=0, count=1, origin_crc=0, stored_at_us=DAY_US + 3, body=bytes(1_000))
    commit(log, disk)
    files = len(log_files(disk))
    log.append(block=back, segment=1, count=1, origin_crc=0, stored_at_us=31 * DAY_US, body=b"")
    commit(log, disk)
    assert len(log_files(disk)) == files + 1
    assert silent not in log.marks
    assert marked(log)[back] == {0, 1}, "what a file begins with is not forgotten on the way"
    assert marked(open_log(disk)) == marked(log)


def test_a_long_head_does_not_cause_one_file_per_commit() -> None:
    disk = MemoryDisk()
    options = LogOptions(rotate_bytes=4_000, preallocate_bytes=0)
    log = open_log(disk, options)
    for number in range(300):
        append_block(log, number)
    commit(log, disk)
    for number in range(300, 400):
        append_block(log, number)
        commit(log, disk)
        if number >= 380:
            log.close()
            log = open_log(disk, options)
    assert len(log.marks.encode()) > options.rotate_bytes
    assert 3 <= len(log_files(disk)) <= 8


def test_a_head_does_not_outgrow_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headpond.storage.log.shard_log.MARKS_BYTES_MAX", 2_000)
    disk = MemoryDisk()
    log = open_log(disk, LogOptions(rotate_bytes=4_000, preallocate_bytes=0))
    for number in range(200):
        append_block(log, number, at_us=number)
        commit(log, disk)
    assert log.report.blocks_forgotten > 100
    assert "were forgotten early" in log.report.lines()[0]
    assert marked(open_log(disk)) == marked(log)
    assert (199).to_bytes(16, "big") in log.marks and bytes(16) not in log.marks


def test_a_failed_write_restores_the_end_of_a_block_that_it_continued() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append(block=BLOCKS[0], segment=0, count=1, origin_crc=0, stored_at_us=1, body=b"")
    log.append_end(BLOCKS[0], 5)
    commit(log, disk)
    log.append(block=BLOCKS[0], segment=1, count=1, origin_crc=0, stored_at_us=6, body=b"")

    def ended_us() -> int | None:
        known = log.marks.get(BLOCKS[0])
        assert known is not None
        return known.ended_us

    assert ended_us() is None
    write = log.take()
    assert write is not None
    log.failed(write)
    assert ended_us() == 5 and log.marks.next(BLOCKS[0]) == 1


def test_a_segment_is_found_past_heads_that_cannot_be_read() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=30)
    writer.log.close()
    for path in log_files(disk)[1:-1]:
        disk.flip(path, 130)  # inside MARKS
    log = open_log(disk)
    for block in BLOCKS:
        known = log.marks.get(block)
        assert known is not None
        known.recent.clear()
    for row in writer.durable:
        key = (row.block, row.segment)
        assert log.find_segments([key]) == {key: (row.segment * 7, row.first_entry, row.count)}


def test_entries_are_found_by_time(disk: Disk) -> None:
    writer = write_rows(disk, 25)
    times = {}
    for row in readable(writer.durable):
        (record,) = writer.log.read(row.first_entry, 1).records
        times[record.header.stored_at_us] = row.first_entry
    for log in (writer.log, open_log(disk)):
        for stored_at, entry in times.items():
            assert log.find_time(stored_at) == entry
            assert log.find_time(stored_at - 9) == entry, "the first one at or after"
        assert log.find_time(0) == 0
        assert log.find_time(max(times) + 1) == log.entry_durable


def test_a_clock_that_is_set_back_does_not_make_stored_times_fall(disk: Disk) -> None:
    log = open_log(disk)
    for segment, at in enumerate((100, 50, 120)):
        log.append(block=BLOCKS[0], segment=segment, count=1, origin_crc=0, stored_at_us=at, body=b"")
        commit(log, disk)
    assert [record.header.stored_at_us for record in log.read(0, 1_000).records] == [100, 100, 120]
    assert log.find_time(101) == 2
    again = open_log(disk)
    again.append(block=BLOCKS[0], segment=3, count=1, origin_crc=0, stored_at_us=7, body=b"")
    assert commit(again, disk)[0].header.stored_at_us == 120


def test_a_prefix_is_dropped_in_whole_files_and_stays_dropped(disk: Disk) -> None:
    writer = write_rows(disk, 20)
    log = writer.log
    firsts = [int(path[-24:-4]) for path in log_files(disk)]
    size = log.bytes
    assert log.drop_before(firsts[2] - 1) == firsts[1], "the file that holds the entry is kept whole"
    assert log.drop_before(firsts[1]) == firsts[1], "nothing more to drop"
    assert log.read(0, 1).lost == [(0, firsts[1])]
    assert len(log_files(disk)) == len(firsts), "recorded first, removed after"
    commit(log, disk)
    assert [int(path[-24:-4]) for path in log_files(disk)] == firsts[1:]
    assert log.bytes < size
    for one in (log, open_log(disk)):
        assert one.entry_first == firsts[1]
        assert read_all(one) == (readable(writer.durable, firsts[1]), [])
    writer.append(count=1)
    assert log.drop_before(10**9) == firsts[-1], "the last file stays: something is on its way to it"
    writer.commit(disk)
    assert open_log(disk).entry_first == firsts[-1]
    assert log.drop_before(10**9) == log.entry_next, "with nothing on its way the last file goes too"
    commit(log, disk)
    assert log_files(disk) == [f"{FOLDER}/{log.entry_next:020d}.log"]
    for one in (log, open_log(disk)):
        assert one.entry_first == one.entry_next == one.entry_durable == writer.durable[-1].first_entry + 1
        assert read_all(one, 0) == ([], [(0, one.entry_first)])
        assert marked(one) == admitted(writer.durable), "what was admitted is known without its entries"


def test_a_late_reader_of_a_dropped_file_learns_that_it_was_dropped_not_damaged() -> None:
    disk = MemoryDisk()
    log = filled(disk, rounds=20).log
    view = log._view  # as a read that began before the drop has it
    kept = log.drop_before(log.entry_durable // 2)
    commit(log, disk)
    run = log._reader.read(view, 0, 1)
    assert run.lost and run.lost[0][0] == 0 and run.lost[-1][1] <= kept
    assert list(log.damaged) == []


def test_a_drop_that_a_crash_cut_short_is_finished_when_the_log_is_opened() -> None:
    whole = MemoryDisk()
    writer = filled(whole, rounds=20)
    writer.log.close()
    for changes in range(12):
        disk = whole.copy()
        log = open_log(disk)
        kept = log.drop_before(log.entry_durable)
        disk.cut_power_after(changes)
        try:
            commit(log, disk)
        except OSError as error:
            assert "power" in str(error)
        disk.crash(keep="some")
        again = open_log(disk)
        assert again.report.lines() == []
        assert again.entry_first in (0, kept)
        assert read_all(again) == (readable(writer.durable, again.entry_first), [])
        firsts = [int(path[-24:-4]) for path in log_files(disk)]
        assert firsts[0] == again.entry_first


def test_the_end_of_a_block_is_remembered_and_forgotten_a_day_later(disk: Disk) -> None:
    writer = write_rows(disk, 3)
    writer.log.append_end(BLOCKS[0], 500)
    commit(writer.log, disk)
    known = open_log(disk).marks.get(BLOCKS[0])
    assert known is not None and known.ended_us == 500
    writer.log.close()
    day_us = 24 * 60 * 60 * 1_000_000
    later = type(writer.log).open(
        disk, FOLDER, title=writer.log.place.title, shard=3, shard_power=2, now_us=500 + day_us, options=SMALL
    )
    assert later.marks.get(BLOCKS[0]) is None
    assert later.marks.get(BLOCKS[1]) is not None


def test_opening_reads_the_last_file_and_only_the_heads_of_the_others() -> None:
    disk = MemoryDisk()
    options = LogOptions(rotate_bytes=100_000, preallocate_bytes=10_000)
    writer = LogWriter(open_log(disk, options), random.Random(1))
    while len(log_files(disk)) < 12:
        writer.append(size=5_000, count=1)
        writer.commit(disk)
    writer.log.close()
    disk.operations.clear()
    log = open_log(disk, options)
    assert log.report.files_read == 1
    assert log.entry_next == len(writer.durable)
    read: dict[str, int] = {}
    for operation in disk.operations:
        if operation[0] == "read":
            size = disk.contents(str(operation[1]))[int(operation[2]) :][: int(operation[3])]
            read[str(operation[1])] = read.get(str(operation[1]), 0) + len(size)
    assert all(read[path] <= 5_000 for path in log_files(disk)[:-1])
    assert not any(path.endswith(".index") for path in read)


def test_a_position_ahead_of_the_log_begins_a_new_incarnation(disk: Disk) -> None:
    writer = write_rows(disk, 3)
    end, before = writer.log.entry_next, writer.log.incarnation
    writer.log.lose_upto(end + 10)
    assert read_all(writer.log) == (readable(writer.durable), [(end, end + 10)])
    row = writer.append(count=1)
    assert row.first_entry == end + 10
    writer.commit(disk)
    again = open_log(disk)
    assert again.incarnation != before and list(again.damaged) == [(end, end + 10)]
    assert again.holds(before, end) and not again.holds(before, end + 1)
    assert again.holds(again.incarnation, end + 11) and not again.holds(again.incarnation, end + 12)
    assert read_all(again) == (readable(writer.durable), [(end, end + 10)])


def test_threads_read_while_others_append(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    writer = LogWriter(open_log(disk), random.Random(1))
    writer.append(count=1)
    writer.commit(disk)
    faults: list[BaseException] = []
    done = threading.Event()

    def reader() -> None:
        try:
            last = False
            while not last:
                last = done.is_set()
                rows, lost = read_all(writer.log, 0)
                assert lost == []
                assert rows == readable(writer.durable)[: len(rows)]
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        for _ in range(4):
            writer.append()
        staged, writer.staged = writer.staged, []
        write = writer.log.take()
        assert write is not None
        worker = threading.Thread(target=write.run, args=(disk,))
        worker.start()
        worker.join()
        writer.durable += staged
        writer.log.committed(write)
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
