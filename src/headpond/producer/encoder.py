"""The encoder of one shard: rows in, numbered segments out.

The segments of a plain topic are self-contained, so that the next number is the only state. The encoder of a
typed topic grows dictionaries (wire/typed/codec), and a snapshot lets a decoder begin in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.segment import encode_plain
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.rows import row_schema, to_rows


class Encoder(Protocol):
    first_segment: int
    """The first segment that it encodes, with empty dictionaries."""

    @property
    def last_segment(self) -> int:
        """The number of the last encoded segment; before that, one below the first."""

    @property
    def typed(self) -> bool: ...

    def encode(self, rows: pa.RecordBatch) -> tuple[bytes, Any]:
        """The next segment's frame, and the data for a snapshot at it. A fault changes nothing."""

    def snapshot(self, redundants: Sequence[Any]) -> bytes:
        """The SNAPSHOT frame at the first of ``redundants``, which are those up to the last segment."""


class PlainEncoder:
    typed = False

    def __init__(self, shard: int, first_segment: int = 0) -> None:
        self.first_segment = first_segment
        self.last_segment = first_segment - 1
        self._shard = shard

    def encode(self, rows: pa.RecordBatch) -> tuple[bytes, None]:
        body = encode_plain(rows)
        self.last_segment += 1
        return encode(FrameType.SEGMENT, body, shard=self._shard, segment=self.last_segment), None

    def snapshot(self, redundants: Sequence[Any]) -> bytes:
        raise AssertionError("a plain topic's segments need no snapshot")


class TypedEncoder:
    typed = True

    def __init__(self, schema: pa.Schema, shard: int, first_segment: int = 0) -> None:
        self.first_segment = first_segment
        self._topic_schema = schema
        self._shard = shard
        self._encoder = RowEncoder(row_schema(schema), shard, first_segment)

    @property
    def last_segment(self) -> int:
        return self._encoder.last_segment

    def encode(self, rows: pa.RecordBatch) -> tuple[bytes, Any]:
        segment, redundant = self._encoder.encode(to_rows(rows, self._topic_schema))
        number = segment.key.segment
        return encode(FrameType.SEGMENT, segment.body, shard=self._shard, segment=number), redundant

    def snapshot(self, redundants: Sequence[Any]) -> bytes:
        snapshot = self._encoder.snapshot(redundants)
        return encode(FrameType.SNAPSHOT, snapshot.body, shard=self._shard, segment=snapshot.segment)
