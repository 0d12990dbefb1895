"""A new or late member gets the folder of another one, whole and durable."""

from __future__ import annotations

import asyncio

import msgspec

from headpond.cluster.apply import Position, load_position
from headpond.cluster.copy import (
    BeginCopy,
    CopyQuestion,
    CopySource,
    EndCopy,
    ListCopy,
    fetch_copy,
    shared_paths,
)
from tests.cluster.folders import FolderDisk


def write(disk: FolderDisk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.write_at(0, [data])
    file.sync()
    file.close()
    disk.sync_folder(path.rpartition("/")[0])


async def answer(source: CopySource, question: CopyQuestion) -> bytes:
    if isinstance(question, BeginCopy):
        return msgspec.msgpack.encode(source.begin(Position(seq=7)))
    if isinstance(question, ListCopy):
        return msgspec.msgpack.encode(source.names(question))
    return b"" if isinstance(question, EndCopy) else source.read(question)


def test_a_copy_is_the_whole_folder_even_after_a_power_cut() -> None:
    source, target = FolderDisk(), FolderDisk()
    write(source, "topics/a/0.log", b"new")
    write(target, "topics/a/0.log", b"old, and longer")
    write(target, "topics/gone/0.log", b"of a topic that the group deleted")
    copies = CopySource(source)

    position = asyncio.run(fetch_copy(target, lambda question: answer(copies, question), lambda _: None))
    target.crash(keep="none")

    assert shared_paths(target) == ["topics/a/0.log"]
    file = target.open("topics/a/0.log")
    assert file.read_at(0, 100) == b"new"
    assert load_position(target) == position == Position(seq=7)
