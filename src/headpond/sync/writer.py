"""The blocking writer: rows are encoded in the calling thread and sent by the loop's."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headpond.client.writer import EncodedChunk, Rows, each_table
from headpond.client.writer import OpenedStage as AsyncOpenedStage
from headpond.client.writer import Writer as AsyncWriter
from headpond.model.receipt import Stage
from headpond.sync.background import Background
from headpond.wire.control.staging import BatchInfo

if TYPE_CHECKING:
    import pyarrow as pa

HAND_OVER_BYTES = 1024 * 1024
"""Encoded, before the loop gets it."""


class OpenedStage:
    """A stage being filled: ``add`` rows, then ``finish``. ``Writer.begin`` makes one."""

    def __init__(self, stage: AsyncOpenedStage, background: Background) -> None:
        self._stage = stage
        self._background = background

    @property
    def id(self) -> bytes:
        return self._stage.id

    @property
    def columns(self) -> pa.Schema | None:
        """The topic's; None of a plain one."""
        return self._stage.columns

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Sends rows; waits while much is unconfirmed."""
        # The calling thread has just made the rows: it finds them in its core's cache, and the loop stays free.
        chunks: list[EncodedChunk] = []
        size = 0
        for chunk in self._stage.encode(rows):
            chunks.append(chunk)
            size += len(chunk.segment)
            if size >= HAND_OVER_BYTES:
                self._background.run(self._stage.send(*chunks))
                chunks, size = [], 0
        if chunks:
            self._background.run(self._stage.send(*chunks))

    def finish(self) -> Stage:
        """Returns when all of it is on the node's disk."""
        return self._background.run(self._stage.finish())


class Writer:
    """Stages rows and commits batches of them."""

    def __init__(self, writer: AsyncWriter, background: Background) -> None:
        self._writer = writer
        self._background = background

    @property
    def name(self) -> str:
        return self._writer.name

    def stage(self, topic: str, rows: Rows) -> Stage:
        """Puts rows on the node's disk, where nobody sees them before a commit names the stage."""
        opened = self.begin(topic)
        for part in each_table(rows):  # whatever makes them does so in the calling thread
            opened.add(part)
        return opened.finish()

    def begin(self, topic: str) -> OpenedStage:
        """A stage to be filled bit by bit."""
        return OpenedStage(self._background.run(self._writer.begin(topic)), self._background)

    def commit(
        self,
        batch: int,
        stages: Sequence[Stage | bytes],
        *,
        holder: str = "",
        on_repeat: str = "compare",
    ) -> BatchInfo:
        """Publishes the stages as this batch, all or none; returns when they are in their topics, durably."""
        return self._background.run(self._writer.commit(batch, stages, holder=holder, on_repeat=on_repeat))

    def abort(self, stages: Sequence[Stage | bytes]) -> int:
        """Drops stages that no batch has; returns how many. What was committed stays."""
        return self._background.run(self._writer.abort(stages))

    def close(self) -> None:
        """Stages that were not committed stay at the node until they are aborted, or expire."""
        self._background.run(self._writer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
