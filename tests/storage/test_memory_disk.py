"""The disk in memory keeps the contract of all disks, and loses exactly what a real one may lose."""

from __future__ import annotations

import errno

import pytest

from headpond.storage.memory_disk import MemoryDisk
from tests.storage.disks import DiskContract


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


class TestMemoryDisk(DiskContract):
    pass


def synced(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.write_at(0, [data])
    file.sync()
    disk.sync_folder(path.rpartition("/")[0])


def test_a_power_cut_keeps_the_synced_bytes_and_no_others(disk: MemoryDisk) -> None:
    synced(disk, "f/file", b"durable")
    file = disk.open("f/file", writable=True)
    file.write_at(0, [b"NEW"])
    file.write_at(7, [b" and more"])
    disk.crash()
    assert disk.open("f/file").read_at(0, 100) == b"durable"


def test_a_power_cut_may_keep_everything(disk: MemoryDisk) -> None:
    disk.create("f/file").write_at(0, [b"only seen"])
    disk.crash(keep="all")
    assert disk.open("f/file").read_at(0, 100) == b"only seen"


def test_a_file_without_a_durable_name_is_lost_however_well_it_was_synced(disk: MemoryDisk) -> None:
    file = disk.create("f/file")
    file.write_at(0, [b"x"])
    file.sync()
    disk.crash()
    assert not disk.exists("f/file")


def test_renames_and_removals_are_lost_without_the_folders_sync(disk: MemoryDisk) -> None:
    synced(disk, "f/a", b"a")
    synced(disk, "f/b", b"b")
    disk.rename("f/a", "f/b")
    disk.crash()
    assert disk.list("f") == ["a", "b"] and disk.open("f/b").read_at(0, 1) == b"b"
    disk.remove("f/a")
    disk.sync_folder("f")
    disk.crash()
    assert disk.list("f") == ["b"]


def test_a_folders_sync_makes_what_is_in_it_durable_and_not_what_is_above_or_beside_it(
    disk: MemoryDisk,
) -> None:
    for path in ("top", "f/one", "f/g/two", "h/three"):
        disk.create(path).sync()
    disk.sync_folder("f/g")
    disk.crash()
    assert disk.paths() == ["f/g/two"]


def test_a_torn_write_is_kept_sector_by_sector_and_differs_by_seed() -> None:
    outcomes = set()
    for seed in range(12):
        disk = MemoryDisk(seed)
        synced(disk, "file", b"")
        disk.open("file", writable=True).write_at(100, [b"x" * 2_000])
        disk.crash(keep="some")
        seen = disk.open("file").read_at(0, 3_000).ljust(2_100, b"\0")
        for start, end in ((100, 512), (512, 1_024), (1_024, 1_536), (1_536, 2_048), (2_048, 2_100)):
            assert seen[start:end] in (b"x" * (end - start), bytes(end - start)), (
                "a sector is whole or not there"
            )
        outcomes.add(seen)
    assert len(outcomes) > 5


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> bytes:
        disk = MemoryDisk(seed)
        synced(disk, "file", b"")
        disk.open("file", writable=True).write_at(0, [b"y" * 5_000])
        disk.crash(keep="some")
        return disk.contents("file")

    assert run(7) == run(7) and any(run(7) != run(seed) for seed in range(8, 12))


def test_a_failed_sync_loses_its_bytes_and_the_next_one_succeeds_without_them(disk: MemoryDisk) -> None:
    synced(disk, "file", b"old")
    file = disk.open("file", writable=True)
    file.write_at(0, [b"LOST"])
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert file.read_at(0, 10) == b"LOST", "they are still seen"
    file.write_at(4, [b"!"])
    file.sync()
    disk.crash(keep="all")
    assert disk.open("file").read_at(0, 10) == b"old\0!"


def test_a_failed_write_leaves_a_part_of_its_bytes(disk: MemoryDisk) -> None:
    file = disk.create("file")
    sizes = set()
    for _ in range(20):
        disk.fail_next("write", errno.ENOSPC)
        with pytest.raises(OSError, match="space"):
            file.write_at(0, [b"0123456789"])
        assert b"0123456789".startswith(file.read_at(0, 10))
        sizes.add(file.size())
        file.truncate(0)
    assert len(sizes) > 3


def test_faults_come_as_often_as_requested_and_only_below_their_path(disk: MemoryDisk) -> None:
    disk.fail_next("create", errno.EACCES, count=2, path_prefix="f/", after=1)
    disk.create("g/1")
    disk.create("f/1")
    for _ in range(2):
        with pytest.raises(PermissionError):
            disk.create("f/2")
    disk.create("f/2")


def test_a_full_disk_takes_what_fits_and_says_so(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 10
    file = disk.create("file")
    file.write_at(0, [b"123456"])
    assert disk.free_bytes() == 4
    with pytest.raises(OSError, match="space"):
        file.write_at(6, [b"789abc"])
    assert file.read_at(0, 20) == b"123456789a"
    with pytest.raises(OSError, match="space"):
        file.preallocate(11)
    file.write_at(0, [b"over"])  # what is there already can be written again
    disk.remove("file")
    assert disk.free_bytes() == 10


def test_after_the_power_went_nothing_works_until_it_is_back(disk: MemoryDisk) -> None:
    synced(disk, "file", b"abc")
    file = disk.open("file", writable=True)
    disk.cut_power_after(1)
    file.write_at(0, [b"x"])
    for action in (
        lambda: file.write_at(0, [b"y"]),
        lambda: file.sync(),
        lambda: file.read_at(0, 1),
        lambda: disk.open("file"),
        lambda: disk.list(""),
    ):
        with pytest.raises(OSError, match="power"):
            action()
    disk.crash()
    with pytest.raises(OSError, match="power was cut"):
        file.read_at(0, 1)
    assert disk.open("file").read_at(0, 3) == b"abc"


def test_rot_flips_one_bit_durably(disk: MemoryDisk) -> None:
    synced(disk, "file", b"abc")
    disk.flip("file", 1, bit=2)
    assert disk.contents("file") == b"afc"
    disk.crash()
    assert disk.contents("file") == b"afc"


def test_the_order_of_operations_can_be_asked_for(disk: MemoryDisk) -> None:
    synced(disk, "f/a", b"abc")
    disk.open("f/a").read_at(1, 2)
    assert disk.operations == [
        ("create", "f/a"),
        ("write", "f/a", 0, 3),
        ("sync", "f/a"),
        ("sync_folder", "f"),
        ("open", "f/a"),
        ("read", "f/a", 1, 2),
    ]


def test_a_copy_has_the_same_files_and_its_own_fate(disk: MemoryDisk) -> None:
    disk.create("file").write_at(0, [b"abc"])
    twin = disk.copy()
    twin.crash()
    assert twin.contents("file") == b"abc"
    twin.flip("file", 0)
    assert disk.contents("file") == b"abc"


def test_a_spoilt_place_fails_every_read_that_touches_it_until_it_is_written(disk: MemoryDisk) -> None:
    synced(disk, "f/file", b"0123456789")
    disk.spoil("f/file", 4, 2)
    disk.crash()
    file = disk.open("f/file", writable=True)
    assert file.read_at(0, 4) == b"0123" and file.read_at(6, 4) == b"6789" and file.read_at(4, 0) == b""
    for offset in (0, 3, 4, 5):
        with pytest.raises(OSError, match="Input/output"):
            file.read_at(offset, 5)
    file.write_at(4, [b"xy"])
    assert file.read_at(0, 10) == b"0123xy6789"
