"""Opens a log: reads its last file in full, and only the heads of the others.

storage/recovery.py has the rule for each file. A log adds:

1. Recovery replays frames onto the marks at the head of the last file. If those are damaged, it starts in the
   file before it.
2. The entries lost in damage are exactly those between the valid record before it and the valid record, STATUS
   or event behind it.
3. Damage without a record behind it may hide entries that were served. A new incarnation then begins, in a new
   file, at the end that the next STATUS or the seal names, or else behind an upper bound.
4. Every file names the one before it, so recovery notices a missing file and reports its exact span. After a
   clean stop the seal names the last file.
5. A compacted file replaces all files of lower generations in its span: recovery removes those that still
   exist.
"""

from __future__ import annotations

from contextlib import suppress

from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame
from headpond.storage.disk import Disk
from headpond.storage.frame_write import NEW_SUFFIX
from headpond.storage.log.format import (
    INDEX_SUFFIX,
    FileHead,
    FileId,
    expiry_name,
    file_name,
    index_name,
    load_compacted,
    load_marks,
    parse_expiry_name,
    parse_file,
    peek_head,
)
from headpond.storage.log.index import load_index
from headpond.storage.log.marks import Marks
from headpond.storage.log.read import FileView
from headpond.storage.log.replay import RecoveredLog, Replay
from headpond.storage.log.rewrite import find_compacted
from headpond.storage.log.walk import build_index
from headpond.storage.salvage import open_salvaged
from headpond.storage.seal import SealedFile
from headpond.wire.title import Title
from headpond.wire.typed.versions import SchemaVersions, versions_of


def recover(
    disk: Disk,
    folder: str,
    *,
    title: Title,
    shard: int,
    index_every_bytes: int,
    sealed: SealedFile | None = None,
) -> RecoveredLog:
    """Reads the folder of a log; cuts off a torn tail and removes leftover files.

    ``sealed`` is the last file at a clean stop.
    """
    state = RecoveredLog()
    if sealed is not None:
        state.kept = sealed.kept
    files = _files(state, disk, folder, shard, versions_of(title))
    if not files:
        _lose_end(state, sealed)
        return state
    heads = [_peek(disk, folder, each) for each in files]
    base = _replay_start(disk, folder, files, shard)
    state.next_entry = state.marks.book.counted_from = files[base].first
    for number in range(base, len(files)):
        limit = files[number + 1].first if number + 1 < len(files) else None
        mine = sealed if sealed is not None and sealed.name == file_name(*files[number]) else None
        replay = Replay(state, disk, folder, files[number], limit, title, shard, index_every_bytes, mine)
        replay.run(trust_marks=number == base)
    _name_files(state, disk, folder, files, heads)
    _note_expiries(state, disk, folder)
    _report_missing(state, disk, folder, heads, shard, index_every_bytes)
    _lose_end(state, sealed)
    _remove_dropped(state, disk, folder)
    if not state.named:  # its creation may have failed at the last step, before its name was durable
        disk.sync_folder(folder)
    return state


def _files(
    state: RecoveredLog, disk: Disk, folder: str, shard: int, schemas: SchemaVersions | None
) -> list[FileId]:
    """The files that count, in order; removes those that a crash left beside them."""
    found: list[FileId] = []
    indexes: list[FileId] = []
    for name in disk.list(folder):
        if (its_id := parse_file(name)) is not None:
            found.append(its_id)
        elif (its_id := parse_file(name, INDEX_SUFFIX)) is not None:
            indexes.append(its_id)
        elif name.endswith(NEW_SUFFIX):  # an unfinished file
            disk.remove(f"{folder}/{name}")
    kept: list[FileId] = []
    needless: list[str] = []
    spans: list[tuple[int, int]] = []
    for each in sorted(found, key=lambda file: file.generation, reverse=True):
        if any(start <= each.first < end for start, end in spans):
            needless.append(file_name(*each))
            continue
        kept.append(each)
        if each.generation:
            spans.append((each.first, _end_of(state, disk, folder, each, shard, schemas)))
    needless += [index_name(*each) for each in indexes if each not in kept]
    if needless:
        disk.sync_folder(folder)  # the files that replace them are durable first
    for name in needless:
        disk.remove(f"{folder}/{name}")
    return sorted(kept)


def _end_of(
    state: RecoveredLog, disk: Disk, folder: str, its_id: FileId, shard: int, schemas: SchemaVersions | None
) -> int:
    """One past the last entry of a compacted file; notes its removed entries."""
    file = open_salvaged(disk, f"{folder}/{file_name(*its_id)}")
    try:
        noted = load_compacted(file, its_id.first, shard)
        if noted is not None:
            state.compacted.include(EntrySet.decode(noted.bitmap))
            return noted.end
        end, taken_out = find_compacted(file, its_id.first, shard, schemas)
    finally:
        file.close()
    state.compacted.include(taken_out)
    return end


def _peek(disk: Disk, folder: str, its_id: FileId) -> FileHead | None:
    file = open_salvaged(disk, f"{folder}/{file_name(*its_id)}")
    try:
        return peek_head(file, its_id.first)
    finally:
        file.close()


def _replay_start(disk: Disk, folder: str, files: list[FileId], shard: int) -> int:
    """The number of the last file with valid MARKS; 0 if there is none."""
    for number in range(len(files) - 1, -1, -1):
        file = open_salvaged(disk, f"{folder}/{file_name(*files[number])}")
        try:
            loaded = load_marks(file, files[number].first, shard)
            if loaded is not None:
                Marks.decode(loaded.marks)
                return number
        except BadFrame:
            continue
        finally:
            file.close()
    return 0


def _name_files(
    state: RecoveredLog, disk: Disk, folder: str, files: list[FileId], heads: list[FileHead | None]
) -> None:
    """Adds the files with the time of the last record before each; a damaged head gets its neighbour's."""
    floor_us = 0
    for its_id, head in zip(files, heads, strict=True):
        if head is not None:
            floor_us = max(floor_us, head.stored_at_us)
        size = _size(disk, f"{folder}/{file_name(*its_id)}")
        state.files.append(FileView(its_id.first, floor_us, size, generation=its_id.generation))


def _note_expiries(state: RecoveredLog, disk: Disk, folder: str) -> None:
    """Reads the expiry names beside closed files; removes a name without its file."""
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
    state: RecoveredLog,
    disk: Disk,
    folder: str,
    heads: list[FileHead | None],
    shard: int,
    index_every_bytes: int,
) -> None:
    """Follows the chain of files; the span of a missing file begins at the real end of the file before it."""
    firsts = [file.first for file in state.files]
    if firsts[0] > state.kept:
        _lose_file(state, state.kept, firsts[0])
    for number in range(1, len(firsts)):
        head = heads[number]
        if head is None or head.previous in (None, firsts[number - 1]) or firsts[number] <= state.kept:
            continue
        before = state.files[number - 1].id
        file = open_salvaged(disk, f"{folder}/{file_name(*before)}")
        try:
            index = load_index(disk, f"{folder}/{index_name(*before)}", file, before.first)
            if index is None:
                index = build_index(file, before.first, firsts[number], shard, index_every_bytes)
        finally:
            file.close()
        _lose_file(state, index.end_entry, firsts[number])


def _lose_file(state: RecoveredLog, start: int, end: int) -> None:
    if start < end:
        state.report.missing.append((start, end))
        state.damaged.add(start, end)


def _lose_end(state: RecoveredLog, sealed: SealedFile | None) -> None:
    """Notes the last entries of a clean stop as lost if their file is missing."""
    if sealed is None or state.next_entry >= sealed.next:
        return
    start = max(state.next_entry, state.kept)
    state.lose_from(state.next_entry)
    _lose_file(state, start, sealed.next)
    state.marks.book.lost += sealed.next - start
    if state.file is not None:
        state.file.close()
        state.file = None
    state.next_entry = sealed.next


def _remove_dropped(state: RecoveredLog, disk: Disk, folder: str) -> None:
    """Finishes a recorded drop that a crash cut short."""
    while len(state.files) > 1 and state.files[1].first <= state.kept:
        gone = state.files.pop(0)
        names = [file_name(*gone.id), index_name(*gone.id)]
        if gone.expires_us is not None:
            names.append(expiry_name(gone.first, gone.expires_us))
        for name in names:
            with suppress(OSError):
                disk.remove(f"{folder}/{name}")
    state.damaged.discard(0, state.kept)
    state.compacted.discard(0, state.kept)


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
