"""The bytes of a typed topic's segments and snapshots; what travels and why is in typed.

A segment's body, little endian::

    form u8 = 3 | 0 u8 | leaves u16 | rows u32 | base u32[leaves] | zeros to a multiple of 8 | IPC messages

``base`` is the length of the leaf's dictionary before this segment, or 2**32 - 1 if the leaf is plain in it.
The messages are Arrow's own, encapsulated: a **delta dictionary** for each leaf that gained values, in leaf
order, then one record batch. A snapshot's body is the Arrow schema message and one dictionary message for each
leaf that is not plain. So a snapshot followed by the messages of its segments is an Arrow IPC stream, up to the
segment where a leaf goes plain. No body is compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import BadSegment, SchemaMismatch, SegmentTooLarge
from penstock.model.identity import SegmentKey
from penstock.wire.frame import SEGMENT_BYTES_MAX
from penstock.wire.ipc_claims import dictionary_claims, message_bytes, record_batch_claims
from penstock.wire.leaves import (
    CODED,
    INDEX,
    TEXT,
    Leaf,
    check_schema,
    leaf_array,
    leaves_of,
    replace_leaves,
    topic_schema,
    wire_schema,
)

LEAF_VALUES_MAX: Final = 64 * 1024
LEAF_BYTES_MAX: Final = 1024 * 1024
STATE_BYTES_MAX: Final = 6 * 1024 * 1024
DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""How large the rows of a segment may be once decoded: an index of two bytes may stand for a text of 1 MiB."""

FORM_TYPED: Final = 3
PLAIN: Final = -1
"""In the place of a dictionary's length: the leaf has none, its texts travel as they are."""

HEADER = struct.Struct("<BBHI")
PLAIN_BASE = 2**32 - 1
OFFSET_BYTES = 4
ARROW_FAULTS: Final = (pa.ArrowException, ValueError, OSError, EOFError, IndexError, struct.error)
FILLER: Final = pa.array([""], TEXT)
_DELTAS: Final = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows as they travel; ``key`` goes into the frame's header."""

    key: SegmentKey
    body: bytes


@dataclass(frozen=True, slots=True)
class Redundant:
    """What a snapshot at a segment needs besides the encoder: each leaf's length before it, or ``PLAIN``."""

    segment: int
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decoder needs to begin at ``segment``."""

    segment: int
    body: bytes


def pack_header(lengths: Sequence[int], rows: int) -> bytes:
    head = HEADER.pack(FORM_TYPED, 0, len(lengths), rows)
    bases = (PLAIN_BASE if length == PLAIN else length for length in lengths)
    head += struct.pack(f"<{len(lengths)}I", *bases)
    return head + bytes(-len(head) % 8)


class Form:
    """Writes the messages of one schema.

    Arrow's writer makes delta dictionaries only inside a stream, and only behind one that is not empty. So each
    segment is written as the second batch of a stream whose first has no rows and dictionaries of one value,
    ``FILLER``. The bytes of that **beginning** are always the same; they are left out of the segment and put in
    front of it again to read it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        check_schema(schema)
        self.schema = schema
        self.leaves = leaves_of(schema)
        self._plain: Sequence[bool] | None = None
        self._empty: pa.RecordBatch | None = None
        self._beginning = b""

    def beginning(self, plain: Sequence[bool]) -> tuple[pa.RecordBatch, bytes]:
        """The batch without rows, and the bytes of a stream up to its end; kept, for leaves seldom go plain."""
        if self._plain != plain:
            self._empty = self._without_rows(plain, dict.fromkeys(self.leaves, FILLER))
            self._beginning = bytes(_stream(self._empty))
            self._plain = plain
        return self._empty, self._beginning

    def write_segment(self, batch: pa.RecordBatch, plain: Sequence[bool]) -> bytes:
        """A delta for each dictionary of ``batch`` that goes on behind ``FILLER``, and the record batch."""
        empty, beginning = self.beginning(plain)
        return bytes(_stream(empty, batch).slice(len(beginning)))

    def write_snapshot(self, plain: Sequence[bool], known: Mapping[Leaf, pa.Array]) -> bytes:
        """The schema and the dictionaries of the leaves that are not plain."""
        stream = _stream(self._without_rows(plain, known))
        *_, last = messages_in(stream)
        return bytes(stream.slice(0, stream.size - message_bytes(last)))

    def _without_rows(self, plain: Sequence[bool], known: Mapping[Leaf, pa.Array]) -> pa.RecordBatch:
        """No rows, with the dictionaries given."""
        none = pa.array([], INDEX)
        arrays = {
            leaf: pa.DictionaryArray.from_arrays(none, known[leaf])
            for leaf, is_plain in zip(self.leaves, plain, strict=True)
            if not is_plain
        }
        empty = pa.RecordBatch.from_pylist([], schema=self.schema)
        return replace_leaves(empty, wire_schema(self.schema, plain), arrays)


def _stream(*batches: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, batches[0].schema, options=_DELTAS)
    for batch in batches:
        writer.write_batch(batch)
    return sink.getvalue()


def messages_in(buffer: pa.Buffer) -> Iterator[pa.Message]:
    """The messages that fill a buffer, without their bodies copied."""
    reader = pa.BufferReader(buffer)
    while (at := reader.tell()) < buffer.size:
        message = pa.ipc.read_message(reader)
        if message_bytes(message) != reader.tell() - at:
            raise BadSegment("a message in another framing than Arrow's present one")
        yield message


# --- what arrives ------------------------------------------------------------------------------------


def check_messages(buffer: pa.Buffer, dictionaries: int, rows: int) -> None:
    """Delta dictionaries of rising ids, then one record batch, none compressed; before Arrow reads a body."""
    last_id = -1
    ended = False
    for message in messages_in(buffer):
        if ended:
            raise BadSegment("a message behind the record batch")
        if message.type == "dictionary":
            claims = dictionary_claims(message)
            if not (claims.delta and last_id < claims.id < dictionaries):
                raise BadSegment(f"a dictionary {claims.id} out of place")
            last_id = claims.id
            batch = claims.batch
            _check_dictionary(batch.rows, message.body.size)
        else:
            batch = record_batch_claims(message, message_bytes(message))
            ended = True
            if batch.rows != rows:
                raise BadSegment(f"a segment of {rows:,} rows whose batch claims {batch.rows:,}")
        if batch.compressed:
            raise BadSegment("a segment whose batch is compressed")
    if not ended:
        raise BadSegment("a segment without a record batch")


def _check_dictionary(values: int, body_bytes: int) -> None:
    if not 0 <= values <= LEAF_VALUES_MAX or values * OFFSET_BYTES > body_bytes:
        raise BadSegment(f"a dictionary of {body_bytes:,} bytes that claims {values:,} values")


def read_snapshot(body: bytes, expected: pa.Schema | None) -> tuple[Form, list[bool], list[pa.Array]]:
    """A snapshot's form, which of its leaves are plain, and the dictionaries of the others."""
    if len(body) > SEGMENT_BYTES_MAX:
        raise SegmentTooLarge(f"a snapshot of {len(body):,} bytes")
    messages = list(messages_in(pa.py_buffer(body)))
    if not messages or messages[0].type != "schema":
        raise BadSegment("a snapshot without a schema")
    wire = pa.ipc.read_schema(messages[0])
    form = Form(topic_schema(wire))
    if expected is not None and not form.schema.equals(expected):
        raise SchemaMismatch(f"a snapshot of {shown(form.schema)}; the topic has {shown(expected)}")
    plain = [_wire_type(wire, leaf) != CODED for leaf in form.leaves]
    if not wire.equals(wire_schema(form.schema, plain)):
        raise BadSegment("a snapshot whose schema is not one of a typed topic")
    _check_snapshot_dictionaries(messages[1:], plain.count(False))
    empty, _ = form.beginning(plain)
    batch = pa.ipc.open_stream(pa.py_buffer(body + bytes(empty.serialize()))).read_next_batch()
    coded = (leaf for leaf, is_plain in zip(form.leaves, plain, strict=True) if not is_plain)
    return form, plain, [checked_dictionary(leaf_array(batch, leaf)) for leaf in coded]


def _check_snapshot_dictionaries(messages: list[pa.Message], count: int) -> None:
    if len(messages) != count:
        raise BadSegment(f"a snapshot with {len(messages)} dictionaries of {count}")
    for place, message in enumerate(messages):
        claims = dictionary_claims(message)
        if claims.delta or claims.id != place or claims.batch.compressed:
            raise BadSegment(f"a dictionary {claims.id} out of place")
        _check_dictionary(claims.batch.rows, message.body.size)


def checked_dictionary(coded: pa.Array) -> pa.Array:
    """A leaf's dictionary as it arrived, after full validation."""
    words = coded.dictionary
    words.validate(full=True)
    if words.null_count:
        raise BadSegment("a dictionary with a null")
    return words


def _wire_type(wire: pa.Schema, leaf: Leaf) -> pa.DataType:
    kind = wire.field(leaf.column).type
    if leaf.part == "column":
        return kind
    return kind.key_type if leaf.part == "key" else kind.item_type


def dictionary_bytes(words: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(words)).as_py() or 0) + OFFSET_BYTES * len(words)


def null_fault(rows: pa.RecordBatch, schema: pa.Schema) -> str:
    """What is wrong where a column that takes no nulls has one; empty if nothing is."""
    for field, column in zip(schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            return f"column {field.name!r} takes no nulls and has {column.null_count}"
    return ""


def shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
