"""Rows in the refill get their shard, block and number, once it is known how many shards their topic has.

That is for files of a producer that started before a node said so, and for files cut for a number that is no
longer right, because the topic was deleted and created again. The rows are written to a new file, which
replaces the old one when it is complete and synced. Only then are they sent, so that a crash before neither
loses nor repeats a row. The new block is made from the old one: where both files exist, the old one is
obsolete.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
from xxhash import xxh3_128_digest

from headpond.model.errors import TopicMismatch, UnknownSegment
from headpond.model.identity import SHARD_POWER_MAX, SegmentKey
from headpond.producer.encoder import PlainEncoder, Sharder
from headpond.producer.exchange import Parts
from headpond.producer.refill.folder import FileName
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.refill import Refill
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.disk import Disk
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.segment import decode_plain

READ_BYTES: Final = 4 * 1024 * 1024


def assign_shards(disk: Disk, old: Refill, power: int, awaited: frozenset[SegmentKey]) -> tuple[str, Parts]:
    """Replaces a file by one for ``2**power`` shards: its path, and where the awaited segments' rows are."""
    owed = old.pending_runs(old.destinations[0])
    if old.title.schema is not None or any(old.pending_runs(name) != owed for name in old.destinations):
        cut_for = "no number of" if old.shard_power is None else 2**old.shard_power
        raise TopicMismatch(
            f"{old.path} was cut for {cut_for} shards, and the topic has {2**power}",
            hint="Part of it was delivered already, or the topic is typed; see `headpond refill show`.",
        )
    folder, _, name = old.path.rpartition("/")
    created_us = parsed.created_us if (parsed := FileName.parse(name)) is not None else 0
    block = assigned_block(old.block, power)
    path = f"{folder}/{FileName(created_us, block)}"
    unfinished = path + NEW_SUFFIX
    for leftover in (unfinished, unfinished + NOTE_SUFFIX):
        if disk.exists(leftover):
            disk.remove(leftover)
    new = Refill.create(
        disk,
        unfinished,
        block=block,
        shard_power=power,
        # The block before it may get another number too; the order of the files is enough.
        title=msgspec.structs.replace(old.title, predecessor=None),
        destinations=old.destinations,
        durability=old.durability,
    )
    try:
        parts = _copy(old, owed, new, power, awaited)
        new.close(None)
    finally:
        new.release()
    with suppress(OSError):
        disk.remove(unfinished + NOTE_SUFFIX)
    disk.rename(unfinished, path)
    disk.sync_folder(folder)
    old.remove(force=True)
    return path, parts


def assigned_block(block: bytes, power: int) -> bytes:
    return xxh3_128_digest(block + bytes((power,)))


def remove_obsolete(disk: Disk, paths: list[str]) -> list[str]:
    """The paths without the files that were replaced and whose removal a crash prevented."""
    names = ((FileName.parse(path.rpartition("/")[2]), path) for path in paths)
    blocks = {name.block: path for name, path in names if name is not None}
    obsolete = {
        path
        for block, path in blocks.items()
        if any(assigned_block(block, power) in blocks for power in range(SHARD_POWER_MAX + 1))
    }
    for path in obsolete:
        for each in (path + NOTE_SUFFIX, path):
            with suppress(OSError):
                disk.remove(each)
    return [path for path in paths if path not in obsolete]


def _copy(
    old: Refill, owed: list[tuple[int, int, int]], new: Refill, power: int, awaited: frozenset[SegmentKey]
) -> Parts:
    sharder = Sharder(power)
    encoders: dict[int, PlainEncoder] = {}
    parts: Parts = {}
    for shard, first, end in owed:
        segment = first
        while segment < end:
            try:
                frames = old.read(SegmentKey(shard, segment), READ_BYTES)
            except UnknownSegment:  # damaged since the file was opened, which ``old.damage`` names
                segment += 1
                continue
            for frame in frames[: end - segment]:
                written = _split(new, frame, sharder, encoders)
                key = SegmentKey(shard, segment)
                if key in awaited:
                    parts[key] = written
                segment += 1
        new.sync()
    return parts


def _split(
    new: Refill, frame: bytes, sharder: Sharder, encoders: dict[int, PlainEncoder]
) -> list[tuple[SegmentKey, int, object]]:
    """Writes the rows of a segment by shard: each new segment, how many rows, and where they stood."""
    written: list[tuple[SegmentKey, int, object]] = []
    for shard, rows, places in sharder.split(decode_plain(frame[HEADER_BYTES : -TRAILER.size])):
        encoder = encoders.setdefault(shard, PlainEncoder(shard))
        encoded, _ = encoder.encode(rows)
        key = SegmentKey(shard, encoder.last_segment)
        new.write_segment(key, encoded)
        written.append((key, rows.num_rows, places))
    return written
