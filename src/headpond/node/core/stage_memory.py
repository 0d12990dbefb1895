"""What was staged last, kept in memory so that publishing it does not read it back from the disk.

It has a bound: past it the oldest go, and are read from their stage file when their batch is published. Stages
that nobody ever commits are pushed out by newer ones in that way, and do not fill it.
"""

from __future__ import annotations

from headpond.node.core.stage import Chunk, Stage


class StageMemory:
    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._kept: dict[tuple[bytes, int], Chunk] = {}
        """By stage and number, oldest first."""

    def keep(self, stage: Stage, number: int, segment: bytes) -> None:
        """A chunk that the stage has got just now."""
        chunk = stage.chunks[number]
        chunk.segment = segment
        self._kept[stage.uuid, number] = chunk
        self.bytes += len(segment)
        while self.bytes > self._bytes_max:
            self._let_go(next(iter(self._kept)))

    def forget(self, stage: Stage) -> None:
        """All chunks of a stage that is done with, or that is to lose some."""
        for number in range(len(stage.chunks)):
            if (stage.uuid, number) in self._kept:
                self._let_go((stage.uuid, number))

    def _let_go(self, key: tuple[bytes, int]) -> None:
        chunk = self._kept.pop(key)
        assert chunk.segment is not None
        self.bytes -= len(chunk.segment)
        chunk.segment = None
