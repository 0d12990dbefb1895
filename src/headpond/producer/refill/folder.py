"""The folders of refill files: one folder per producer and process, one file per block.

::

    ROOT/orders.till-1-3fa9c01b2e/                        a slot: one topic, one producer name, one process
        lock                                              held by the process that uses it (storage/folder_lock)
        1794718800000000-0123…cdef.refill                 named by when it was made (µs) and its block
        1794718800000000-0123…cdef.refill.note            the note of its last sync (form)
    ROOT/orders.till-1-3fa9c01b2e~2/                      the slot of a second process at the same time

A slot's name is readable and ends with a hash of the full names, which the readable part may cut short.
Names of files sort oldest first. Other files in a slot are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from headpond.model.errors import BadFrame
from headpond.model.names import TopicName
from headpond.producer.refill.form import SUFFIX, decode_refill_title
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.disk import Disk
from headpond.wire.frame import (
    FILE_BODY_BYTES_MAX,
    HEADER_BYTES,
    TITLE_BYTES_MAX,
    TRAILER,
    FrameType,
    decode_at,
)
from headpond.wire.title import Title

SLOTS_MAX = 1024
"""How many processes of one topic and producer name may each have a slot at the same time."""
_READABLE_MAX = 60
_HASH_DIGITS = 10
_SLOT = re.compile(r"[A-Za-z0-9._-]+-[0-9a-f]{10}(~[1-9][0-9]*)?")
_FILE = re.compile(r"([0-9]{16,19})-([0-9a-f]{32})\.refill")


class FileName(NamedTuple):
    created_us: int
    block: bytes

    def __str__(self) -> str:
        return f"{self.created_us:016d}-{self.block.hex()}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        """None for a file that is no refill."""
        match = _FILE.fullmatch(name)
        return None if match is None else cls(int(match[1]), bytes.fromhex(match[2]))


def slot_name(topic: str, producer: str) -> str:
    """The name of the first slot of a topic and a producer; a bare and a whole topic name have the same."""
    name = TopicName.parse(topic)
    digest = xxh3_64_hexdigest(f"{name}\n{producer}".encode())[:_HASH_DIGITS]
    readable = [_readable(name.short)] + ([_readable(producer)] if producer else [])
    return f"{'.'.join(readable)}-{digest}"


def _readable(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", ".", text)[:_READABLE_MAX].strip(".-") or "_"


def slot_names(slot: str) -> Iterator[str]:
    """The names that processes try, one after the other: the slot's, then with ``~2``, ``~3``, …"""
    yield slot
    for number in range(2, SLOTS_MAX + 1):
        yield f"{slot}~{number}"


def slots(disk: Disk) -> list[str]:
    """The names of all slots, sorted."""
    return [name for name in disk.list("") if _SLOT.fullmatch(name)]


def slots_of(disk: Disk, slot: str) -> list[str]:
    """The names of the slots of one topic and producer, the first one first."""
    found = [name for name in slots(disk) if name.partition("~")[0] == slot]
    return sorted(found, key=lambda name: int(name.partition("~")[2] or 1))


def files(disk: Disk, slot: str) -> list[str]:
    """The paths of the refill files in a slot, oldest first; an empty slot is the disk's root."""
    try:
        names = disk.list(slot)
    except NotADirectoryError:  # a file that is named like a slot
        return []
    known = ((FileName.parse(name), name) for name in names)
    sorted_names = [name for _, name in sorted((p, name) for p, name in known if p is not None)]
    return [f"{slot}/{name}" for name in sorted_names] if slot else sorted_names


def size_bytes(disk: Disk, slot: str) -> int:
    """How many bytes the refill files of a slot take."""
    return sum(_size(disk, path) for path in files(disk, slot))


def remove_unfinished(disk: Disk, slot: str) -> None:
    """Removes files whose making was interrupted; they hold nothing promised. For the holder of the slot."""
    for name in disk.list(slot):
        if name.endswith(SUFFIX + NEW_SUFFIX) and FileName.parse(name.removesuffix(NEW_SUFFIX)) is not None:
            disk.remove(f"{slot}/{name}")


def _size(disk: Disk, path: str) -> int:
    try:
        file = disk.open(path)
    except FileNotFoundError:  # delivered and removed meanwhile
        return 0
    try:
        return file.size()
    finally:
        file.close()


def read_title(disk: Disk, path: str) -> tuple[bytes, Title] | None:
    """Block and title; None if they cannot be read."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, TITLE_BYTES_MAX + HEADER_BYTES + TRAILER.size)
    finally:
        file.close()
    try:
        frame = decode_at(data, 0, FILE_BODY_BYTES_MAX)
        if frame is None or frame.type != FrameType.TITLE:
            return None
        block, _, title = decode_refill_title(frame.body)
    except BadFrame:
        return None
    return block, title
