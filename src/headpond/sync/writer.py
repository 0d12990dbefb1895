"""The blocking writer: the calling thread encodes rows, the loop's thread sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.client.writer import EncodedChunk, Rows, each_table
from headpond.client.writer import OpenedStage as AsyncOpenedStage
from headpond.client.writer import Writer as AsyncWriter
from headpond.model.receipt import Stage
from headpond.sync.background import Background, Mirror, ScopeTwin, Twin, blocking, mirrored

if TYPE_CHECKING:
    import pyarrow as pa

HAND_OVER_BYTES = 1024 * 1024
"""Encoded bytes that one hop to the loop's thread carries."""


class OpenedStage(Twin[AsyncOpenedStage]):
    """A stage to fill: ``add`` rows, then ``finish``. ``Writer.begin`` makes one."""

    id: Mirror[bytes] = mirrored(AsyncOpenedStage.id)
    columns: Mirror[pa.Schema | None] = mirrored(AsyncOpenedStage.columns)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Sends rows; waits while much is unconfirmed."""
        # The calling thread has just made the rows: it finds them in its core's cache, and the loop stays free.
        chunks: list[EncodedChunk] = []
        size = 0
        for chunk in self._twin.encode(rows):
            chunks.append(chunk)
            size += chunk.bytes
            if size >= HAND_OVER_BYTES:
                self._background.run(self._twin.send(*chunks))
                chunks, size = [], 0
        if chunks:
            self._background.run(self._twin.send(*chunks))

    finish = blocking(AsyncOpenedStage.finish)


class Writer(ScopeTwin[AsyncWriter]):
    """Stages rows and commits batches of them."""

    def __init__(self, writer: AsyncWriter, background: Background) -> None:
        super().__init__(writer, background)

    @property
    def name(self) -> str:
        return self._twin.name

    def stage(self, topic: str, rows: Rows) -> Stage:
        """Puts rows on the node's disk; readers see them after a commit that names the stage."""
        opened = self.begin(topic)
        for part in each_table(rows):  # the calling thread runs an iterator that makes the rows
            opened.add(part)
        return opened.finish()

    def begin(self, topic: str) -> OpenedStage:
        """A stage to fill in several steps."""
        return OpenedStage(self._background.run(self._twin.begin(topic)), self._background)

    commit = blocking(AsyncWriter.commit)
    abort = blocking(AsyncWriter.abort)
    delete = blocking(AsyncWriter.delete)
    close = blocking(AsyncWriter.close)
