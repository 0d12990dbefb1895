"""A refill file that was cut for another number of shards than its topic turned out to have, encoded anew.

That happens when a producer started with the node away and guessed. The rows are split again, under a block
that is made from the old one, so that doing it twice (after a crash in the middle) makes the same segments.
It is done only where no destination has any of it, for otherwise some rows would come twice.
"""

from __future__ import annotations

from typing import Final

import msgspec
from xxhash import xxh3_128_digest

from headpond.model.errors import BadFrame, TopicMismatch
from headpond.model.identity import SegmentKey
from headpond.producer.encoder import PlainEncoder
from headpond.producer.refill.folder import FileName
from headpond.producer.refill.losses import Damage
from headpond.producer.refill.refill import Refill
from headpond.producer.sharder import Sharder
from headpond.storage.disk import Disk
from headpond.wire.frame import (
    FILE_BODY_BYTES_MAX,
    HEADER_BYTES,
    TITLE_BYTES_MAX,
    TRAILER,
    FrameType,
    decode_at,
)
from headpond.wire.plain.segment import decode_plain
from headpond.wire.title import decode_title

READ_BYTES: Final = 4 * 1024 * 1024


def shard_power_of(disk: Disk, path: str) -> int | None:
    """What a file was cut for; None if that cannot be read."""
    file = disk.open(path)
    try:
        data = file.read_at(0, TITLE_BYTES_MAX + HEADER_BYTES + TRAILER.size)
    finally:
        file.close()
    try:
        frame = decode_at(data, 0, FILE_BODY_BYTES_MAX)
        return None if frame is None or frame.type != FrameType.TITLE else decode_title(frame.body)[1]
    except BadFrame:
        return None


def recut(disk: Disk, path: str, power: int, durability: str) -> tuple[str, list[Damage]]:
    """Encodes a file anew for ``2**power`` shards and removes it; the path of the new one, and what is lost."""
    old = Refill.open(disk, path, durability=durability)
    try:
        if not any(map(old.pending_runs, old.destinations)):
            return path, []  # it is kept for what was refused or lost, of which there is nothing to encode
        new_path = _recut(disk, old, power, durability)
    finally:
        old.release()
    done = Refill.open(disk, path, durability=durability)
    done.remove(force=True)
    return new_path, old.damage


def _recut(disk: Disk, old: Refill, power: int, durability: str) -> str:
    owed = old.pending_runs(old.destinations[0])
    if old.title.schema is not None or any(old.pending_runs(name) != owed for name in old.destinations):
        raise TopicMismatch(
            f"{old.path} was cut for {2**old.shard_power} shards, and the topic has {2**power}",
            hint="Part of it was delivered already; see `headpond refill show`.",
        )
    folder, _, name = old.path.rpartition("/")
    created_us = parsed.created_us if (parsed := FileName.parse(name)) is not None else 0
    block = xxh3_128_digest(old.block + bytes((power,)))
    new_path = f"{folder}/{FileName(created_us, block)}"
    if disk.exists(new_path):  # left by a crash in the middle
        disk.remove(new_path)
        disk.sync_folder(folder)
    new = Refill.create(
        disk,
        new_path,
        block=block,
        shard_power=power,
        # The block before it may be encoded anew as well; that it is sent first is enough.
        title=msgspec.structs.replace(old.title, predecessor=None),
        destinations=old.destinations,
        durability=durability,
    )
    try:
        _copy(old, owed, new, power)
        new.close(None)
    finally:
        new.release()
    return new_path


def _copy(old: Refill, owed: list[tuple[int, int, int]], new: Refill, power: int) -> None:
    sharder = Sharder(power)
    encoders = [PlainEncoder(shard) for shard in range(2**power)]
    for shard, first, end in owed:
        segment = first
        while segment < end:
            for frame in old.read(SegmentKey(shard, segment), READ_BYTES):
                if segment < end:
                    _split(new, frame, sharder, encoders)
                segment += 1
        new.sync()


def _split(new: Refill, frame: bytes, sharder: Sharder, encoders: list[PlainEncoder]) -> None:
    rows = decode_plain(frame[HEADER_BYTES : -TRAILER.size])
    for shard, piece, _ in sharder.split(rows):
        encoded, _ = encoders[shard].encode(piece)
        new.write_segment(SegmentKey(shard, encoders[shard].last_segment), encoded)
