"""The columns that a typed topic may have, the rows that fit it, and how it may change."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import SchemaMismatch
from headpond.wire.typed.rows import message_schema
from headpond.wire.typed.schema import (
    SCHEMA_BYTES_MAX,
    check_evolves,
    check_fits,
    decode_schema,
    encode_schema,
    fit_messages,
    is_widening,
)

NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
]
TOPIC = pa.schema([pa.field("at", pa.int64(), False), ("value", pa.int32()), ("host", pa.string())])


def extremes(kind: pa.DataType) -> list[float]:
    """The numbers of a type that are hardest to keep exactly."""
    if pa.types.is_floating(kind):
        bits, top = {16: (11, 15), 32: (24, 127), 64: (53, 1023)}[kind.bit_width]
        return [0.1 if bits == 53 else 1 + 2.0 ** (1 - bits), -(2.0**top), float(2**bits - 1)]
    bits = kind.bit_width - (not pa.types.is_unsigned_integer(kind))
    least = 0 if pa.types.is_unsigned_integer(kind) else -(2**bits)
    return [2**bits - 1, least, 2**bits - 2]


@pytest.mark.parametrize(("narrow", "wide"), list(product(NUMBERS, NUMBERS)), ids=str)
def test_a_number_is_wider_exactly_if_it_holds_every_value_of_the_other(
    narrow: pa.DataType, wide: pa.DataType
) -> None:
    values = pa.array(extremes(narrow), narrow)
    try:
        kept = (
            values.cast(wide).cast(narrow).equals(values)
            and values.cast(wide).to_pylist() == values.to_pylist()
        )
    except pa.ArrowInvalid:
        kept = False
    assert is_widening(narrow, wide) == kept


@pytest.mark.parametrize(
    ("narrow", "wide", "is_wider"),
    [
        (pa.decimal128(10, 2), pa.decimal128(12, 2), True),
        (pa.decimal128(10, 2), pa.decimal256(40, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), False),
        (pa.string(), pa.large_string(), False),
        (pa.timestamp("us"), pa.timestamp("ns"), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), False),
        (pa.bool_(), pa.int8(), False),
    ],
    ids=str,
)
def test_other_widenings_are_accepted(narrow: pa.DataType, wide: pa.DataType, is_wider: bool) -> None:
    assert is_widening(narrow, wide) == is_wider


def test_a_schema_travels_without_its_metadata() -> None:
    field = pa.field("a", pa.int32(), metadata={"x": "y"})
    found = decode_schema(encode_schema(pa.schema([field], metadata={"pandas": "{}"})))
    assert found.equals(pa.schema([("a", pa.int32())]), check_metadata=True)


def nested(depth: int) -> pa.DataType:
    return pa.int8() if depth == 0 else pa.list_(nested(depth - 1))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (pa.schema([]), "without columns"),
        (pa.schema([("@key", pa.binary())]), "column '@key'"),
        (pa.schema([("", pa.binary())]), "column ''"),
        (pa.schema([("a", pa.int8()), ("a", pa.int16())]), "column 'a' comes twice"),
        (pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]), "column 'a' is dictionary"),
        (pa.schema([("a", pa.null())]), "column 'a' is null"),
        (pa.schema([("a", pa.string_view())]), "column 'a' is string_view"),
        (pa.schema([("a", pa.struct([]))]), "column 'a' is struct<>"),
        (pa.schema([("a", pa.dense_union([pa.field("x", pa.int8())]))]), "column 'a' is dense_union"),
        (pa.schema([("a", pa.list_(pa.uuid()))]), "column 'a' is extension"),
        (pa.schema([("a", nested(10))]), "column 'a' is nested"),
        (pa.schema([("a", pa.binary(2**30))]), "per row"),
        (pa.schema([("a", pa.list_(pa.int64(), 2**20))]), "per row"),
        (pa.schema([(f"a long name of a column {n}", pa.int8()) for n in range(1000)]), "1000 columns"),
    ],
)
def test_a_schema_that_no_topic_can_have_is_refused_and_the_column_named(schema: pa.Schema, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said) as refused:
        encode_schema(schema)
    assert refused.value.hint


def test_bytes_that_are_no_schema_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="not dict"):
        encode_schema({"a": "int64"})


def test_a_schema_too_long_to_travel_is_not_read() -> None:
    with pytest.raises(SchemaMismatch, match="bytes"):
        decode_schema(bytes(SCHEMA_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (pa.schema([*TOPIC, ("x", pa.float64())]), None),
        (pa.schema([*TOPIC.remove(1), ("value", pa.int64())]), None),
        (TOPIC, None),
        (TOPIC.remove(2), "column 'host' \\(string\\) would be lost"),
        (pa.schema([*TOPIC, pa.field("x", pa.int8(), False)]), "column 'x' is new and takes no nulls"),
        (TOPIC.set(1, pa.field("value", pa.int16())), "column 'value' is int32 and cannot become int16"),
        (TOPIC.set(2, pa.field("host", pa.binary())), "column 'host' is string and cannot become binary"),
        (TOPIC.set(0, pa.field("at", pa.int64())), "column 'at' is int64 not null and cannot become int64"),
        (TOPIC.set(2, pa.field("host", pa.string(), False)), "cannot become string not null"),
    ],
)
def test_a_schema_changes_by_added_nullable_columns_and_wider_numbers_only(
    new: pa.Schema, said: str | None
) -> None:
    if said is None:
        check_evolves(TOPIC, new)
        return
    with pytest.raises(SchemaMismatch, match=said):
        check_evolves(TOPIC, new)


Columns = list[tuple[str, pa.DataType, bool]]
columns = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(NUMBERS), st.booleans()),
    max_size=3,
    unique_by=lambda c: c[0],
)


@settings(max_examples=200)
@given(columns, columns, columns)
def test_rows_that_fitted_a_topic_fit_after_it_evolved(rows: Columns, old: Columns, new: Columns) -> None:
    sender, before, after = (pa.schema([pa.field(*each) for each in columns]) for columns in (rows, old, new))
    try:
        check_fits(sender, before)
        check_evolves(before, after)
    except SchemaMismatch:
        return
    check_fits(sender, after)


def test_fitted_messages_are_widened_and_filled() -> None:
    old = pa.schema([("value", pa.int8()), ("host", pa.string())])
    lines = [{"sent_at": 1, "value": {"value": 1, "host": "h"}}, {"sent_at": 2, "value": None}]
    batch = pa.RecordBatch.from_pylist(lines, schema=message_schema(old))
    new = pa.schema([("added", pa.list_(pa.string())), ("host", pa.string()), ("value", pa.float64())])
    for cut in (batch, batch.slice(1)):
        fitted = fit_messages(cut, new)
        fitted.validate(full=True)
        assert fitted.schema.equals(message_schema(new))
        values = [{"added": None, "host": "h", "value": 1.0}, None][-len(cut) :]
        assert fitted.column("value").to_pylist() == values
        assert fit_messages(fitted, new) is fitted
