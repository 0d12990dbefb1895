"""A full or failing disk: the caller gets the error, and the file is cut to its last good length."""

from __future__ import annotations

import errno

import pytest

from headpond.model.errors import DiskFull, HeadpondError, StorageFailed
from headpond.producer.refill.refill import Refill
from headpond.storage.memory_disk import MemoryDisk
from tests.producer.refills import (
    PATH,
    TYPED,
    A,
    B,
    key,
    keys,
    new_refill,
    pending_keys,
    save,
    segment_frame,
    served,
    snapshot_frame,
    true_frame,
    write,
)


def check(disk: MemoryDisk, *segments: int) -> Refill:
    """Asserts that a reader finds exactly these segments, undamaged."""
    refill = Refill.open(disk, PATH)
    assert served(refill) == {each: true_frame(each) for each in keys(*segments)}
    assert refill.damage == []
    return refill


@pytest.mark.parametrize(("error", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, StorageFailed)])
@pytest.mark.parametrize("seed", range(5))
def test_a_write_that_fails_is_cut_off_and_can_be_made_again(
    error: int, kind: type[HeadpondError], seed: int
) -> None:
    disk = MemoryDisk(seed)
    refill = new_refill(disk)
    write(refill, 0)
    size = refill.size_bytes
    disk.fail_next("write", error)
    with pytest.raises(kind) as raised:
        write(refill, 1)
    assert raised.value.retryable
    assert refill.size_bytes == size == len(disk.contents(PATH))
    assert pending_keys(refill, A) == keys(0)
    write(refill, 1, 2)
    save(refill)
    check(disk, 0, 1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_failed_write_that_cannot_be_cut_off_is_cut_before_the_next(seed: int) -> None:
    disk = MemoryDisk(seed)
    refill = new_refill(disk)
    write(refill, 0)
    disk.fail_next("write", errno.EIO)
    disk.fail_next("truncate", errno.EIO, count=2)
    with pytest.raises(StorageFailed):
        write(refill, 1)
    check(disk, 0)
    with pytest.raises(StorageFailed):
        write(refill, 2)
    check(disk, 0)
    write(refill, 2)
    save(refill)
    check(disk, 0, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_full_disk_serves_its_segments(seed: int) -> None:
    disk = MemoryDisk(seed, capacity_bytes=700)
    refill = new_refill(disk)
    written = 0
    with pytest.raises(DiskFull):
        for written in range(100):
            write(refill, written)
    assert written > 2
    assert served(refill) == {each: true_frame(each) for each in keys(*range(written))}
    disk.capacity_bytes = None
    write(refill, written)
    save(refill)
    check(disk, *range(written + 1))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails_takes_back_all_since_the_last(error: int) -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0, 1)
    refill.ack(key(0), A)
    save(refill)
    size = refill.size_bytes
    write(refill, 2, 3)
    refill.ack(key(1), A)
    refill.reject(key(3), B, "bad-segment")
    refill.write_statuses()
    disk.fail_next("sync", error)
    with pytest.raises(HeadpondError) as raised:
        refill.sync()
    assert raised.value.retryable
    assert refill.size_bytes == size and pending_keys(refill, B) == keys(0, 1)
    check(disk, 0, 1)
    write(refill, 2, 3)  # the caller still has them
    save(refill)
    disk.crash(keep="none")
    again = check(disk, 0, 1, 2, 3)
    assert (pending_keys(again, A), pending_keys(again, B)) == (keys(2, 3), keys(0, 1, 2)), (
        "statuses are written again"
    )


def test_a_snapshot_that_was_not_synced_is_asked_for_again() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(4))
    write(refill, 4)
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageFailed):
        refill.sync()
    with pytest.raises(HeadpondError) as raised:
        write(refill, 4)
    assert raised.value.code == "unknown-shard"


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_file_that_cannot_be_made_leaves_nothing_and_is_made_later(operation: str) -> None:
    disk = MemoryDisk(3)
    refill = new_refill(disk)
    disk.fail_next(operation, errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(DiskFull):
        write(refill, 0)
    assert disk.paths() == [] and refill.size_bytes == 0 and refill.done()
    write(refill, 0)
    save(refill)
    check(disk, 0)


def test_a_mark_that_cannot_be_written_costs_nothing() -> None:
    disk = MemoryDisk(1)
    refill = new_refill(disk)
    write(refill, 0)
    refill.write_statuses()
    disk.fail_next("write", errno.ENOSPC)
    refill.sync()  # its segments are durable
    check(disk, 0)
    write(refill, 1)
    save(refill)
    check(disk, 0, 1)
    disk.crash(keep="none")
    check(disk, 0, 1)


@pytest.mark.parametrize("after", [0, 1])
def test_closing_on_a_disk_that_fails_raises_and_never_half_closes(after: int) -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0)
    refill.sync()
    refill.ack(key(0), A)
    disk.fail_next("sync", errno.EIO, after=after)
    with pytest.raises(StorageFailed):
        refill.close({0: 1})
    again = check(disk, 0)
    assert again.closed is None and not again.continuable


def test_resuming_on_a_disk_that_fails_raises() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0)
    refill.close({0: 1})
    again = Refill.open(disk, PATH, [A, B])
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageFailed):
        again.resume()
    with pytest.raises(HeadpondError):
        again.write_segment(key(1), segment_frame(1))


def test_bytes_that_may_not_be_on_the_disk_are_written_again_before_others_follow() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0, 1)
    refill.write_statuses()
    disk.fail_next("sync", errno.EIO)
    file = disk.open(PATH, writable=True)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()  # the system shows these bytes from now on, and they are on no disk
    again = Refill.open(disk, PATH)
    again.ack(key(0), A)
    again.close(None)
    disk.crash(keep="none")
    assert pending_keys(check(disk, 0, 1), A) == keys(1)


def test_with_durability_os_nothing_is_synced_but_the_head_and_the_end() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk, durability="os")
    write(refill, 0)
    save(refill)
    assert [each[0] for each in disk.operations].count("sync") == 1
    assert refill.durability == "os"
    refill.close({0: 1})
    disk.crash(keep="none")
    assert check(disk, 0).closed == {0: 1}


def test_a_sync_without_news_does_nothing() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0)
    save(refill)
    done = len(disk.operations)
    save(refill)
    assert len(disk.operations) == done
