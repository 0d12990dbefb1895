"""The jobs of the disk's thread on a block's file."""

from __future__ import annotations

import errno

import pytest

from headpond.model.errors import HeadpondError, RefillFull
from headpond.model.identity import SegmentKey
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.refill import Refill
from headpond.producer.spills import Budget, Finish, Job, Note, Read, Spill, Store
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.title import Title
from tests.producer.refills import (
    BLOCK,
    PATH,
    PLAIN,
    TYPED,
    A,
    B,
    key,
    pending_keys,
    segment_frame,
    snapshot_frame,
)

NOTE = PATH + NOTE_SUFFIX


def store(disk: MemoryDisk, *, title: Title = PLAIN, bytes_max: int = 10**9) -> Store:
    def create() -> Refill:
        return Refill.create(disk, PATH, block=BLOCK, shard_power=1, title=title, destinations=(A, B))

    return Store(create, Budget(bytes_max))


def spill(
    place: Store, *keys: SegmentKey, acked: tuple[SegmentKey, ...] = (), snapshots: tuple[int, ...] = ()
) -> Spill:
    """Segments that A rejected, and those of them that B has."""
    segments: list[tuple[SegmentKey, bytes, bytes | None]] = []
    for each in keys:
        snapshot = snapshot_frame(each.segment, each.shard) if each.segment in snapshots else None
        segments.append((each, segment_frame(each.segment, each.shard), snapshot))
    return Spill(ignore, place, segments, [(each, A) for each in keys], [(each, B) for each in acked])


def ignore(job: Job, now: float) -> None:
    """The end of a job."""


def opened(disk: MemoryDisk) -> Refill:
    return Refill.open(disk, PATH)


def test_a_spill_is_durable_when_it_ends_and_says_who_has_what() -> None:
    disk = MemoryDisk()
    place = store(disk)
    job = spill(place, key(0), key(1), acked=(key(0),))
    job.run()
    assert job.written == [key(0), key(1)] and place.budget.used == len(disk.contents(PATH))
    disk.crash(keep="none")
    refill = opened(disk)
    assert pending_keys(refill, A) == [key(0), key(1)] and pending_keys(refill, B) == [key(1)]


def test_a_segment_that_cannot_be_written_takes_those_behind_it_on_its_shard_with_it() -> None:
    """In a typed topic they could not be read without it."""
    disk = MemoryDisk()
    place = store(disk, title=TYPED)
    job = spill(place, key(0), key(2), key(3), key(0, shard=1), snapshots=(0,))
    job.run()
    assert job.written == [key(0), key(0, shard=1)]
    assert job.error is not None and job.error.code == "unknown-shard"


def test_a_failed_write_in_a_plain_topic_leaves_the_rest_of_the_shard_for_later() -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0)).run()
    disk.fail_next("write", errno.ENOSPC)
    job = spill(place, key(1), key(2), key(0, shard=1))
    job.run()
    assert job.written == [key(0, shard=1)] and job.error is not None and job.error.code == "disk-full"
    again = spill(place, key(1), key(2))
    again.run()
    assert again.written == [key(1), key(2)] and again.error is None


def test_a_sync_that_fails_has_written_nothing() -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0)).run()
    disk.fail_next("sync", errno.EIO)
    job = spill(place, key(1))
    with pytest.raises(HeadpondError):
        job.run()
    assert job.written == []
    assert place.refill is not None and pending_keys(place.refill, A) == [key(0)]


def test_a_budget_that_is_used_up_makes_no_file() -> None:
    disk = MemoryDisk()
    place = store(disk, bytes_max=10)
    with pytest.raises(RefillFull):
        spill(place, key(0)).run()
    assert disk.paths() == [] and place.budget.used == 0


def test_reading_stops_before_a_segment_that_has_a_snapshot() -> None:
    disk = MemoryDisk()
    place = store(disk, title=TYPED)
    spill(place, *(key(n) for n in range(6)), snapshots=(0, 3)).run()
    job = Read(ignore, place, key(1), 10**6, restore=True)
    job.run()
    assert job.snapshot == snapshot_frame(0)
    assert job.frames == [segment_frame(n) for n in (0, 1, 2)] and job.stopped_at == 3
    rest = Read(ignore, place, key(3), 10**6, restore=True)
    rest.run()
    assert rest.snapshot == snapshot_frame(3)
    assert rest.frames == [segment_frame(n) for n in (3, 4, 5)] and rest.stopped_at is None


def test_the_next_run_reads_the_notes() -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0), key(1)).run()
    Note(ignore, place, [(key(0), A), (key(0), B)], [(key(1), B, "conflict", "for the test")]).run()
    Finish(ignore, place, [], [], None).run()
    refill = opened(disk)
    assert pending_keys(refill, A) == [key(1)] and pending_keys(refill, B) == []


@pytest.mark.parametrize("refused", [False, True])
def test_a_file_goes_when_all_have_it_and_stays_if_one_refused_part_of_it(refused: bool) -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0)).run()
    refusals = [(key(0), B, "conflict", "for the test")] if refused else []
    job = Finish(ignore, place, [(key(0), A), *([] if refused else [(key(0), B)])], refusals, None)
    job.run()
    assert (job.left_path, disk.paths()) == ((PATH, [PATH, NOTE]) if refused else (None, []))
    assert place.budget.used == (len(disk.contents(PATH)) if refused else 0)


def test_a_file_that_cannot_be_removed_is_left_and_let_go_of() -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0)).run()
    disk.fail_next("remove", errno.EIO, count=2)
    job = Finish(ignore, place, [(key(0), A), (key(0), B)], [], None)
    with pytest.raises(HeadpondError):
        job.run()
    assert job.left_path == PATH and place.refill is None


def test_an_end_in_good_order_records_the_next_segments_of_the_block() -> None:
    disk = MemoryDisk()
    place = store(disk)
    spill(place, key(0), key(0, shard=1)).run()
    Finish(ignore, place, [], [], {0: 5, 1: 1}).run()
    assert opened(disk).closed == {0: 5, 1: 1}
