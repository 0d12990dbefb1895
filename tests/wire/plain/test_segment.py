"""Plain segments are small, decode unchanged, and are safe to decode whatever the bytes are."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest, BadSegment, SchemaMismatch, SegmentTooLarge
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.plain.columns import PLAIN_SCHEMA, rows_to_batch, table_to_batches
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, FORM_BARE, HEADER
from headpond.wire.plain.segment import (
    FOLD_BYTES_MIN,
    FORM_FOLDED,
    FORM_IPC,
    decode_plain,
    encode_plain,
)
from headpond.wire.typed.record import fill_messages

NOW = 1_700_000_000_000_000
BYTES = st.none() | st.binary(max_size=20)
TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
ROW = st.tuples(
    BYTES, BYTES, st.none() | TEXT, st.none() | st.dictionaries(TEXT, TEXT, max_size=3), st.integers(0, 2**50)
)


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    values, keys, ids, headers, sent_at = (list(column) for column in zip(*rows, strict=True))
    return rows_to_batch(values, keys, ids, headers, sent_at)


def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return fill_messages(batch, PLAIN_SCHEMA)


def full_rows(count: int) -> pa.RecordBatch:
    """Rows with every column, some of them null."""
    return batch_of(
        [
            (
                None if n % 5 == 4 else b"v" * (n % 7),
                None if n % 3 == 2 else b"k%d" % n,
                None if n % 4 == 3 else f"i-{n}",
                None if n % 3 == 1 else {"a": f"{n}", "ü": ""},
                NOW + n,
            )
            for n in range(count)
        ]
    )


def value_rows(count: int, size: int) -> pa.RecordBatch:
    return rows_to_batch([b"x" * size] * count, None, None, None, [NOW] * count)


SMALL = encode_plain(full_rows(9))
LARGE = encode_plain(full_rows(300))
FOLDED = encode_plain(full_rows(600))
FORMS = pytest.mark.parametrize("data", [SMALL, LARGE, FOLDED], ids=["bare", "ipc", "folded"])


def ipc_segment(batch: pa.RecordBatch, mask: int, *, rows: int | None = None, options: Any = None) -> bytes:
    """A segment of form 1 around any batch, as a hostile producer would make it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    *_, last = pa.ipc.MessageReader.open_stream(sink.getvalue())
    message: bytes = last.serialize().to_pybytes()
    return HEADER.pack(FORM_IPC, mask, 0, 0, batch.num_rows if rows is None else rows) + message


# --- forms and sizes --------------------------------------------------------------------------------


@given(st.lists(ROW, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_rows_are_read_back_as_written(rows: list[tuple[Any, ...]]) -> None:
    batch = batch_of(rows)
    data = encode_plain(batch)
    assert filled(decode_plain(data)).equals(batch)
    assert decode_plain(data).num_rows == len(rows)


@given(st.lists(ROW, min_size=1, max_size=12), st.data())
@settings(max_examples=100, deadline=None)
def test_a_slice_carries_its_own_rows_and_no_others(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - start))
    piece = batch_of(rows).slice(start, count)
    encoded = encode_plain(piece)
    assert filled(decode_plain(encoded)).equals(piece)
    assert len(encoded) == len(encode_plain(batch_of(rows[start : start + count])))


def test_a_large_slice_is_rebased_too() -> None:
    batch = full_rows(3000)
    piece = batch.slice(1001, 1200)
    assert filled(decode_plain(encode_plain(piece))).equals(piece)


def test_small_segments_are_bare_larger_ones_ipc_and_large_ones_folded() -> None:
    assert encode_plain(value_rows(1, BARE_BYTES_MAX - 100))[0] == FORM_BARE
    assert encode_plain(value_rows(1, BARE_BYTES_MAX + 100))[0] == FORM_IPC
    assert encode_plain(value_rows(1, FOLD_BYTES_MIN + 100))[0] == FORM_FOLDED
    assert (SMALL[0], LARGE[0], FOLDED[0]) == (FORM_BARE, FORM_IPC, FORM_FOLDED)


@pytest.mark.parametrize("columns", range(8))
def test_one_message_costs_at_most_64_bytes_over_its_payload(columns: int) -> None:
    keys = [b"key-1"] if columns & 1 else None
    ids = ["id-01"] if columns & 2 else None
    headers = [{"h": "text"}] if columns & 4 else None
    payload = 100 + 5 * columns.bit_count()
    batch = rows_to_batch([b"v" * 100], keys, ids, headers, [NOW])
    overhead = len(encode_plain(batch)) - payload
    assert overhead == 24 + 8 * (columns & 1) + 4 * (columns & 2) + 6 * (columns & 4)


def test_the_bare_form_has_the_documented_bytes() -> None:
    batch = rows_to_batch([b"ab", None], None, ["x", "yz"], [{"n": "t"}, {}], [7, 8])
    assert encode_plain(batch) == b"".join(
        (
            bytes([2, 0b11101, 0b00001, 0]) + struct.pack("<I", 2),
            struct.pack("<2q", 7, 8),
            struct.pack("<3i", 0, 2, 2),
            struct.pack("<3i", 0, 1, 3),
            struct.pack("<3i", 0, 1, 1),
            struct.pack("<2i", 0, 1),
            struct.pack("<2i", 0, 1),
            b"\x01",
            b"ab" + b"xyz" + b"n" + b"t",
        )
    )


def test_the_ipc_form_is_arrows_message_behind_eight_bytes() -> None:
    batch = pa.ipc.read_record_batch(pa.py_buffer(LARGE)[8:], PLAIN_SCHEMA)
    assert batch.equals(full_rows(300))


def test_columns_that_are_all_null_are_left_out_and_filled_in_again() -> None:
    batch = rows_to_batch([b"a", b"b"], [None, None], None, [None, None], [1, 2])
    decoded = decode_plain(encode_plain(batch))
    assert decoded.schema.names == ["value", "sent_at"]
    assert filled(decoded).schema == PLAIN_SCHEMA
    assert filled(decoded).column("key").null_count == 2


def test_a_batch_of_deletes_has_no_values() -> None:
    data = encode_plain(rows_to_batch([None], [b"k"], None, None, [1]))
    assert filled(decode_plain(data)).to_pydict()["value"] == [None]


def test_columns_may_come_in_any_order() -> None:
    batch = full_rows(5)
    turned = batch.select(batch.schema.names[::-1])
    assert decode_plain(encode_plain(turned)).equals(batch)


def test_decoded_bytes_are_not_copied() -> None:
    data = encode_plain(rows_to_batch([random.Random(1).randbytes(1_000_000)], None, None, None, [NOW]))
    buffer = decode_plain(data).column("value").buffers()[2]
    start = pa.py_buffer(data).address
    assert start < buffer.address < start + len(data)


def test_bytes_at_an_odd_address_are_read_all_the_same() -> None:
    for data in (SMALL, LARGE, FOLDED):
        shifted = memoryview(b"?" + data)[1:]
        batch = decode_plain(shifted)
        assert batch.equals(decode_plain(data))
        assert batch.column("sent_at").buffers()[1].address % 8 == 0


# --- what cannot be encoded -------------------------------------------------------------------------


def test_a_segment_above_the_limit_is_refused() -> None:
    with pytest.raises(SegmentTooLarge):
        encode_plain(value_rows(1, SEGMENT_BYTES_MAX))
    with pytest.raises(SegmentTooLarge):
        decode_plain(bytes(SEGMENT_BYTES_MAX + 1))


def test_a_batch_without_rows_is_refused() -> None:
    with pytest.raises(BadSegment):
        encode_plain(full_rows(3).slice(0, 0))


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"value": pa.array([b"a"])}),
        pa.record_batch({"value": pa.array([b"a"]), "sent_at": pa.array([None], PLAIN_SCHEMA.field(4).type)}),
        pa.record_batch({"value": pa.array(["a"]), "sent_at": pa.array([1], PLAIN_SCHEMA.field(4).type)}),
        pa.record_batch({"other": pa.array(["a"]), "sent_at": pa.array([1], PLAIN_SCHEMA.field(4).type)}),
    ],
)
def test_other_columns_are_a_schema_mismatch(batch: pa.RecordBatch) -> None:
    with pytest.raises(SchemaMismatch):
        encode_plain(batch)


@pytest.mark.parametrize(
    ("column", "arguments"),
    [
        ("value", ([1], None, None, None, [1])),
        ("key", ([b"a"], [1.5], None, None, [1])),
        ("id", ([b"a"], None, [5], None, [1])),
        ("id", ([b"a"], None, ["\ud800"], None, [1])),
        ("headers", ([b"a"], None, None, [{"a": 1}], [1])),
        ("sent_at", ([b"a"], None, None, None, [2**64])),
        ("columns", ([b"a"], [b"a", b"b"], None, None, [1])),
    ],
)
def test_rows_that_arrow_cannot_take_are_a_bad_request(column: str, arguments: Any) -> None:
    with pytest.raises(BadRequest, match=column):
        rows_to_batch(*arguments)


def test_a_header_without_text_is_a_schema_mismatch() -> None:
    batch = rows_to_batch([b"a"], None, None, [{"a": None}], [1])  # type: ignore[dict-item]
    with pytest.raises(SchemaMismatch, match="header"):
        encode_plain(batch)


# --- what arrives -----------------------------------------------------------------------------------


@FORMS
def test_a_segment_cut_short_or_with_more_behind_it_is_refused(data: bytes) -> None:
    for length in {*range(200), *range(len(data) - 100, len(data))}:
        with pytest.raises(BadSegment):
            decode_plain(data[: min(length, len(data) - 1)])
    for extra in (b"\0", b"\0" * 8, data):
        with pytest.raises(BadSegment):
            decode_plain(data + extra)


@FORMS
@pytest.mark.parametrize(
    ("at", "value"), [(0, 0), (0, 3), (1, 0), (1, 0b01111), (1, 0xFF), (2, 0x80), (2, 0x10), (3, 1), (4, 0)]
)
def test_a_wrong_header_is_refused(data: bytes, at: int, value: int) -> None:
    altered = bytearray(data)
    altered[at] = value
    if at == 4:
        altered[4:8] = bytes(4)
    with pytest.raises(BadSegment):
        decode_plain(bytes(altered))


@FORMS
@pytest.mark.parametrize("rows", [1, 8, 10, 299, 301, 599, 601, 2**31 - 1, 2**32 - 1])
def test_a_wrong_row_count_is_refused(data: bytes, rows: int) -> None:
    with pytest.raises(BadSegment):
        decode_plain(data[:4] + struct.pack("<I", rows) + data[8:])


def bare(columns: int, nulls: int, rows: int, *parts: bytes) -> bytes:
    return HEADER.pack(FORM_BARE, columns, nulls, 0, rows) + b"".join(parts)


@pytest.mark.parametrize(
    "data",
    [
        bare(0b10001, 0, 1, struct.pack("<qii", 1, 0, 2**31 - 1), b"ab"),
        bare(0b10001, 0, 1, struct.pack("<qii", 1, 0, -1), b"ab"),
        bare(0b10001, 0, 1, struct.pack("<qii", 1, 1, 2), b"ab"),
        bare(0b10001, 0, 2, struct.pack("<qqiii", 1, 1, 0, 5, 2), b"ab"),
        bare(0b10001, 0, 2, struct.pack("<qqiii", 1, 1, 0, -5, 2), b"ab"),
        bare(0b10100, 0, 1, struct.pack("<qii", 1, 0, 2), b"\xff\xfe"),
        bare(0b11000, 0, 1, struct.pack("<qii", 1, 0, 2**31 - 1)),
        bare(0b11000, 0, 1, struct.pack("<qiiiiii", 1, 0, 1, 0, 1, 0, 1), b"\xffx"),
        bare(0b10000, 0, 1, struct.pack("<q", 2**62)),
        bare(0b10000, 0, 1, struct.pack("<q", -(2**62))),
    ],
    ids=[
        "wild",
        "negative",
        "not-from-0",
        "falling",
        "below-0",
        "utf8",
        "entries",
        "header-utf8",
        "late",
        "early",
    ],
)
def test_buffers_that_contradict_themselves_are_refused(data: bytes) -> None:
    with pytest.raises(BadSegment):
        decode_plain(data)


def test_the_years_1_to_9999_are_taken() -> None:
    for when in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        micros = (when - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
        batch = rows_to_batch([b"a"], None, None, None, [micros])
        assert decode_plain(encode_plain(batch)).column("sent_at")[0].as_py() == when


def test_an_ipc_segment_of_a_valid_batch_is_taken_at_any_size() -> None:
    assert decode_plain(ipc_segment(full_rows(2), 0b11111)).equals(full_rows(2))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_before_it_unfolds(codec: str) -> None:
    bomb = value_rows(1, 100_000_000)
    data = ipc_segment(bomb, 0b10001, options=pa.ipc.IpcWriteOptions(compression=codec))
    assert len(data) < SEGMENT_BYTES_MAX
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(BadSegment, match="compressed"):
        decode_plain(data)
    assert pa.total_allocated_bytes() == before
    assert pa.default_memory_pool().max_memory() == peak


TIMES = pa.array([1, 2], PLAIN_SCHEMA.field(4).type)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"value": pa.array([b"a", b"b"])}),
        pa.record_batch({"value": pa.array([1, 2]), "sent_at": TIMES}),
        pa.record_batch({"value": pa.array(["a", "b"]).dictionary_encode(), "sent_at": TIMES}),
        pa.record_batch({"value": pa.array([{"x": 1}, {"x": 2}]), "sent_at": TIMES}),
        pa.record_batch({"value": pa.array([b"a", b"b"]), "sent_at": pa.array([1, None], TIMES.type)}),
        pa.record_batch({"value": pa.array([b"a", b"b"]), "more": pa.array([b"a", b"b"]), "sent_at": TIMES}),
        pa.record_batch({"value": pa.array([b"a", b"b"]), "sent_at": pa.array([2**62, 1], TIMES.type)}),
    ],
    ids=["missing", "ints", "dictionary", "struct", "null-time", "more", "late"],
)
def test_an_ipc_batch_of_another_schema_is_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(BadSegment):
        decode_plain(ipc_segment(batch, 0b10001))


def test_an_ipc_header_with_a_null_text_is_refused() -> None:
    headers = pa.array([[("a", None)], None], PLAIN_SCHEMA.field(3).type)
    with pytest.raises(BadSegment, match="header"):
        decode_plain(ipc_segment(pa.record_batch({"headers": headers, "sent_at": TIMES}), 0b11000))


@pytest.mark.parametrize("node", range(8))
@pytest.mark.parametrize("nulls", [1, 3, 4, -1, 2**62])
def test_a_null_count_that_is_not_so_is_refused(node: int, nulls: int) -> None:
    """Arrow ends the whole process over a map array with null keys or entries, so none may be built."""
    batch = batch_of([(b"v", b"k", "i", {"a": "b"}, n) for n in range(3)])
    data = bytearray(ipc_segment(batch, 0b11111))
    nodes = data.index(struct.pack("<16q", *[3, 0] * 8))
    struct.pack_into("<q", data, nodes + 16 * node + 8, nulls)
    with pytest.raises(BadSegment):
        decode_plain(bytes(data))


def test_a_message_that_is_no_batch_is_refused() -> None:
    schema = PLAIN_SCHEMA.serialize().to_pybytes()
    with pytest.raises(BadSegment, match="schema where a record batch"):
        decode_plain(HEADER.pack(FORM_IPC, 0b11111, 0, 0, 1) + schema)


# --- a user's table ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(1),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_a_table_may_have_its_bytes_in_any_layout(kind: pa.DataType) -> None:
    texts = pa.array(["a", None, "c"])
    column = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(pa.binary()).cast(kind)
    (batch,) = table_to_batches(pa.table({"value": column, "key": column}), NOW, 10_000)
    assert batch.column("value").to_pylist() == [b"a", None, b"c"]
    assert batch.column("key").equals(batch.column("value"))
    assert batch.column("sent_at").cast(pa.int64()).to_pylist() == [NOW] * 3
    assert decode_plain(encode_plain(batch)).equals(batch)


def test_a_table_may_have_every_column() -> None:
    table = pa.table(
        {
            "sent_at": pa.array([1_000_000_999, None], pa.timestamp("ns", tz="Europe/Berlin")),
            "headers": pa.array([[("a", "b")], None], pa.map_(pa.large_string(), pa.string())),
            "id": pa.array(["x", None], pa.large_string()),
            "key": pa.array([None, None]),
            "value": [b"1", b"2"],
        }
    )
    (batch,) = table_to_batches(table, NOW, 10_000)
    assert batch.schema == PLAIN_SCHEMA
    assert batch.column("sent_at").cast(pa.int64()).to_pylist() == [1_000_000, NOW]
    assert batch.drop_columns("sent_at").to_pylist() == [
        {"value": b"1", "key": None, "id": "x", "headers": [("a", "b")]},
        {"value": b"2", "key": None, "id": None, "headers": None},
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [b"a"]}, "'value' is missing; it must be binary or string"),
        ({"value": [b"a"], "color": [1]}, "'color' is unknown; a plain topic has value, key, id"),
        ({"value": [1]}, "'value' is int64; it must be binary or string"),
        ({"value": [b"a"], "id": [b"a"]}, "'id' is binary; it must be string"),
        ({"value": [b"a"], "headers": [{"a": "b"}]}, "'headers' is struct<a: string>; it must be map"),
        ({"value": [b"a"], "sent_at": [datetime(2020, 1, 1)]}, "'sent_at' is .*a time zone"),  # noqa: DTZ001
        ({"value": [b"a"], "sent_at": pa.array([2**40], pa.timestamp("s", "UTC"))}, "'sent_at': .*9999"),
    ],
)
def test_a_refused_table_names_the_column_and_the_allowed_types(columns: Any, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        table_to_batches(pa.table(columns), NOW, 10_000)


def test_a_column_may_not_come_twice() -> None:
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"a"])], names=["value", "value"])
    with pytest.raises(SchemaMismatch, match="twice"):
        table_to_batches(table, NOW, 10_000)


def test_text_that_is_not_utf8_is_refused_at_home() -> None:
    ids = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(SchemaMismatch, match="'id'"):
        table_to_batches(pa.table({"value": [b"a"], "id": ids}), NOW, 10_000)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(1, 5), st.integers(100, 5000))
@settings(max_examples=60, deadline=None)
def test_a_table_is_cut_into_batches_of_about_the_target(sizes: list[int], chunks: int, target: int) -> None:
    values = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    table = pa.concat_tables([pa.table({"value": values})] * chunks)
    batches = table_to_batches(table, NOW, target)
    assert [v.as_py() for batch in batches for v in batch.column("value")] == values * chunks
    assert all(batch.num_rows == 1 or batch.nbytes <= 2 * target for batch in batches)
    assert all(batch.num_rows >= 1 for batch in batches)


def test_cutting_does_not_copy_the_values() -> None:
    column = pa.array([b"x" * 1000] * 100)
    batches = table_to_batches(pa.table({"value": column}), NOW, 10_000)
    assert len(batches) > 5
    assert {batch.column("value").buffers()[2].address for batch in batches} == {column.buffers()[2].address}


def test_a_row_that_fits_no_segment_is_too_large() -> None:
    with pytest.raises(SegmentTooLarge):
        table_to_batches(pa.table({"value": [b"a", bytes(SEGMENT_BYTES_MAX)]}), NOW, 10_000)


def test_rows_just_below_the_limit_can_all_be_encoded() -> None:
    table = pa.table({"value": [bytes(SEGMENT_BYTES_MAX - 5000)] * 2, "key": [b"k"] * 2, "id": ["i"] * 2})
    batches = table_to_batches(table, NOW, 64 * 1024 * 1024)
    assert [decode_plain(encode_plain(batch)).num_rows for batch in batches] == [1, 1]


def test_an_empty_table_gives_no_batches() -> None:
    assert table_to_batches(pa.table({"value": pa.array([], pa.binary())}), NOW, 10_000) == []
    assert table_to_batches(full_rows(2).slice(0, 0), NOW, 10_000) == []


def test_a_record_batch_is_taken_as_a_table_is() -> None:
    (batch,) = table_to_batches(full_rows(4), NOW, 10_000)
    assert batch.equals(full_rows(4))
