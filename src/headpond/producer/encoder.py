"""From rows to numbered segments: the shard of a row, and the encoder of a shard.

A topic has ``2**power`` shards. A key always goes to shard ``xxh3_64(key) & (2**power - 1)``, on every client
and as long as the topic exists. Rows without a key share one shard per segment, and segments take turns.

The segments of a plain topic are self-contained, so that the next number is the only state. The encoder of a
typed topic grows dictionaries (wire/typed/codec), and a snapshot lets a decoder begin in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from headpond.model.errors import SchemaMismatch
from headpond.model.identity import SHARD_POWER_MAX
from headpond.wire.frame import FrameType, encode, frame_parts
from headpond.wire.plain.segment import plain_parts
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.rows import row_schema, to_rows


class Sharder:
    """Assigns shards; its only state is the turn of the shards among segments without a key."""

    def __init__(self, power: int, turn: int = 0) -> None:
        assert 0 <= power <= SHARD_POWER_MAX
        self.mask = (1 << power) - 1
        self.turn = turn & self.mask
        """The shard that rows without a key go to now."""

    def of_key(self, key: bytes) -> int:
        shard: int = xxh3_64_intdigest(key) & self.mask
        return shard

    def next_turn(self) -> int:
        """Ends the segment of rows without a key; the next one goes to the next shard."""
        self.turn = (self.turn + 1) & self.mask
        return self.turn

    def split(
        self, batch: pa.RecordBatch | pa.Table, chosen: pa.Array | None = None
    ) -> list[tuple[int, pa.RecordBatch, pa.Array | None]]:
        """Rows cut by shard: (shard, its rows in their order, their places in ``batch``).

        Each distinct key is hashed once. If all rows share a shard, they come back unchanged, with None for
        their places. ``chosen`` are the shards that the rows name, null where they name none.
        """
        keys: Any = batch.column("key") if "key" in batch.schema.names else None
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        keyed = self.mask > 0 and keys is not None and keys.null_count < len(keys)
        if not keyed and chosen is None:
            piece = (self.turn, _whole(batch), None)
            self.next_turn()
            return [piece]
        shards: Any = self._shards_of(keys) if keyed else None
        if chosen is not None:
            shards = self._chosen(chosen, shards, keys)
        if not keyed or keys.null_count:
            self.next_turn()
        order = pc.array_sort_indices(shards)  # stable: the rows of a shard keep their order
        runs = pc.run_end_encode(shards.take(order))
        present, ends = runs.values.to_pylist(), runs.run_ends.to_pylist()
        if len(present) == 1:
            return [(present[0], _whole(batch), None)]
        rows = _whole(batch.take(order))
        starts = [0, *ends[:-1]]
        return [
            (shard, rows.slice(start, end - start), order.slice(start, end - start))
            for shard, start, end in zip(present, starts, ends, strict=True)
        ]

    def _chosen(self, chosen: pa.Array, by_key: pa.Array | None, keys: pa.Array | None) -> pa.Array:
        """The shards that rows name, else those of their keys. All messages of a key are in one shard."""
        highest = pc.max(chosen).as_py()
        if highest is not None and highest > self.mask:
            raise SchemaMismatch(f"a row names shard {highest}; the topic has shards 0 to {self.mask}")
        if by_key is None or keys is None:
            return chosen.fill_null(self.turn)
        apart = pc.and_(keys.is_valid(), pc.not_equal(chosen, by_key)).index(True).as_py()
        if apart >= 0:
            raise SchemaMismatch(
                f"a row names shard {chosen[apart]}, and its key belongs to shard {by_key[apart]}",
                hint="Leave the shard of rows with a key null, or leave the key out.",
            )
        return pc.coalesce(chosen, by_key)

    def _shards_of(self, keys: pa.Array) -> pa.Array:
        """The shard of every row."""
        coded = keys.dictionary_encode()
        hashes = map(xxh3_64_intdigest, coded.dictionary.to_pylist())
        by_code = [hashed & self.mask for hashed in hashes]
        shards = pa.array(by_code, pa.uint16()).take(coded.indices)
        return shards.fill_null(self.turn) if shards.null_count else shards


def _whole(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which copies a single one


class NoSharder:
    """Stands for a sharder while the number of shards is not known: rows have no shard."""

    def __init__(self) -> None:
        self.turn: None = None  # of the instance, which is faster to read than of the class

    def of_key(self, key: bytes) -> None:
        return None

    def next_turn(self) -> None:
        return None


class Encoder(Protocol):
    first_segment: int
    """The first segment that it encodes, with empty dictionaries."""

    @property
    def last_segment(self) -> int:
        """The number of the last encoded segment; before that, one below the first."""

    @property
    def typed(self) -> bool: ...

    def encode(self, rows: pa.RecordBatch | bytes) -> tuple[bytes, Any]:
        """The next segment's frame, and the data for a snapshot at it. A fault changes nothing.

        The rows of a plain topic may be a segment already.
        """

    def snapshot(self, redundants: Sequence[Any]) -> bytes:
        """The SNAPSHOT frame at the first of ``redundants``, which are those up to the last segment."""


class PlainEncoder:
    typed = False

    def __init__(self, shard: int, first_segment: int = 0) -> None:
        self.first_segment = first_segment
        self.last_segment = first_segment - 1
        self._shard = shard

    def encode(self, rows: pa.RecordBatch | bytes) -> tuple[bytes, None]:
        lead, body = (b"", rows) if isinstance(rows, bytes) else plain_parts(rows)
        self.last_segment += 1
        parts = frame_parts(FrameType.SEGMENT, lead, body, shard=self._shard, segment=self.last_segment)
        return b"".join(parts), None

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

    def encode(self, rows: pa.RecordBatch | bytes) -> tuple[bytes, Any]:
        segment, redundant = self._encoder.encode(to_rows(rows, self._topic_schema))
        number = segment.key.segment
        return encode(FrameType.SEGMENT, segment.body, shard=self._shard, segment=number), redundant

    def snapshot(self, redundants: Sequence[Any]) -> bytes:
        snapshot = self._encoder.snapshot(redundants)
        return encode(FrameType.SNAPSHOT, snapshot.body, shard=self._shard, segment=snapshot.segment)
