"""A file that was cut for a guessed number of shards is encoded anew for the true one."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from headpond.model.errors import HeadpondError, TopicMismatch
from headpond.model.identity import SegmentKey
from headpond.producer.encoder import PlainEncoder
from headpond.producer.recut import recut, shard_power_of
from headpond.producer.refill.folder import file_name
from headpond.producer.refill.refill import Refill
from headpond.producer.sharder import Sharder
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import decode_plain
from headpond.wire.title import Predecessor, Title

A, B = "headpond://a:7411", "headpond://b:7411"
BLOCK = b"b" * 16
PATH = f"slot/{file_name(1_794_718_800_000_000, BLOCK)}"


def refills(disk: MemoryDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".refill")]


TITLE = Title("default/default/default/t", bytes(16), "p", predecessor=Predecessor(b"x" * 16, {0: 3}))


def spilled(disk: MemoryDisk, segments: int = 5, destinations: tuple[str, ...] = (A,)) -> Refill:
    """A file of one shard: rows with keys, ten a segment, numbered on."""
    refill = Refill.create(disk, PATH, block=BLOCK, shard_power=0, title=TITLE, destinations=destinations)
    encoder = PlainEncoder(0)
    for segment in range(segments):
        numbers = range(segment * 10, segment * 10 + 10)
        keys: list[bytes | None] = [b"key %d" % (number % 7) for number in numbers]
        frame, _ = encoder.encode(rows_to_batch([b"%d" % n for n in numbers], keys, None, None, [1] * 10))
        refill.write_segment(SegmentKey(0, segment), frame)
    refill.sync()
    return refill


def rows_of(disk: MemoryDisk, path: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """By shard: keys and values in their order."""
    refill = Refill.open(disk, path)
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    for key in refill.pending(A):
        rows = decode_plain(refill.get(key)[HEADER_BYTES : -TRAILER.size])
        pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
        found.setdefault(key.shard, []).extend(pairs)
    refill.release()
    return found


def test_every_key_ends_on_its_shard_and_in_its_order() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    assert shard_power_of(disk, PATH) == 0
    path, damage = recut(disk, PATH, 2, "sync")
    assert shard_power_of(disk, path) == 2 and damage == [] and refills(disk) == [path]
    found = rows_of(disk, path)
    assert all(Sharder(2).of_key(key) == shard for shard, rows in found.items() for key, _ in rows)
    by_key: dict[bytes, list[int]] = {}
    for rows in found.values():
        for key, value in rows:
            by_key.setdefault(key, []).append(int(value))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(50))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_what_was_encoded_anew_is_the_same_each_time_and_waits_for_no_other_block() -> None:
    bodies = []
    for _ in range(2):
        disk = MemoryDisk()
        spilled(disk).close(None)
        path, _ = recut(disk, PATH, 1, "sync")
        bodies.append(disk.contents(path))
        refill = Refill.open(disk, path)
        assert refill.title.predecessor is None and refill.title.producer == "p"
        assert refill.block != BLOCK
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("changes", range(0, 40, 3))
def test_a_power_cut_at_any_write_loses_and_repeats_nothing(changes: int) -> None:
    disk = MemoryDisk(changes)
    spilled(disk).close(None)
    disk.cut_power_after(changes)
    with suppress(HeadpondError, OSError):
        recut(disk, PATH, 1, "sync")
    disk.crash(keep="some")
    paths = refills(disk)
    whole = {path if shard_power_of(disk, path) == 1 else recut(disk, path, 1, "sync")[0] for path in paths}
    (path,) = whole
    assert sum(map(len, rows_of(disk, path).values())) == 50


def test_a_disk_that_is_full_leaves_the_old_file_as_it_was() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    before = disk.contents(PATH)
    disk.fail_next("write", errno.ENOSPC, count=3, after=2)
    with pytest.raises(HeadpondError):
        recut(disk, PATH, 1, "sync")
    assert disk.contents(PATH) == before
    disk._faults.clear()
    path, _ = recut(disk, PATH, 1, "sync")
    assert sum(map(len, rows_of(disk, path).values())) == 50


def test_what_one_destination_has_already_is_not_encoded_anew() -> None:
    disk = MemoryDisk()
    refill = spilled(disk, destinations=(A, B))
    refill.ack(SegmentKey(0, 0), B)
    refill.close(None)
    with pytest.raises(TopicMismatch, match="1 shards, and the topic has 4"):
        recut(disk, PATH, 2, "sync")
    assert refills(disk) == [PATH]


def test_what_is_lost_in_the_old_file_is_named() -> None:
    disk = MemoryDisk()
    spilled(disk).close(None)
    disk.flip(PATH, disk.contents(PATH).find(b"key 3"))
    path, damage = recut(disk, PATH, 1, "sync")
    assert [each.lost for each in damage] == ["segment 0 of shard 0"]
    assert sum(map(len, rows_of(disk, path).values())) == 40


def test_a_file_of_which_nothing_is_owed_is_left_alone() -> None:
    disk = MemoryDisk()
    refill = spilled(disk, 1)
    refill.reject(SegmentKey(0, 0), A, "conflict", "for the test")
    refill.close(None)
    assert recut(disk, PATH, 1, "sync") == (PATH, []) and refills(disk) == [PATH]


def test_a_file_that_cannot_be_read_says_nothing_of_its_shards() -> None:
    disk = MemoryDisk()
    file = disk.create("slot/x")
    file.write_at(0, [b"no frame at all, but long enough to be one"])
    assert shard_power_of(disk, "slot/x") is None
