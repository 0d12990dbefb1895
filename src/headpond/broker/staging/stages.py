"""Stages: rows that are on the disk and not yet in a topic, and the files that they share.

Appending works as in a log (storage/append.py): frames are staged in memory and count when their write ended; a
failed write sets every stage back to its durable chunks. A node learns its stages from the files at its start.
While it runs, everything but the segments is in memory; of the segments the newest are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headpond.broker.settings import Settings
from headpond.broker.staging.stage_file import (
    FOLDER,
    SHARD_RECORD,
    STAGES_LOST,
    Chunk,
    ChunkLocation,
    FoundChunk,
    FoundEnd,
    StageBegun,
    StageFinished,
    StagesDropped,
    encode_note,
    file_path,
    list_files,
    read_file,
    stored_chunk,
)
from headpond.model.errors import HeadpondError, StorageFailed
from headpond.storage.append import Appender, Batch
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk
from headpond.storage.seal import Seal, SealedFile


@dataclass(slots=True, eq=False)
class StageState:
    uuid: bytes
    writer: str
    topic: bytes
    opened_us: int
    touched_us: int
    chunks: list[Chunk] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    durable: int = 0
    """How many of the chunks are on the disk."""
    begun: bool = False
    """Whether its beginning is in a file, or staged."""
    finished: bool = False
    finish_durable: bool = False
    fault: HeadpondError | None = None
    """Why a chunk was refused; the stage ignores later chunks."""
    claimed: bool = False
    """Whether a recorded batch contains it: nothing else may touch it."""
    files: set[int] = field(default_factory=set)

    def take_back(self) -> None:
        """A write failed: only the durable chunks count."""
        lost = self.chunks[self.durable :]
        if lost or self.finished != self.finish_durable:
            self.fault = StorageFailed(f"the node could not write stage {self.uuid.hex()}")
        del self.chunks[self.durable :]
        self.rows -= sum(chunk.rows for chunk in lost)
        self.bytes -= sum(chunk.bytes for chunk in lost)
        self.finished = self.finish_durable
        if not self.durable and not self.finish_durable:
            self.begun = False


class StageMemory:
    """The newest staged segments, so that publishing does not read them from the disk.

    Past its bound it drops the oldest; publishing then reads them from their stage file. So stages that are
    never committed do not fill it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._kept: dict[tuple[bytes, int], Chunk] = {}
        """By stage and number, oldest first."""

    def keep(self, stage: StageState, number: int, segment: bytes) -> None:
        """Keeps the segment of a new chunk."""
        chunk = stage.chunks[number]
        chunk.segment = segment
        self._kept[stage.uuid, number] = chunk
        self.bytes += len(segment)
        while self.bytes > self._bytes_max:
            self._let_go(next(iter(self._kept)))

    def forget(self, stage: StageState) -> None:
        """Drops all segments of a stage."""
        for number in range(len(stage.chunks)):
            if (stage.uuid, number) in self._kept:
                self._let_go((stage.uuid, number))

    def _let_go(self, key: tuple[bytes, int]) -> None:
        chunk = self._kept.pop(key)
        assert chunk.segment is not None
        self.bytes -= len(chunk.segment)
        chunk.segment = None


class StageBatch(Batch):
    """Chunks and notes for one write."""

    __slots__ = ("chunks", "ended", "finishes", "number")

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        """Of the file that it goes to."""
        self.chunks: list[StageState] = []
        self.finishes: list[StageState] = []
        self.ended: dict[bytes, set[int]] = {}
        """Stages whose end it notes, with their files."""


class Stages:
    """One thread appends and takes, another may run the write meanwhile."""

    def __init__(
        self, disk: Disk, recovered: list[str], seal: Seal, dirty: dict[CommitLane, None], settings: Settings
    ) -> None:
        """Reads the stages of the run before; adds damage to ``recovered``. Does IO."""
        self.bytes = 0
        """Of all stages."""
        self._memory = StageMemory(settings.staging.memory_bytes)
        self._all: dict[bytes, StageState] = {}
        self._of_writer: dict[str, dict[bytes, StageState]] = {}
        self._disk = disk
        self._file_bytes = settings.staging.file_bytes
        self._preallocate_bytes = settings.log.preallocate_bytes
        """The step in which a file reserves room; 0 for none."""
        self._files: dict[int, set[bytes]] = {}
        """By number of a file: the stages with frames in it."""
        self._notes: dict[int, dict[bytes, set[int]]] = {}
        """By number of a file: the stages whose end it notes, each with the files that have its frames."""
        self._carried: dict[int, StageBatch] = {}
        """By number of a file to remove: the batch that repeats its notes."""
        self._synced_bytes: dict[int, int] = {}
        """By number: the durable length of the file."""
        self._removing: set[int] = set()
        self._number = 0
        """Of the file being written, or else of the last one."""
        self.appender = Appender(StageBatch, SHARD_RECORD, self._reserve_to)
        self._recover(recovered, seal)
        self.lane = CommitLane("the stage files", self.appender, self._wrote, dirty, lazy=True)

    # --- opening ------------------------------------------------------------------------------------

    def _recover(self, recovered: list[str], seal: Seal) -> None:
        """A stage with damaged chunks does not count as finished."""
        disk = self._disk
        numbers = list_files(disk)
        paths = set(map(file_path, numbers))
        recovered += [
            f"{sealed.path}: the file is missing; {STAGES_LOST}"
            for sealed in seal.files_in(FOLDER)
            if sealed.path not in paths
        ]
        for number in numbers:
            self._number = number
            self._files[number] = set()
            for item in read_file(disk, number, recovered, seal.get(file_path(number))):
                if isinstance(item, FoundChunk):
                    self._found_chunk(item)
                elif isinstance(item, FoundEnd):
                    self._synced_bytes[number] = item.bytes
                elif isinstance(item, StageBegun):
                    if item.stage not in self._all:
                        stage = StageState(
                            item.stage, item.writer, item.topic, item.at_us, item.at_us, begun=True
                        )
                        self._add(stage)
                    self._touch_file(self._all[item.stage], number)
                elif isinstance(item, StagesDropped):
                    self._found_end(number, item.stages)
                else:
                    self._found_finish(item)
        if self._number:
            disk.sync_folder(FOLDER)  # the creation of a file may have failed at the last step

    def _found_chunk(self, found: FoundChunk) -> None:
        stage = self._all.get(found.stage)
        if stage is None or found.number > len(stage.chunks):
            return  # a chunk before it is damaged: the stage can never be finished
        del stage.chunks[found.number :]  # a repeat, after a write that was not acknowledged
        stage.chunks.append(found.chunk)
        stage.durable = len(stage.chunks)
        stage.finished = stage.finish_durable = False
        self.bytes -= stage.bytes
        stage.rows = sum(each.rows for each in stage.chunks)
        stage.bytes = sum(each.bytes for each in stage.chunks)
        self.bytes += stage.bytes
        self._touch_file(stage, found.chunk.place.file)

    def _found_end(self, number: int, uuids: list[bytes]) -> None:
        noted = self._notes.setdefault(number, {})
        for uuid in uuids:
            ended = self._all.get(uuid)
            if ended is not None:
                noted[uuid] = set(ended.files)
                self._remove(ended)

    def _found_finish(self, note: StageFinished) -> None:
        stage = self._all.get(note.stage)
        if stage is not None and len(stage.chunks) == note.chunks:
            stage.finished = stage.finish_durable = True
            stage.touched_us = note.at_us

    # --- stages -------------------------------------------------------------------------------------

    def get(self, uuid: bytes) -> StageState | None:
        return self._all.get(uuid)

    def all(self) -> list[StageState]:
        return list(self._all.values())

    def of_writer(self, writer: str) -> list[StageState]:
        return list(self._of_writer.get(writer, {}).values())

    def __len__(self) -> int:
        return len(self._all)

    def count_of(self, writer: str) -> int:
        return len(self._of_writer.get(writer, ()))

    def writers(self) -> list[str]:
        return list(self._of_writer)

    # --- changes ------------------------------------------------------------------------------------

    def begin(self, uuid: bytes, writer: str, topic: bytes, now_us: int) -> StageState:
        """A new stage; its first chunk writes its beginning."""
        stage = StageState(uuid, writer, topic, now_us, now_us)
        self._add(stage)
        return stage

    def append(
        self, stage: StageState, shard: int, rows: int, origin_crc: int, segment: bytes, now_us: int
    ) -> None:
        """The next chunk of a stage."""
        self._note_begin(stage)
        batch = self._begun()
        number = len(stage.chunks)
        parts = stored_chunk(stage.uuid, number, shard, rows, origin_crc, segment)
        place = ChunkLocation(batch.number, batch.offset + batch.bytes)
        stage.chunks.append(Chunk(shard, rows, origin_crc, len(segment), place))
        self._memory.keep(stage, number, segment)
        stage.rows += rows
        stage.bytes += len(segment)
        stage.touched_us = now_us
        self.bytes += len(segment)
        self._touch_file(stage, batch.number)
        batch.parts += parts
        batch.bytes += sum(map(len, parts))
        batch.chunks.append(stage)

    def finish(self, stage: StageState, now_us: int) -> None:
        self._note_begin(stage)
        stage.finished = True
        stage.touched_us = now_us
        batch = self._begun()
        batch.add(encode_note(StageFinished(stage.uuid, len(stage.chunks), now_us)))
        batch.finishes.append(stage)

    def claim(self, uuids: Iterable[bytes]) -> None:
        """A recorded batch contains these stages, as far as they exist."""
        for uuid in uuids:
            if (stage := self._all.get(uuid)) is not None:
                stage.claimed = True

    def drop(self, uuids: Iterable[bytes]) -> int:
        """Drops stages, as far as they exist; returns how many did.

        A file can be removed when no other stage has a frame in it.
        """
        gone = [stage for uuid in uuids if (stage := self._all.get(uuid)) is not None]
        for stage in gone:
            self._remove(stage)
        if noted := {stage.uuid: set(stage.files) for stage in gone if stage.begun}:
            self._note_ends(noted)
        return len(gone)

    def take_unneeded(self) -> list[int]:
        """Takes the unneeded files, which the caller removes; call ``removed`` when that is durable.

        If a file notes the end of stages in files that stay, the notes are repeated first. The file is
        returned once that is durable.
        """
        staged, under_way = self.appender.staged, self.appender.under_way
        needed = {batch.number for batch in (staged, under_way) if batch is not None and batch.parts}
        if self.appender.end is not None:
            needed.add(self._number)
        gone = []
        for number in [each for each, stages in self._files.items() if not stages and each not in needed]:
            carrier = self._carried.get(number)
            if carrier is not None and carrier in (staged, under_way):
                continue
            there = (self._files.keys() | self._removing) - {number}
            ended = {
                uuid: files & there for uuid, files in self._notes.pop(number, {}).items() if files & there
            }
            if ended:
                self._carried[number] = self._note_ends(ended)
            else:
                gone.append(number)
                self._carried.pop(number, None)
                del self._files[number]
                self._removing.add(number)
        return gone

    def removed(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._removing.discard(number)

    def _add(self, stage: StageState) -> None:
        self._all[stage.uuid] = stage
        self._of_writer.setdefault(stage.writer, {})[stage.uuid] = stage

    def _remove(self, stage: StageState) -> None:
        del self._all[stage.uuid]
        self._memory.forget(stage)
        self.bytes -= stage.bytes
        others = self._of_writer[stage.writer]
        del others[stage.uuid]
        if not others:
            del self._of_writer[stage.writer]
        for number in stage.files:
            self._files[number].discard(stage.uuid)

    def _touch_file(self, stage: StageState, number: int) -> None:
        stage.files.add(number)
        self._files.setdefault(number, set()).add(stage.uuid)

    def _note_ends(self, ended: dict[bytes, set[int]]) -> StageBatch:
        batch = self._begun()
        batch.add(encode_note(StagesDropped(list(ended))))
        batch.ended |= ended
        self._notes.setdefault(batch.number, {}).update(ended)
        self.lane.mark()
        return batch

    def _note_begin(self, stage: StageState) -> None:
        if stage.begun:
            return
        stage.begun = True
        batch = self._begun()
        self._touch_file(stage, batch.number)
        batch.add(encode_note(StageBegun(stage.uuid, stage.writer, stage.topic, stage.opened_us)))

    def _begun(self) -> StageBatch:
        """The staged batch; its first frame decides to which file it goes."""
        batch, under_way, end = self.appender.staged, self.appender.under_way, self.appender.end
        if batch.parts:
            return batch
        batch.number = self._number if under_way is None else under_way.number
        if end is None or end >= self._file_bytes:
            batch.number += 1
            self._files.setdefault(batch.number, set())
            self.appender.begin_file(file_path(batch.number))
        else:
            self.appender.follow()
        return batch

    # --- writing ------------------------------------------------------------------------------------

    def _reserve_to(self, _batch: StageBatch, end: int) -> int:
        step = self._preallocate_bytes
        return -(-end // step) * step if step else 0

    def _wrote(self, write: StageBatch, error: OSError | None) -> bool:
        if error is None:
            self._committed(write)
        else:
            self._failed(write)
        return True

    def _committed(self, write: StageBatch) -> None:
        self.appender.committed(write)
        self._number = write.number
        self._synced_bytes[write.number] = write.end
        for stage in write.chunks:
            stage.durable += 1
        for stage in write.finishes:
            stage.finish_durable = True

    def _failed(self, write: StageBatch) -> None:
        """Undoes the write and everything staged since; the file is not written to again."""
        staged = self.appender.staged
        for batch in (staged, write):
            for stage in dict.fromkeys((*batch.chunks, *batch.finishes)):
                before = stage.bytes
                self._memory.forget(stage)
                stage.take_back()
                if stage.uuid in self._all:
                    self.bytes += stage.bytes - before
            self._number = max(self._number, batch.number)
        self.appender.failed(write)
        if ended := write.ended | staged.ended:  # the drops must become durable all the same
            self._note_ends(ended)

    def close(self) -> list[SealedFile]:
        """Leaves the files synced, without reserved room; returns their entries for the seal. Does IO."""
        if self.appender.under_way is None:
            if self.appender.end is not None:
                self._synced_bytes[self._number] = self.appender.durable_end
            self.appender.finish(self._disk)
        there = sorted(self._files.keys() & self._synced_bytes.keys())
        return [SealedFile(file_path(number), self._synced_bytes[number]) for number in there]
