"""What a log is when it is opened: its last file read through, the heads of the others, nothing more.

The rule for each file is files/recovery.py. What a log adds:

1. Frames are replayed onto the marks that the last file begins with. If those are damaged, replay starts in the
   file before it.
2. The entries lost in damage are exactly those between the good record before it and the good record, STATUS or
   event behind it.
3. Damage that no record follows may hide entries that were served: a new incarnation begins, in a new file, at
   the end that the STATUS behind it tells.
4. Every file names the one before it, so one that is gone is noticed, and its exact span reported.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.files.disk import Disk
from penstock.files.frame_write import NEW_SUFFIX
from penstock.files.salvage import open_salvaged
from penstock.model.errors import BadFrame
from penstock.node.core.log_file import (
    Head,
    expiry_name,
    file_name,
    index_name,
    load_marks,
    parse_expiry_name,
    parse_name,
    peek_head,
)
from penstock.node.core.log_index import load_index
from penstock.node.core.log_reader import FileView
from penstock.node.core.log_replay import Recovered, Replay
from penstock.node.core.log_walk import build_index
from penstock.node.core.marks import Marks
from penstock.wire.title import Title


def recover(disk: Disk, folder: str, *, title: Title, shard: int, index_every_bytes: int) -> Recovered:
    """Reads a log's folder; what it has to set right (a torn tail, left-over files) it does."""
    state = Recovered()
    firsts = _firsts(disk, folder)
    if not firsts:
        return state
    heads = [_peek(disk, folder, first) for first in firsts]
    base = _replay_start(disk, folder, firsts, shard)
    state.next_entry = state.marks.book.counted_from = firsts[base]
    for number in range(base, len(firsts)):
        limit = firsts[number + 1] if number + 1 < len(firsts) else None
        replay = Replay(state, disk, folder, firsts[number], limit, title, shard, index_every_bytes)
        replay.run(trust_marks=number == base)
    _name_files(state, disk, folder, firsts, heads)
    _note_expiries(state, disk, folder)
    _report_missing(state, disk, folder, heads, shard, index_every_bytes)
    _remove_dropped(state, disk, folder)
    if not state.named:  # its making may have failed at the last step, and its name not be durable
        disk.sync_folder(folder)
    return state


def _firsts(disk: Disk, folder: str) -> list[int]:
    found = []
    for name in disk.list(folder):
        first = parse_name(name)
        if first is not None:
            found.append(first)
        elif name.endswith(NEW_SUFFIX):  # a file whose making was cut short
            disk.remove(f"{folder}/{name}")
    return found


def _peek(disk: Disk, folder: str, first: int) -> Head | None:
    file = open_salvaged(disk, f"{folder}/{file_name(first)}")
    try:
        return peek_head(file, first)
    finally:
        file.close()


def _replay_start(disk: Disk, folder: str, firsts: list[int], shard: int) -> int:
    """The last file whose MARKS can be trusted; the first of all where there is none."""
    for number in range(len(firsts) - 1, -1, -1):
        file = open_salvaged(disk, f"{folder}/{file_name(firsts[number])}")
        try:
            loaded = load_marks(file, firsts[number], shard)
            if loaded is not None:
                Marks.decode(loaded[2])
                return number
        except BadFrame:
            continue
        finally:
            file.close()
    return 0


def _name_files(state: Recovered, disk: Disk, folder: str, firsts: list[int], heads: list[Head | None]) -> None:
    """The files with the time before which nothing in them was stored; a damaged head takes its neighbour's."""
    floor_us = 0
    for first, head in zip(firsts, heads, strict=True):
        if head is not None:
            floor_us = max(floor_us, head.stored_at_us)
        state.files.append(FileView(first, floor_us, _size(disk, f"{folder}/{file_name(first)}")))


def _note_expiries(state: Recovered, disk: Disk, folder: str) -> None:
    """What the names beside sealed files tell; a name without its file goes."""
    places = {file.first: number for number, file in enumerate(state.files[:-1])}
    for name in disk.list(folder):
        note = parse_expiry_name(name)
        if note is None:
            continue
        if (number := places.get(note[0])) is None:
            disk.remove(f"{folder}/{name}")
        else:
            state.files[number] = state.files[number]._replace(expires_us=note[1])


def _report_missing(
    state: Recovered, disk: Disk, folder: str, heads: list[Head | None], shard: int, index_every_bytes: int
) -> None:
    """Follows the chain of files; where one is gone, its span begins where the file before it really ends."""
    firsts = [file.first for file in state.files]
    if firsts[0] > state.kept:
        _lose_file(state, state.kept, firsts[0])
    for number in range(1, len(firsts)):
        head = heads[number]
        if head is None or head.previous in (None, firsts[number - 1]) or firsts[number] <= state.kept:
            continue
        before = firsts[number - 1]
        file = open_salvaged(disk, f"{folder}/{file_name(before)}")
        try:
            index = load_index(disk, f"{folder}/{index_name(before)}", file, before)
            if index is None:
                index = build_index(file, before, firsts[number], shard, index_every_bytes)
        finally:
            file.close()
        _lose_file(state, index.end_entry, firsts[number])


def _lose_file(state: Recovered, start: int, end: int) -> None:
    if start < end:
        state.report.missing.append((start, end))
        state.damaged.add(start, end)


def _remove_dropped(state: Recovered, disk: Disk, folder: str) -> None:
    """Finishes a drop that was recorded and then cut short."""
    while len(state.files) > 1 and state.files[1].first <= state.kept:
        gone = state.files.pop(0)
        names = [file_name(gone.first), index_name(gone.first)]
        if gone.expires_us is not None:
            names.append(expiry_name(gone.first, gone.expires_us))
        for name in names:
            with suppress(OSError):
                disk.remove(f"{folder}/{name}")
    state.damaged.discard(0, state.kept)


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
