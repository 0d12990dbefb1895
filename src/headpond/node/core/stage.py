"""One stage: what it holds, how much of that is durable, and who may touch it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from headpond.model.errors import HeadpondError, StorageFailed
from headpond.node.core.stage_file import Place

Segment: TypeAlias = bytes


@dataclass(slots=True)
class Chunk:
    shard: int
    rows: int
    origin_crc: int
    bytes: int
    place: Place
    segment: Segment | None = None
    """What stands at the place, while it is kept in memory too (stage_memory)."""


@dataclass(slots=True, eq=False)
class Stage:
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
    """Whether the files tell of it, or are about to."""
    finished: bool = False
    finish_durable: bool = False
    fault: HeadpondError | None = None
    """What was wrong with a chunk; those behind it are passed over."""
    claimed: bool = False
    """A recorded batch has it: nothing else may touch it."""
    files: set[int] = field(default_factory=set)

    def take_back(self) -> None:
        """A write failed: only what was durable before counts."""
        lost = self.chunks[self.durable :]
        if lost or self.finished != self.finish_durable:
            self.fault = StorageFailed(f"the node could not write stage {self.uuid.hex()}")
        del self.chunks[self.durable :]
        self.rows -= sum(chunk.rows for chunk in lost)
        self.bytes -= sum(chunk.bytes for chunk in lost)
        self.finished = self.finish_durable
        if not self.durable and not self.finish_durable:
            self.begun = False
