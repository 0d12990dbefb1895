"""Opens and commits the files of staged writes: the stage files and the journal of writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from headpond.broker.settings import Settings
from headpond.broker.staging.stage_file import FOLDER, file_path
from headpond.broker.staging.stages import Stages, StageState
from headpond.broker.staging.writers import Change, Writers, decode_change, encode_change
from headpond.broker.steps import Wait, on_disk
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk
from headpond.storage.journal import FileJournal
from headpond.storage.seal import Seal, SealedFile


class Errand:
    """Work for a worker thread that belongs to no journal, such as reading. The shell runs it like a write."""

    name = "an errand"

    def take(self) -> Errand:
        return self

    def run(self, disk: Disk) -> None:
        raise NotImplementedError

    def ended(self, error: OSError | None) -> None:
        """Called in the owning thread after ``run``."""


class RemoveFiles(Errand):
    """Removes unneeded stage files; the next start of the node removes those that it could not."""

    name = "unneeded stage files"

    def __init__(self, numbers: list[int], done: Callable[[list[int]], None]) -> None:
        self._numbers = numbers
        self._done = done
        self._gone = False

    def run(self, disk: Disk) -> None:
        with suppress(OSError):
            for number in self._numbers:
                if disk.exists(file_path(number)):
                    disk.remove(file_path(number))
            disk.sync_folder(FOLDER)
            self._gone = True

    def ended(self, error: OSError | None) -> None:
        if self._gone:
            self._done(self._numbers)


class StagingStores:
    def __init__(
        self, disk: Disk, settings: Settings, dirty: dict[CommitLane, None], recovered: list[str], seal: Seal
    ) -> None:
        self.writers = Writers()
        self.stages = Stages(
            file_bytes=settings.staging.file_bytes,
            preallocate_bytes=settings.log.preallocate_bytes,
            memory_bytes=settings.staging.memory_bytes,
        )
        self._disk = disk
        self._compact_bytes = settings.journal_compact_bytes
        self._journal = journal = FileJournal.open(disk, "writers", seal)
        for body in journal.records:
            self.writers.apply(decode_change(body))
        recovered += [f"writers: {line}" for line in journal.report.lines()]
        journal.ensure_file()
        self._writers_lane = CommitLane("the writers' journal", journal.appender, self._writers_wrote, dirty)
        self.stages.open(disk, recovered, seal)
        self.stage_lane = CommitLane(
            "the stage files", self.stages.appender, self._stages_wrote, dirty, lazy=True
        )
        for writer in self.writers:
            for part in writer.pending.parts if writer.pending is not None else ():
                if (stage := self.stages.get(part.stage)) is not None:
                    stage.claimed = True

    # --- changes ------------------------------------------------------------------------------------

    def recorded(self, change: Change) -> Wait[None]:
        """Makes a change and waits until it is on the disk; a write that fails is repeated until then."""
        self.writers.apply(change)
        self._journal.append(encode_change(change))
        return on_disk(self._writers_lane)

    def note(self, change: Change) -> None:
        """Makes a change without a waiter."""
        self.writers.apply(change)
        self._journal.append(encode_change(change))
        self._writers_lane.mark()

    def drop_stages(self, uuids: Iterable[bytes]) -> list[StageState]:
        """Drops the stages among these that exist, and returns them."""
        found = [stage for uuid in uuids if (stage := self.stages.get(uuid)) is not None]
        self.stages.drop(found)
        self.stage_lane.mark()
        return found

    # --- committing ---------------------------------------------------------------------------------

    def _writers_wrote(self, write: Any, error: OSError | None) -> bool:
        self._journal.done(write, error, self.writers.snapshot)
        return False

    def _stages_wrote(self, write: Any, error: OSError | None) -> bool:
        if error is None:
            self.stages.committed(write)
        else:
            self.stages.failed(write)
        return True

    def lane_wrote(self, lane: CommitLane) -> None:
        """The write of a lane ended and its waiters were called."""
        if lane is self._writers_lane and self._journal.is_long(self._compact_bytes):
            self._journal.compact(self.writers.snapshot())
            lane.mark()

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._writers_lane.busy or self.stage_lane.busy

    def close(self) -> list[SealedFile]:
        """Closes the files; returns their entries for the seal. Does IO."""
        writers = self._journal.close()
        return [*([] if writers is None else [writers]), *self.stages.close(self._disk)]
