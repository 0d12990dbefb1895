"""Hostile typed segments and snapshots: a fault is found before memory is allocated and changes no state."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headpond.model.errors import BadSegment, SchemaMismatch, SnapshotNeeded
from headpond.model.identity import SegmentKey
from headpond.wire.typed import form as typed_form
from headpond.wire.typed.codec import RowDecoder, RowEncoder
from headpond.wire.typed.form import NULLS, Snapshot, TypedSegment, pack_ints, varint
from headpond.wire.typed.leaves import ColumnForm
from tests.wire.typed.samples import SCHEMA, TEXTS, encode_all, some_rows, texts

ENCODER, SEGMENTS, REDUNDANTS = encode_all([some_rows(n) for n in range(3)])
SNAPSHOTS = [ENCODER.snapshot(REDUNDANTS[k:]) for k in range(3)]


def test_a_segment_out_of_order_asks_for_a_snapshot_and_changes_nothing() -> None:
    decoder = RowDecoder(SCHEMA)
    decoder.decode(SEGMENTS[0])
    for wrong in (SEGMENTS[0], SEGMENTS[2]):
        with pytest.raises(SnapshotNeeded):
            decoder.decode(wrong)
    assert decoder.decode(SEGMENTS[1]).equals(some_rows(1))


def test_a_repeated_segment_asks_for_a_snapshot_even_with_equal_dictionaries() -> None:
    _, segments, _ = encode_all([texts("a")] * 3)
    decoder = RowDecoder(TEXTS)
    for segment in segments[:2]:
        decoder.decode(segment)
    with pytest.raises(SnapshotNeeded):
        decoder.decode(segments[1])


def test_a_segment_of_another_state_asks_for_a_snapshot() -> None:
    decoder = RowDecoder(SCHEMA)
    with pytest.raises(SnapshotNeeded):
        decoder.decode(replace(SEGMENTS[1], key=SegmentKey(3, 0)))


def test_a_snapshot_of_another_schema_is_a_mismatch() -> None:
    with pytest.raises(SchemaMismatch):
        RowDecoder.from_snapshot(SNAPSHOTS[0], TEXTS)


def test_a_failed_decode_leaves_the_decoder_as_it_was() -> None:
    decoder = RowDecoder.from_snapshot(SNAPSHOTS[1], SCHEMA)
    before = decoder.state_bytes
    body = bytearray(SEGMENTS[1].body)
    at = body.index(b"job-1")
    body[at] = 0xFF
    with pytest.raises(BadSegment):
        decoder.decode(replace(SEGMENTS[1], body=bytes(body)))
    assert decoder.state_bytes == before
    assert decoder.decode(SEGMENTS[1]).equals(some_rows(1))


# --- bodies made by hand ------------------------------------------------------------------------------

LABELS = pa.schema([("labels", pa.map_(pa.string(), pa.string()))])
NUMBERS = pa.schema([("n", pa.int64())])
NONE = varint(0) + varint(0)
"""A gain of nothing, by a dictionary that knows nothing."""


def body(rows: int, *parts: bytes) -> bytes:
    return b"\3" + varint(rows) + b"".join(parts)


def gain(*words: bytes, base: int = 0) -> bytes:
    return varint(base) + varint(len(words)) + pack_ints([len(word) for word in words]) + b"".join(words)


def pair(name: int, text: int) -> bytes:
    return struct.pack("<HH", name, text)


def one_set(words: bytes, *, names: bytes = gain(b"a"), texts: bytes = gain(b"x")) -> bytes:
    return body(1, bytes((ColumnForm.SETS,)), names, texts, gain(words), pack_ints([0]))


def coded(*indices: int, words: bytes = gain(b"a", b"b")) -> bytes:
    return body(len(indices), bytes((ColumnForm.CODED,)), words, pack_ints(indices))


def ipc(kind: pa.DataType, rows: int, array: pa.Array, **options: Any) -> tuple[pa.Schema, bytes]:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], names=[""])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1].serialize().to_pybytes()
    return pa.schema([("a", kind)]), body(rows, bytes((ColumnForm.IPC,)), varint(len(message)), message)


def test_bodies_made_by_hand_are_as_the_encoder_makes_them() -> None:
    assert RowEncoder(TEXTS, 0).encode(texts("a", "b"))[0].body == coded(0, 1)
    labels = pa.RecordBatch.from_pylist([{"labels": [("a", "x"), ("a", None)]}], schema=LABELS)
    assert RowEncoder(LABELS, 0).encode(labels)[0].body == one_set(pair(0, 0) + pair(0, 2**16 - 1))
    lists = pa.list_(pa.int8())
    schema, made = ipc(lists, 2, pa.array([[1], []], lists))
    batch = pa.RecordBatch.from_arrays([pa.array([[1], []], lists)], schema=schema)
    assert RowEncoder(schema, 0).encode(batch)[0].body == made


LISTS = pa.list_(pa.int8())
MALFORMED: dict[str, tuple[pa.Schema, bytes]] = {
    "empty": (TEXTS, b""),
    "no rows": (TEXTS, body(0, b"\0")),
    "another form": (TEXTS, b"\2" + coded(0)[1:]),
    "no column": (TEXTS, body(1)),
    "a byte behind the end": (TEXTS, coded(0) + b"\0"),
    "a way that is none": (TEXTS, body(1, b"\x0f")),
    "the way of another type": (TEXTS, body(1, bytes((ColumnForm.INTS,)), pack_ints([1]))),
    "absent with a bitmap": (TEXTS, body(1, bytes((ColumnForm.ABSENT | NULLS,)), b"\1")),
    "an index past the dictionary": (TEXTS, coded(2)),
    "an index below zero": (TEXTS, coded(-1)),
    "a dictionary that is not text": (TEXTS, coded(0, words=gain(b"\xff"))),
    "more words than bytes": (TEXTS, body(1, bytes((ColumnForm.CODED,)), varint(0), varint(9), b"\1\0")),
    "too many words": (TEXTS, coded(0, words=varint(0) + varint(2**16) + pack_ints([0]))),
    "lengths below zero": (TEXTS, body(2, bytes((ColumnForm.TEXTS,)), pack_ints([-1, 2]), b"a")),
    "lengths that are wide": (TEXTS, body(2, bytes((ColumnForm.TEXTS,)), pack_ints([0, 2**40]), b"a")),
    "lengths past the end": (TEXTS, body(2, bytes((ColumnForm.TEXTS,)), pack_ints([1, 5]), b"ab")),
    "text that is not text": (TEXTS, body(1, bytes((ColumnForm.TEXTS,)), pack_ints([1]), b"\xff")),
    "integers of three bytes": (NUMBERS, body(1, bytes((ColumnForm.INTS,)), b"\3\0", b"abc")),
    "eight bytes from a base": (NUMBERS, body(1, bytes((ColumnForm.INTS,)), b"\x08\2", bytes(8))),
    "integers past 64 bits": (NUMBERS, body(2, bytes((ColumnForm.INTS,)), b"\1", varint(2**64 - 2), b"\0\1")),
    "a number without end": (NUMBERS, body(1, bytes((ColumnForm.INTS,)), b"\0", b"\xff" * 20)),
    "integers that do not fit": (
        pa.schema([("n", pa.int32())]),
        body(1, bytes((ColumnForm.INTS,)), pack_ints([2**31])),
    ),
    "half a label": (LABELS, one_set(b"abc")),
    "a name that is not known": (LABELS, one_set(pair(1, 0))),
    "a text that is not known": (LABELS, one_set(pair(0, 1))),
    "a name where there is none": (LABELS, one_set(pair(0, 0), names=NONE)),
    "a set that is not known": (LABELS, body(1, bytes((ColumnForm.SETS,)), NONE, NONE, NONE, pack_ints([0]))),
    "parts in a wrong way": (
        LABELS,
        body(1, bytes((ColumnForm.LABELS,)), pack_ints([1]), b"\2", pack_ints([1])),
    ),
    "a null name": (
        LABELS,
        body(
            1,
            bytes((ColumnForm.LABELS,)) + pack_ints([1]),
            bytes((ColumnForm.TEXTS | NULLS,)) + b"\0" + pack_ints([0]),
            bytes((ColumnForm.TEXTS,)) + pack_ints([0]),
        ),
    ),
    "compressed": ipc(LISTS, 99, pa.array([[1] * 99] * 99, LISTS), compression="zstd"),
    "a list of what is not text": ipc(pa.list_(pa.string()), 1, pa.array([[b"\xff"]], pa.list_(pa.binary()))),
    "a decimal past its digits": (
        pa.schema([("n", pa.decimal128(2))]),
        body(1, bytes((ColumnForm.FIXED,)), b"\xff" * 15 + b"\1"),
    ),
    "another type": ipc(LISTS, 1, pa.array([1.0])),
    "another length": ipc(LISTS, 2, pa.array([[1]], LISTS)),
    "a null where none may be": (pa.schema([pa.field("n", pa.int64(), nullable=False)]), body(1, b"\0")),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_segment_is_refused_and_changes_nothing(fault: str) -> None:
    schema, made = MALFORMED[fault]
    decoder = RowDecoder(schema)
    with pytest.raises(BadSegment):
        decoder.decode(TypedSegment(SegmentKey(0, 0), made))
    assert (decoder.next_segment, decoder.state_bytes) == (0, 0)


def test_values_that_come_twice_in_a_dictionary_do_no_harm() -> None:
    twice = coded(0, 1, words=gain(b"a", b"a"))
    assert RowDecoder(TEXTS).decode(TypedSegment(SegmentKey(0, 0), twice)).column(0).to_pylist() == ["a", "a"]


def test_a_dictionary_for_a_leaf_that_has_gone_plain_asks_for_a_snapshot() -> None:
    decoder = RowDecoder(TEXTS)
    decoder.decode(TypedSegment(SegmentKey(0, 0), body(1, bytes((ColumnForm.TEXTS,)), pack_ints([1]), b"a")))
    with pytest.raises(SnapshotNeeded):
        decoder.decode(TypedSegment(SegmentKey(0, 1), coded(0)))


LONG = b"x" * 1_000_000
EMPTY_LISTS = pa.schema([("n", pa.list_(pa.int64(), 1000))])
WIDE_SET = pair(0, 0) * 200_000
BOMBS: dict[str, tuple[pa.Schema, bytes]] = {
    "texts": (TEXTS, body(100_000, bytes((ColumnForm.CODED,)), gain(LONG), pack_ints([0]))),
    "texts, each index sent": (
        TEXTS,
        body(2_000, bytes((ColumnForm.CODED,)), gain(LONG, b"x"), pack_ints([0] * 1_999 + [1])),
    ),
    "texts of no bytes": (TEXTS, body(2**40, bytes((ColumnForm.TEXTS,)), pack_ints([0]))),
    "numbers": (NUMBERS, body(2**40, bytes((ColumnForm.INTS,)), pack_ints([7]))),
    "nulls": (NUMBERS, body(2**30, b"\0")),
    "wide nulls": (EMPTY_LISTS, body(2**16, b"\0")),
    "sets": (
        LABELS,
        body(1_000, bytes((ColumnForm.SETS,)), gain(b"a"), gain(b"x"), gain(WIDE_SET), pack_ints([0])),
    ),
    "texts in a set": (
        LABELS,
        body(1, bytes((ColumnForm.SETS,)), gain(b"a"), gain(LONG), gain(WIDE_SET), pack_ints([0])),
    ),
    "labels of no bytes": (
        LABELS,
        body(
            1,
            bytes((ColumnForm.LABELS,)) + pack_ints([2**31 - 1]),
            bytes((ColumnForm.CODED,)) + gain(b"a") + pack_ints([0]),
            bytes((ColumnForm.CODED,)) + gain(b"x") + pack_ints([0]),
        ),
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_few_bytes_that_unfold_to_gigabytes_are_refused_before_they_do(bomb: str) -> None:
    schema, made = BOMBS[bomb]
    decoder = RowDecoder(schema)
    pool = pa.default_memory_pool()
    pool.release_unused()
    peak = pool.max_memory()
    with pytest.raises(BadSegment, match="unfolds"):
        decoder.decode(TypedSegment(SegmentKey(0, 0), made))
    assert pool.max_memory() - max(peak, pool.bytes_allocated()) < 16_000_000
    assert decoder.state_bytes == 0


def test_rows_at_the_limit_are_still_taken() -> None:
    long = "x" * 1_000_000
    encoder, decoder = RowEncoder(TEXTS, 0), RowDecoder(TEXTS)
    for count in (1, 33):
        assert decoder.decode(encoder.encode(texts(*[long] * count))[0]).num_rows == count


@pytest.mark.parametrize("body", [SNAPSHOTS[2].body[:-8], SNAPSHOTS[2].body * 2, b"", b"\0" * 64])
def test_a_malformed_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(BadSegment):
        RowDecoder.from_snapshot(Snapshot(0, body), SCHEMA)


def snapshot_of(schema: pa.Schema, *leaves: bytes) -> Snapshot:
    message = schema.serialize().to_pybytes()
    return Snapshot(0, struct.pack("<BI", 5, len(message)) + message + b"".join(leaves))


def test_a_snapshot_made_by_hand_is_as_the_encoder_makes_it() -> None:
    assert snapshot_of(TEXTS, b"\0" + NONE) == RowEncoder(TEXTS, 0).snapshot([])


@pytest.mark.parametrize(
    ("schema", "leaves"),
    [
        (TEXTS, [b"\2"]),
        (TEXTS, [b"\0" + gain(b"a", base=1)]),
        (TEXTS, [b"\0" + gain(b"\xff")]),
        (LABELS, [b"\0" + gain(b"a"), b"\0" + gain(b"x"), b"\0" + gain(pair(0, 1))]),
        (LABELS, [b"\0" + gain(b"a"), b"\1", b"\0" + NONE]),
    ],
    ids=["kind", "base", "not-text", "unknown-text", "sets-without-texts"],
)
def test_a_snapshot_with_faulty_dictionaries_is_refused(schema: pa.Schema, leaves: list[bytes]) -> None:
    with pytest.raises(BadSegment):
        RowDecoder.from_snapshot(snapshot_of(schema, *leaves), schema)


def test_a_snapshot_above_the_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, _, _ = encode_all([texts(*map(str, range(100)))])
    monkeypatch.setattr(typed_form, "LEAF_VALUES_MAX", 99)
    with pytest.raises(BadSegment):
        RowDecoder.from_snapshot(encoder.snapshot([]), TEXTS)
    monkeypatch.undo()
    monkeypatch.setattr(typed_form, "LEAF_BYTES_MAX", 99)
    with pytest.raises(BadSegment):
        RowDecoder.from_snapshot(encoder.snapshot([]), TEXTS)
    monkeypatch.undo()
    monkeypatch.setattr(typed_form, "STATE_BYTES_MAX", 99)
    with pytest.raises(BadSegment):
        RowDecoder.from_snapshot(encoder.snapshot([]), TEXTS)
