"""A bad sector costs its own bytes, and is never taken for a clean end."""

from __future__ import annotations

import errno
import random

import pytest

from headpond.storage.disk import SALVAGE_BYTES, open_salvaged
from headpond.storage.memory_disk import MemoryDisk

DATA = random.Random(1).randbytes(5 * SALVAGE_BYTES + 123)


def disk_with_file() -> MemoryDisk:
    disk = MemoryDisk()
    disk.create("file").write_at(0, [DATA])
    return disk


def test_a_file_without_bad_sectors_reads_as_it_is() -> None:
    file = open_salvaged(disk_with_file(), "file")
    assert file.read_at(0, len(DATA) + 10) == DATA
    assert file.read_at(7, 100) == DATA[7:107]
    assert not file.unreadable


def test_bytes_around_a_bad_sector_are_read_and_the_sector_is_known() -> None:
    disk = disk_with_file()
    disk.spoil("file", 2 * SALVAGE_BYTES + 9, 1)
    file = open_salvaged(disk, "file")
    start, end = 2 * SALVAGE_BYTES, 3 * SALVAGE_BYTES
    assert file.read_at(0, start) == DATA[:start] and not file.unreadable
    expected = DATA[:start] + b"\xff" * SALVAGE_BYTES + DATA[end:]
    assert file.read_at(0, len(DATA) + 10) == expected
    assert list(file.unreadable) == [(start, end)]
    assert file.read_at(start - 5, 20) == expected[start - 5 : start + 15]
    assert file.read_at(end - 5, 20) == expected[end - 5 : end + 15]
    assert file.read_at(len(DATA), 5) == b""


def test_a_failed_sector_is_not_read_again() -> None:
    disk = disk_with_file()
    disk.spoil("file", 0, SALVAGE_BYTES)
    file = open_salvaged(disk, "file")
    file.read_at(0, 100)
    file.read_at(0, SALVAGE_BYTES)
    disk.operations.clear()
    file.read_at(0, SALVAGE_BYTES)
    assert disk.operations == []


def test_an_error_that_passes_leaves_no_trace() -> None:
    disk = disk_with_file()
    disk.fail_next("read", errno.EIO)
    file = open_salvaged(disk, "file")
    assert file.read_at(0, len(DATA)) == DATA and not file.unreadable


@pytest.mark.parametrize("after", [0, 1])
def test_any_other_error_is_the_callers(after: int) -> None:
    disk = disk_with_file()
    disk.spoil("file", 0, 1)
    disk.fail_next("read", errno.ESTALE, after=after)
    with pytest.raises(OSError, match="Stale"):
        open_salvaged(disk, "file").read_at(0, len(DATA))
