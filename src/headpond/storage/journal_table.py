"""A small table in memory with a journal behind it: replayed at opening, changed, compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from headpond.model.errors import HeadpondError
from headpond.storage.commit_lane import Lane
from headpond.storage.disk import Disk
from headpond.storage.journal import FileJournal
from headpond.storage.seal import Seal


class TableState(Protocol):
    def replay(self, body: bytes) -> None:
        """Applies a record; one whose effect is already there changes nothing."""

    def snapshot(self) -> Iterable[bytes]:
        """The whole table as records."""

    def on_damage(self, *, lost: bool) -> None:
        """Rot has destroyed records (``lost``), or a write was torn that was never acknowledged."""


class JournalTable:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        state: TableState,
        dirty: dict[Lane, None],
        *,
        compact_bytes: int,
        seal: Seal | None = None,
    ) -> None:
        self.journal = FileJournal.open(disk, folder, seal)
        bodies = list(self.journal.records)
        for body in bodies:
            state.replay(body)
        self.recovered = [f"{folder}: {line}" for line in self.journal.report.lines()]
        self.journal.ensure_file()
        self.lane = Lane(f"the journal {folder}", self.journal, self._wrote, dirty)
        self._state = state
        self._compact_bytes = compact_bytes
        nothing_left = bool(self.journal.size_bytes) and not bodies  # every file begins with a record
        self.lost = nothing_left or self.journal.report.lost
        """Whether acknowledged records are lost."""
        if self.recovered or nothing_left:
            state.on_damage(lost=self.lost)
            self._compact()

    def change(self, bodies: list[bytes], durable: Callable[[HeadpondError | None], None]) -> None:
        """Stages records; calls ``durable`` once they are on the disk, or with the error that prevented it."""
        for body in bodies:
            self.journal.append(body)
        self.lane.wait(durable)

    def compact_if_long(self) -> None:
        """Call it after the waiters of a write: only then does the table agree with the journal."""
        if self.journal.size_bytes > max(self._compact_bytes, 4 * self.journal.snapshot_bytes):
            self._compact()

    def _compact(self) -> None:
        self.journal.compact(list(self._state.snapshot()))
        self.lane.mark()

    def _wrote(self, write: Any, error: OSError | None) -> bool:
        if error is None:
            self.journal.committed(write)
        else:
            self.journal.failed(write, error)
            self.journal.compact(list(self._state.snapshot()))
        return True
