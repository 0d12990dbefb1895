"""Stored records of a typed topic decode unchanged, or are refused before memory is allocated."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from headpond.model.errors import BadSegment, SegmentTooLarge, StorageFailed
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.ipc import fold, unfolded_bytes
from headpond.wire.plain.segment import encode_plain
from headpond.wire.typed import record as typed_record
from headpond.wire.typed.record import (
    HEADER,
    HEADER_BYTES,
    decode_typed_record,
    encode_typed_record,
    fill_messages,
    stored_rows,
    version_of,
)
from headpond.wire.typed.rows import message_schema
from headpond.wire.typed.schema import encode_schema
from headpond.wire.typed.versions import SchemaVersions

FIRST = pa.schema([("at", pa.timestamp("us", "UTC")), ("x", pa.float64())])
SECOND = pa.schema(
    [*FIRST, ("labels", pa.map_(pa.string(), pa.string())), ("s", pa.struct([("a", pa.binary())]))]
)
VERSIONS = SchemaVersions([encode_schema(FIRST), encode_schema(SECOND)])
PLAIN = encode_plain(rows_to_batch([b"x"], None, None, None, [1]))


def batch(rows: int, schema: pa.Schema = SECOND, **envelope: Any) -> pa.RecordBatch:
    value = {"at": 5, "x": 0.5, "labels": [("host", "a" * 20)], "s": {"a": b"\xff"}}
    own = {name: value[name] for name in schema.names}
    lines = [{"sent_at": number, **envelope, "value": own} for number in range(rows)]
    return pa.RecordBatch.from_pylist(lines, schema=message_schema(schema))


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("envelope", [{}, {"key": b"k"}, {"key": b"k", "id": "i", "headers": [("h", "t")]}])
def test_rows_are_read_back_as_they_were(rows: int, envelope: dict[str, Any]) -> None:
    messages = batch(rows, **envelope)
    record = encode_typed_record(messages, 2)
    found = decode_typed_record(record, VERSIONS)
    assert fill_messages(found, message_schema(SECOND)).equals(messages)
    assert version_of(record) == 2
    assert len(found.schema) == 2 + len(envelope), "what is all null is left out"


def test_a_record_is_compressed_where_that_makes_it_smaller() -> None:
    few, many = encode_typed_record(batch(1), 2), encode_typed_record(batch(1000), 2)
    assert len(many) < batch(1000).nbytes // 2
    message = pa.ipc.read_message(pa.py_buffer(many).slice(HEADER_BYTES))
    assert unfolded_bytes(message) > message.body.size
    assert len(few) < 2000


def test_a_reader_takes_zstd_too() -> None:
    messages = batch(100)
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, messages.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")).write_batch(
        messages
    )
    message = bytes(sink.getvalue())[messages.schema.serialize().size :]
    record = HEADER.pack(4, 0b11111, 2, 100) + message
    assert decode_typed_record(record, VERSIONS).equals(messages)


def test_a_slice_is_stored_without_its_neighbours() -> None:
    whole = batch(1000)
    record = encode_typed_record(whole.slice(500, 2), 2)
    assert len(record) < 2500
    assert decode_typed_record(record, VERSIONS).column("sent_at").equals(whole.column("sent_at").slice(500, 2))


def test_nan_is_stored_although_it_is_unlike_itself() -> None:
    lines = [{"sent_at": 1, "value": {"at": None, "x": float("nan")}}] * 2
    messages = pa.RecordBatch.from_pylist(lines, schema=message_schema(FIRST))
    found = decode_typed_record(encode_typed_record(messages, 1), VERSIONS)
    assert str(found.column("value")[0].as_py()["x"]) == "nan"


def test_a_record_that_does_not_read_back_as_its_rows_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = batch(100)
    other = messages.set_column(3, "sent_at", pa.array([7] * 100, messages.schema.field("sent_at").type))
    monkeypatch.setattr(typed_record, "fold", lambda rows: fold(other.select(rows.schema.names)))
    with pytest.raises(StorageFailed):
        encode_typed_record(messages, 2)


def test_rows_above_the_bound_are_refused() -> None:
    with pytest.raises(SegmentTooLarge):
        encode_typed_record(batch(1, key=b"k" * (49 * 2**20)), 2)


def test_a_version_that_is_not_known_is_refused_with_a_hint() -> None:
    only = SchemaVersions(VERSIONS.encoded[:1])
    with pytest.raises(BadSegment, match="schema version 2; 1 are known"):
        decode_typed_record(encode_typed_record(batch(1), 2), only)
    with pytest.raises(BadSegment, match="version 0"):
        decode_typed_record(encode_typed_record(batch(1), 0), only)


def test_plain_and_typed_records_are_distinguished() -> None:
    typed = encode_typed_record(batch(1), 2)
    assert stored_rows(typed, VERSIONS).num_rows == stored_rows(PLAIN, None).num_rows == 1
    for segment, schemas in ((typed, None), (PLAIN, VERSIONS), (b"", VERSIONS), (b"\x04", VERSIONS)):
        with pytest.raises(BadSegment):
            stored_rows(segment, schemas)


# --- bytes from anyone --------------------------------------------------------------------------------


def first_folded(record: bytes) -> int:
    """Where the first size of a compressed buffer stands."""
    message = pa.ipc.read_message(pa.py_buffer(record).slice(HEADER_BYTES))
    return HEADER_BYTES + 8 + int(message.metadata.size)


@pytest.mark.parametrize("claim", [2**62, 2**40, 97 * 2**20, -2, -(2**63)])
def test_a_record_that_unfolds_to_too_much_is_refused_before_allocation(claim: int) -> None:
    record = bytearray(encode_typed_record(batch(1000), 2))
    struct.pack_into("<q", record, first_folded(bytes(record)), claim)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(BadSegment, match="unfold"):
        decode_typed_record(bytes(record), VERSIONS)
    assert pa.default_memory_pool().max_memory() - before < 2**20
