"""A node in memory with the admission rules only, as a destination in tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from headpond.model.errors import HeadpondError, SnapshotNeeded
from headpond.model.identity import SegmentKey
from headpond.producer.keeper import Burst
from headpond.wire.control.codec import decode_control
from headpond.wire.control.producing import Ack, AckItem, Hole
from headpond.wire.frame import FILE_BODY_BYTES_MAX, Frame, FrameType, decode_at
from headpond.wire.plain.segment import decode_plain
from headpond.wire.typed.codec import RowDecoder
from headpond.wire.typed.form import Snapshot, TypedSegment
from headpond.wire.typed.rows import row_schema
from headpond.wire.typed.schema import decode_schema

Lane = tuple[bytes, int]
"""Block and shard."""


@dataclass
class Stored:
    """One segment, in the order they were stored."""

    block: bytes
    shard: int
    segment: int
    rows: pa.RecordBatch


@dataclass
class ModelNode:
    stored: list[Stored] = field(default_factory=list)
    expected: dict[Lane, int] = field(default_factory=dict)
    crcs: dict[tuple[bytes, int, int], int] = field(default_factory=dict)
    holes: list[tuple[bytes, int, int, int]] = field(default_factory=list)
    refuse: dict[int, str] = field(default_factory=dict)
    """By shard: the code that every segment is refused with."""
    conflicts: int = 0
    decoders: dict[Lane, RowDecoder] = field(default_factory=dict)
    """Of the present connection, in a typed topic."""

    def copy(self) -> ModelNode:
        """The contents of a backup."""
        return ModelNode(
            self.stored.copy(), self.expected.copy(), self.crcs.copy(), self.holes.copy(), {}, self.conflicts
        )

    def connected(self) -> None:
        self.decoders.clear()

    def hear(self, burst: Burst) -> list[Ack]:
        """Takes frames as a node does, and answers each segment."""
        return [answer for frame in burst.frames for answer in self._frame(burst, frame)]

    def _frame(self, burst: Burst, data: bytes) -> list[Ack]:
        frame = decode_at(data, 0, FILE_BODY_BYTES_MAX)
        assert frame is not None, "a frame cut short"
        if frame.type == FrameType.HOLE:
            hole = decode_control(frame.type, frame.body)
            assert isinstance(hole, Hole)
            self._declare((hole.block, hole.shard), hole.segment)
            return []
        if frame.type == FrameType.SNAPSHOT:
            assert burst.schema is not None, "a plain topic has no snapshots"
            snapshot = Snapshot(frame.segment, frame.body)
            lane = (burst.block, frame.shard)
            self.decoders[lane] = RowDecoder.from_snapshot(snapshot, row_schema(decode_schema(burst.schema)))
            self._declare(lane, frame.segment)
            return []
        assert frame.type == FrameType.SEGMENT
        return [Ack(burst.block, frame.shard, "sync", [self._segment(burst, frame)])]

    def _declare(self, lane: Lane, segment: int) -> None:
        if segment > self.expected.get(lane, 0):
            self.holes.append((*lane, self.expected.get(lane, 0), segment))
            self.expected[lane] = segment

    def _segment(self, burst: Burst, frame: Frame) -> AckItem:
        lane, segment = (burst.block, frame.shard), frame.segment
        if frame.shard in self.refuse:
            return _rejected(segment, self.refuse[frame.shard])
        if burst.predecessor is not None and not all(
            self.expected.get((burst.predecessor.block, number), 0) >= end
            for number, end in burst.predecessor.segments_next.items()
        ):
            return _rejected(segment, "predecessor")
        known = self.crcs.get((*lane, segment))
        if known is not None:
            if known != frame.crc:
                self.conflicts += 1
                return _rejected(segment, "conflict")
            self._learn(burst, frame)
            return AckItem(segment, "duplicate", 0)
        expected = self.expected.get(lane, 0)
        if segment > expected:
            return AckItem(segment, "rejected", None, "gap", "gap", expected)
        try:
            rows = self._decode(burst, frame)
        except SnapshotNeeded:
            return _rejected(segment, "snapshot")
        self.crcs[(*lane, segment)] = frame.crc
        self.expected[lane] = max(expected, segment + 1)
        self.stored.append(Stored(*lane, segment, rows))
        return AckItem(segment, "stored", len(self.stored))

    def _decode(self, burst: Burst, frame: Frame) -> pa.RecordBatch:
        if burst.schema is None:
            return decode_plain(frame.body)
        lane = (burst.block, frame.shard)
        decoder = self.decoders.get(lane)
        if decoder is None or decoder.next_segment != frame.segment:
            if frame.segment > 0:
                raise SnapshotNeeded("what came before is unknown")
            decoder = self.decoders[lane] = RowDecoder(row_schema(decode_schema(burst.schema)))
        try:
            return decoder.decode(TypedSegment(SegmentKey(frame.shard, frame.segment), frame.body))
        except SnapshotNeeded:
            del self.decoders[lane]
            raise

    def _learn(self, burst: Burst, frame: Frame) -> None:
        """Decodes a stored segment for the dictionaries that later ones need."""
        decoder = self.decoders.get((burst.block, frame.shard))
        wanted = frame.segment == 0 or (decoder is not None and decoder.next_segment == frame.segment)
        if burst.schema is not None and wanted:
            try:
                self._decode(burst, frame)
            except HeadpondError:
                return

    def numbers(self, read: Callable[[pa.RecordBatch], int]) -> list[int]:
        """The result of ``read`` for each segment, in the node's order."""
        return [read(each.rows) for each in self.stored]


def _rejected(segment: int, code: str) -> AckItem:
    return AckItem(segment, "rejected", None, code, code)
