"""The numbers of a block over several runs: none is used twice, after any fault of process and disk."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from headpond.model.errors import BadData, StorageFailed
from headpond.producer.encoder import PlainEncoder
from headpond.producer.numbers import RESERVE, Numbers
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.plain.columns import rows_to_batch

BLOCK, OTHER = b"b" * 16, b"o" * 16


def numbers(disk: MemoryDisk, block: bytes | None = BLOCK) -> Numbers:
    return Numbers(disk, "slot", "numbers", block, b"n" * 16)


def rows() -> pa.RecordBatch:
    return rows_to_batch([b"x"], None, None, None, [1])


class Used:
    """A shard's encoder that reserves each number before it uses it, as a manager does."""

    def __init__(self, kept: Numbers) -> None:
        self._kept = kept
        self._encoder = PlainEncoder(0, kept.first().get(0, 0))

    @property
    def last_segment(self) -> int:
        return self._encoder.last_segment

    def encode(self, rows: pa.RecordBatch) -> None:
        self._kept.reserve(0, self._encoder.last_segment + 1)
        self._encoder.encode(rows)


def encoder(kept: Numbers) -> Used:
    return Used(kept)


def test_the_first_run_begins_at_zero_and_reserves_before_it_uses() -> None:
    disk = MemoryDisk()
    kept = numbers(disk)
    assert kept.first() == {}
    encoder(kept).encode(rows())
    disk.crash(keep="none")
    assert numbers(disk).first() == {0: RESERVE}


def test_after_a_kill_the_next_run_begins_behind_the_reserve() -> None:
    disk = MemoryDisk()
    first = encoder(numbers(disk))
    for _ in range(3):
        first.encode(rows())
    disk.crash(keep="none")
    second = encoder(numbers(disk))
    second.encode(rows())
    assert second.last_segment == RESERVE


def test_a_reserve_that_is_used_up_is_reserved_again() -> None:
    disk = MemoryDisk()
    kept = numbers(disk)
    kept.reserve(0, 0)
    syncs = len(disk.operations)
    kept.reserve(0, RESERVE - 1)
    assert len(disk.operations) == syncs, "nothing is written while the reserve lasts"
    kept.reserve(0, RESERVE)
    disk.crash(keep="none")
    assert numbers(disk).first() == {0: 2 * RESERVE}


def test_a_clean_end_gives_back_unused_numbers() -> None:
    disk = MemoryDisk()
    kept = numbers(disk)
    used = encoder(kept)
    used.encode(rows())
    kept.give_back({0: used.last_segment + 1})
    disk.crash(keep="none")
    assert numbers(disk).first() == {0: 1}


def test_blocks_have_numbers_of_their_own_and_the_first_is_taken_by_default() -> None:
    disk = MemoryDisk()
    numbers(disk).reserve(0, 0)
    numbers(disk, OTHER).reserve(3, 10)
    assert numbers(disk).first() == {0: RESERVE}
    assert numbers(disk, OTHER).first() == {3: 10 + RESERVE}
    assert numbers(disk, None).block == BLOCK
    assert numbers(MemoryDisk(), None).block == b"n" * 16


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_folder", "create"])
def test_a_number_that_cannot_be_reserved_is_not_used(operation: str) -> None:
    disk = MemoryDisk()
    kept = numbers(disk)
    guarded = encoder(kept)
    disk.fail_next(operation, errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(StorageFailed, match="cannot be reserved"):
        guarded.encode(rows())
    assert guarded.last_segment == -1
    guarded.encode(rows())
    disk.crash(keep="none")
    assert numbers(disk).first() == {0: RESERVE}, "the second try reserved, though the first had failed"


def test_a_file_that_cannot_be_read_raises_and_is_not_guessed() -> None:
    disk = MemoryDisk()
    numbers(disk).reserve(0, 0)
    disk.flip("slot/numbers", 20)
    with pytest.raises(BadData, match="reserved numbers"):
        numbers(disk)


@pytest.mark.parametrize("keep", ["none", "some", "all"])
@pytest.mark.parametrize("changes", range(8))
def test_a_power_cut_at_any_write_never_brings_a_number_back(changes: int, keep: str) -> None:
    disk = MemoryDisk(changes)
    kept = numbers(disk)
    kept.reserve(0, 0)
    disk.cut_power_after(changes)
    used = RESERVE - 1
    try:
        kept.reserve(0, RESERVE)
        used = RESERVE
    except StorageFailed:
        pass
    disk.crash(keep=keep)  # type: ignore[arg-type]
    assert numbers(disk).first()[0] > used
