"""Rows in the refill that have no shard yet get shard, block and number, exactly once."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from headpond.model.errors import HeadpondError, TopicMismatch
from headpond.model.identity import SegmentKey
from headpond.producer.assign import assign_shards, assigned_block, remove_obsolete
from headpond.producer.encoder import PlainEncoder, Sharder
from headpond.producer.exchange import Parts
from headpond.producer.refill.folder import FileName, files
from headpond.producer.refill.refill import Refill
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import decode_plain
from headpond.wire.title import Predecessor, Title
from tests.producer.refills import pending_keys

A, B = "headpond://a:7411", "headpond://b:7411"
BLOCK = b"b" * 16
PATH = f"slot/{FileName(1_794_718_800_000_000, BLOCK)}"
TITLE = Title("default/default/default/t", bytes(16), "p", predecessor=Predecessor(b"x" * 16, {0: 3}))
NOBODY: frozenset[SegmentKey] = frozenset()


def spilled(
    disk: MemoryDisk, segments: int = 5, destinations: tuple[str, ...] = (A,), power: int | None = None
) -> Refill:
    """A file of rows without a shard: rows with keys, ten per segment, numbered on."""
    refill = Refill.create(disk, PATH, block=BLOCK, shard_power=power, title=TITLE, destinations=destinations)
    encoder = PlainEncoder(0)
    for segment in range(segments):
        numbers = range(segment * 10, segment * 10 + 10)
        keys: list[bytes | None] = [b"key %d" % (number % 7) for number in numbers]
        frame, _ = encoder.encode(rows_to_batch([b"%d" % n for n in numbers], keys, None, None, [1] * 10))
        refill.write_segment(SegmentKey(0, segment), frame)
    refill.sync()
    return refill


def assign(
    disk: MemoryDisk, power: int, awaited: frozenset[SegmentKey] = NOBODY, path: str = PATH
) -> tuple[str, Parts, Refill]:
    old = Refill.open(disk, path)
    try:
        return *assign_shards(disk, old, power, awaited), old
    finally:
        old.release()


def rows_of(disk: MemoryDisk, path: str) -> dict[SegmentKey, list[tuple[bytes, bytes]]]:
    """By segment: keys and values in their order."""
    refill = Refill.open(disk, path)
    found = {}
    for key in pending_keys(refill, A):
        rows = decode_plain(refill.get(key)[HEADER_BYTES : -TRAILER.size])
        found[key] = list(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))
    refill.release()
    return found


def count(disk: MemoryDisk, path: str) -> int:
    return sum(map(len, rows_of(disk, path).values()))


@pytest.mark.parametrize("cut_for", [None, 0])
def test_every_key_ends_on_its_shard_and_in_its_order(cut_for: int | None) -> None:
    disk = MemoryDisk()
    spilled(disk, power=cut_for).close(None)
    path, _, old = assign(disk, 2)
    assert old.damage == [] and files(disk, "slot") == [path]
    by_key: dict[bytes, list[int]] = {}
    for segment, rows in rows_of(disk, path).items():
        for key, value in rows:
            assert Sharder(2).of_key(key) == segment.shard
            by_key.setdefault(key, []).append(int(value))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(50))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_the_new_file_waits_for_no_other_block_and_says_who_sent_it() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    path, _, _ = assign(disk, 1)
    refill = Refill.open(disk, path)
    assert (refill.title.predecessor, refill.title.producer, refill.shard_power) == (None, "p", 1)
    assert refill.block == assigned_block(BLOCK, 1) != BLOCK


def test_rows_that_somebody_awaits_are_found_in_their_new_segments() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    path, parts, _ = assign(disk, 2, frozenset({SegmentKey(0, 3)}))
    assert list(parts) == [SegmentKey(0, 3)]
    values: dict[int, int] = {}
    for key, rows, places in parts[SegmentKey(0, 3)]:
        found = rows_of(disk, path)[key]
        assert len(found) == rows
        values.update(zip(places.to_pylist(), (int(value) for _, value in found), strict=True))
    assert values == {place: 30 + place for place in range(10)}


@pytest.mark.parametrize("changes", range(0, 40, 3))
def test_a_power_cut_at_any_write_loses_and_repeats_nothing(changes: int) -> None:
    disk = MemoryDisk(changes)
    spilled(disk).close(None)
    disk.cut_power_after(changes)
    with suppress(HeadpondError, OSError):
        assign(disk, 1)
    disk.crash(keep="some")
    (path,) = remove_obsolete(disk, files(disk, "slot"))
    if path == PATH:
        path, _, _ = assign(disk, 1)
    assert files(disk, "slot") == [path] and count(disk, path) == 50


def test_an_old_file_that_could_not_be_removed_is_obsolete() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    disk.fail_next("remove", errno.EIO, after=2)  # those of the two notes succeed
    with pytest.raises(HeadpondError):
        assign(disk, 1)
    assert len(files(disk, "slot")) == 2
    (path,) = remove_obsolete(disk, files(disk, "slot"))
    assert files(disk, "slot") == [path] and count(disk, path) == 50


def test_a_disk_that_is_full_leaves_the_old_file_as_it_was() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    before = disk.contents(PATH)
    disk.fail_next("write", errno.ENOSPC, count=3, after=2)
    with pytest.raises(HeadpondError):
        assign(disk, 1)
    assert disk.contents(PATH) == before
    disk._faults.clear()
    path, _, _ = assign(disk, 1)
    assert count(disk, path) == 50


def test_a_file_that_one_destination_has_in_part_keeps_its_numbers() -> None:
    disk = MemoryDisk()
    refill = spilled(disk, destinations=(A, B), power=0)
    refill.ack(SegmentKey(0, 0), B)
    refill.close(None)
    with pytest.raises(TopicMismatch, match="1 shards, and the topic has 4"):
        assign(disk, 2)
    assert files(disk, "slot") == [PATH]


@pytest.mark.parametrize("opened", [False, True])
def test_rows_that_are_lost_in_the_old_file_are_named(opened: bool) -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    old = Refill.open(disk, PATH) if opened else None
    disk.flip(PATH, disk.contents(PATH).find(b"key 3"))
    old = old or Refill.open(disk, PATH)
    path, _ = assign_shards(disk, old, 1, NOBODY)
    assert [each.lost for each in old.damage] == ["segment 0 of shard 0"]
    assert count(disk, path) == 40
