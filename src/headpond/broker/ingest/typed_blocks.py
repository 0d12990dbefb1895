"""Typed blocks: encoder state in, self-contained records out.

A typed segment can be decoded only after those before it, or after a snapshot:

1. ``SNAPSHOT k`` replaces the decoder of its block and shard, whatever k is. Segment 0 needs none.
2. A segment that was admitted before is decoded only for the decoder's state.
3. If there is no decoder, or it expects another segment, the answer is ``snapshot``: the sender sends one.
4. A segment that cannot be read leaves the decoder as it was. If the next one says that its encoder learned
   nothing in between, the decoder continues; otherwise the answer is ``snapshot``.

The records have the topic's newest schema: numbers widened, missing columns null.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from headpond.broker.catalog.topics import Topic
from headpond.broker.session import BlockContext, Session
from headpond.model.errors import BadSegment, HeadpondError, SchemaMismatch, SegmentTooLarge, SnapshotNeeded
from headpond.model.identity import SegmentKey
from headpond.wire.frame import Frame
from headpond.wire.typed.codec import RowDecoder
from headpond.wire.typed.form import Snapshot, TypedSegment
from headpond.wire.typed.record import ROWS_BYTES_MAX, encode_typed_record
from headpond.wire.typed.rows import from_rows, row_schema
from headpond.wire.typed.schema import check_fits, decode_schema, fit_messages, shown_schema
from headpond.wire.typed.versions import SchemaVersions

DECODER_COST_BYTES = 32 * 1024
"""What a decoder costs beside its dictionaries: the forms of its schema."""


class DecoderKey(NamedTuple):
    connection: int
    block: bytes
    shard: int


class Decoders:
    """One decoder per connection, block and shard, within bounds.

    A decoder has the state of its producer's encoder, so the producer decides how much memory it takes. There
    is a bound for each connection and one for all; past it the least recently used decoder is dropped, and its
    sender must send a snapshot to continue. The decoder in use stays: ``wire/typed`` bounds it.
    """

    def __init__(self, *, connection_bytes_max: int, bytes_max: int) -> None:
        self._connection_bytes_max = connection_bytes_max
        self._bytes_max = bytes_max
        self._held: OrderedDict[DecoderKey, tuple[RowDecoder, int]] = OrderedDict()
        """The one used longest ago first, with the bytes it was counted with."""
        self._by_connection: dict[int, int] = {}
        self.bytes = 0

    def get(self, key: DecoderKey) -> RowDecoder | None:
        found = self._held.get(key)
        return found[0] if found is not None else None

    def keep(self, key: DecoderKey, decoder: RowDecoder) -> int:
        """Counts a decoder that is new or has learned; returns how many others had to go for it."""
        self.drop(key)
        size = DECODER_COST_BYTES + decoder.state_bytes
        self._held[key] = (decoder, size)
        self._count(key.connection, size)
        dropped = 0
        while self._by_connection[key.connection] > self._connection_bytes_max:
            oldest = next(other for other in self._held if other.connection == key.connection)
            if oldest == key:
                break
            self.drop(oldest)
            dropped += 1
        while self.bytes > self._bytes_max and (oldest := next(iter(self._held))) != key:
            self.drop(oldest)
            dropped += 1
        return dropped

    def drop(self, key: DecoderKey) -> None:
        found = self._held.pop(key, None)
        if found is not None:
            self._count(key.connection, -found[1])

    def drop_block(self, connection: int, block: bytes) -> None:
        """A connection has ended or replaced a block."""
        if connection in self._by_connection:
            for key in [key for key in self._of(connection) if key.block == block]:
                self.drop(key)

    def drop_connection(self, connection: int) -> None:
        if connection in self._by_connection:
            for key in list(self._of(connection)):
                self.drop(key)

    def _of(self, connection: int) -> Iterator[DecoderKey]:
        return (key for key in self._held if key.connection == connection)

    def _count(self, connection: int, size: int) -> None:
        self.bytes += size
        held = self._by_connection.get(connection, 0) + size
        if held:
            self._by_connection[connection] = held
        else:
            self._by_connection.pop(connection, None)

    def __len__(self) -> int:
        return len(self._held)


def judge_schema(topic: Topic, encoded: bytes | None) -> tuple[pa.Schema | None, SchemaMismatch | None]:
    """The schema of a block, and why the topic cannot take it if it cannot."""
    if topic.schemas is None:
        if encoded is None:
            return None, None
        return None, SchemaMismatch(
            f"topic {topic.shown} is plain; it takes no typed rows",
            hint="Open the producer again, or create a typed topic of another name.",
        )
    newest = topic.schemas.newest
    if encoded is None:
        return None, SchemaMismatch(f"topic {topic.shown} is typed and takes rows of {shown_schema(newest)}")
    try:
        schema = decode_schema(encoded)
        check_fits(schema, newest)
    except SchemaMismatch as error:
        return None, SchemaMismatch(f"topic {topic.shown}: {error.message}", hint=error.hint)
    return schema, None


class TypedBlocks:
    def __init__(self, counters: Counter[str], *, connection_bytes_max: int, bytes_max: int) -> None:
        self._counters = counters
        self.decoders = Decoders(connection_bytes_max=connection_bytes_max, bytes_max=bytes_max)

    def on_snapshot(self, session: Session, context: BlockContext, frame: Frame) -> bool:
        """Takes the state of a decoder; returns whether it could be read.

        After an unreadable one there is no decoder, and the answer to the next segment says why.
        """
        assert context.schema is not None
        key = DecoderKey(session.connection, context.block, frame.shard)
        self.decoders.drop(key)
        try:
            decoder = RowDecoder.from_snapshot(Snapshot(frame.segment, frame.body), row_schema(context.schema))
        except HeadpondError as error:
            self._counters[f"snapshots_refused_{error.code}"] += 1
            context.snapshot_faults[frame.shard] = f"the snapshot that came cannot be used: {error.message}"
            return False
        context.snapshot_faults.pop(frame.shard, None)
        self._counters["snapshots"] += 1
        self._keep(key, decoder)
        return True

    def take(
        self, session: Session, context: BlockContext, frame: Frame, schemas: SchemaVersions, *, state: bool
    ) -> tuple[bytes, int]:
        """The record of a segment that is to be stored, and its rows.

        ``SnapshotNeeded`` if it cannot be decoded here; any other error is a fault of the segment.
        """
        assert context.schema is not None
        key = DecoderKey(session.connection, context.block, frame.shard)
        decoder = self._decoder(key, context, frame.segment)
        rows = self._decode(key, decoder, frame)
        if rows.num_rows * schemas.row_bytes > ROWS_BYTES_MAX:
            raise SegmentTooLarge(
                f"{rows.num_rows:,} rows that take over {ROWS_BYTES_MAX:,} bytes in the topic's columns"
            )
        try:
            messages = from_rows(rows, context.schema, state=state)
            return encode_typed_record(fit_messages(messages, schemas.newest), schemas.version), rows.num_rows
        except (pa.ArrowException, ValueError) as error:
            raise BadSegment(f"rows that cannot be stored: {error}") from error

    def learn(self, session: Session, context: BlockContext, frame: Frame) -> None:
        """Decodes a segment that is stored already, for the decoder's state."""
        key = DecoderKey(session.connection, context.block, frame.shard)
        decoder = self.decoders.get(key)
        if decoder is None and frame.segment > 0:
            return  # the sender of the next segment is asked for a snapshot
        if frame.segment == 0 or (decoder is not None and decoder.next_segment == frame.segment):
            try:
                self._decode(key, self._decoder(key, context, frame.segment), frame)
            except HeadpondError:
                return

    def _decoder(self, key: DecoderKey, context: BlockContext, segment: int) -> RowDecoder:
        """The decoder that expects a segment."""
        assert context.schema is not None
        decoder = self.decoders.get(key)
        if decoder is None or decoder.next_segment != segment:
            if segment == 0:
                return RowDecoder(row_schema(context.schema))
            why = f"{decoder.next_segment} comes next" if decoder is not None else "earlier ones are unknown"
            why = context.snapshot_faults.get(key.shard, why)
            raise SnapshotNeeded(f"segment {segment} came, and {why}")
        return decoder

    def _decode(self, key: DecoderKey, decoder: RowDecoder, frame: Frame) -> pa.RecordBatch:
        try:
            rows = decoder.decode(TypedSegment(SegmentKey(frame.shard, frame.segment), frame.body))
        except SnapshotNeeded:
            self.decoders.drop(key)
            raise
        except HeadpondError:
            # The decoder is as it was. The next segment says how much its encoder knew: if the decoder knows
            # as much, it missed nothing.
            decoder.next_segment = frame.segment + 1
            self._keep(key, decoder)
            raise
        self._keep(key, decoder)
        return rows

    def _keep(self, key: DecoderKey, decoder: RowDecoder) -> None:
        dropped = self.decoders.keep(key, decoder)
        if dropped:
            self._counters["decoders_dropped"] += dropped
