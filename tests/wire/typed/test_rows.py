"""Messages of a typed topic convert to rows and back; a user's table converts to messages or is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest, BadSegment, KeyMissing, SchemaMismatch
from headpond.wire.typed.codec import RowDecoder, RowEncoder
from headpond.wire.typed.rows import from_rows, message_schema, messages_of, row_schema, to_rows

UTC = datetime.UTC
TOPIC = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
    ]
)
NOW_US = 1_700_000_000_000_000
NOW = datetime.datetime.fromtimestamp(NOW_US / 1e6, UTC)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=4),
            "id": st.none() | st.text(max_size=4),
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2),
            "sent_at": st.integers(NOW_US, NOW_US + 2),
            "value": st.fixed_dictionaries(
                {
                    "n": st.integers(-9, 9),
                    "value": st.none() | st.floats(allow_nan=False),
                    "labels": st.none() | st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3))),
                }
            ),
        }
    ),
    min_size=1,
    max_size=9,
)


def one(table: pa.Table | pa.RecordBatch, topic: pa.Schema = TOPIC) -> pa.RecordBatch:
    (found,) = messages_of(table, topic, NOW_US)
    found.validate(full=True)
    assert found.schema.equals(message_schema(topic))
    return found


def table_of(**columns: Any) -> pa.Table:
    return pa.table(columns)


@given(MESSAGES)
@settings(max_examples=60, deadline=None)
def test_messages_come_back_from_rows_that_travelled(messages: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(messages, schema=message_schema(TOPIC))
    rows = to_rows(batch, TOPIC)
    assert rows.schema.equals(row_schema(TOPIC))
    segment, _ = RowEncoder(row_schema(TOPIC), 0).encode(rows)
    assert from_rows(RowDecoder(row_schema(TOPIC)).decode(segment), TOPIC).equals(batch)


@given(MESSAGES, st.integers(0, 8), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_slice_of_messages_becomes_its_own_rows(
    messages: list[dict[str, Any]], begin: int, count: int
) -> None:
    batch = pa.RecordBatch.from_pylist(messages, schema=message_schema(TOPIC)).slice(
        begin % len(messages), count
    )
    assert from_rows(to_rows(batch, TOPIC), TOPIC).equals(batch)


def test_a_message_without_envelope_costs_its_columns_and_a_few_bytes() -> None:
    batch = one(table_of(n=[1], value=[2.5]))
    segment, _ = RowEncoder(row_schema(TOPIC), 0).encode(to_rows(batch, TOPIC))
    assert len(segment.body) < 32


def test_a_time_that_all_messages_share_travels_once() -> None:
    count = 1000
    batch = one(table_of(n=[0] * count))
    segment, _ = RowEncoder(row_schema(TOPIC), 0).encode(to_rows(batch, TOPIC))
    assert len(segment.body) < 40


def test_ids_do_not_fill_a_dictionary() -> None:
    encoder = RowEncoder(row_schema(TOPIC), 0)
    table = pa.table({"n": range(5000), "@id": [f"id-{n}" for n in range(5000)]})
    encoder.encode(to_rows(one(table), TOPIC))
    assert encoder.state_bytes == 0


def test_envelope_columns_may_be_missing_from_messages() -> None:
    batch = one(table_of(n=[1, 2])).select(["sent_at", "value"])
    assert from_rows(to_rows(batch, TOPIC), TOPIC).column("key").null_count == 2


# --- a user's table ---------------------------------------------------------------------------------


def test_the_topics_own_columns_are_enough() -> None:
    found = one(table_of(n=[1, 2], value=[0.5, None]))
    assert found.column("value").to_pylist() == [
        {"n": 1, "value": 0.5, "labels": None},
        {"n": 2, "value": None, "labels": None},
    ]
    assert found.column("sent_at").to_pylist() == [NOW, NOW]
    assert [found.column(name).null_count for name in ("key", "id", "headers")] == [2, 2, 2]


def test_envelope_columns_are_beside_the_topics_own() -> None:
    headers = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    at = pa.array([5], pa.timestamp("us", "UTC"))
    found = one(pa.table({"@sent_at": at, "n": [1], "@key": [b"k"], "@id": ["i"], "@headers": headers}))
    assert found.drop_columns("value").to_pylist() == [
        {
            "key": b"k",
            "id": "i",
            "headers": [("a", "b")],
            "sent_at": datetime.datetime(1970, 1, 1, 0, 0, 0, 5, UTC),
        }
    ]


def test_a_struct_column_value_makes_a_table_of_messages() -> None:
    found = one(table_of(value=[{"value": 1.5, "n": 7}], key=[b"k"]))
    assert found.column("value").to_pylist() == [{"n": 7, "value": 1.5, "labels": None}]
    assert found.column("key").to_pylist() == [b"k"]


def test_a_topic_may_have_a_struct_column_that_is_called_value() -> None:
    topic = pa.schema([("value", pa.struct([("a", pa.int64())]))])
    flat = one(table_of(value=[{"a": 1}]), topic)
    nested = one(table_of(value=[{"value": {"a": 1}}]), topic)
    assert flat.equals(nested)
    assert flat.column("value").to_pylist() == [{"value": {"a": 1}}]


def test_a_missing_time_is_filled_and_a_finer_one_cut() -> None:
    at = pa.array([NOW_US * 1000 + 1, None], pa.timestamp("ns", "Europe/Berlin"))
    assert one(pa.table({"n": [1, 2], "@sent_at": at})).column("sent_at").to_pylist() == [NOW, NOW]


@pytest.mark.parametrize(
    ("given_type", "topic_type", "values"),
    [
        (pa.int8(), pa.int64(), [1, None]),
        (pa.uint32(), pa.int64(), [2**32 - 1, None]),
        (pa.int32(), pa.float64(), [2**31 - 1, None]),
        (pa.float32(), pa.float64(), [0.5, None]),
        (pa.null(), pa.string(), [None, None]),
        (pa.large_string(), pa.string(), ["a", None]),
        (pa.string_view(), pa.string(), ["a", None]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None]),
        (pa.binary_view(), pa.binary(), [b"a", None]),
        (pa.string(), pa.binary(), ["a", None]),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), [NOW.replace(microsecond=0), None]),
        (pa.timestamp("ns"), pa.timestamp("us"), [datetime.datetime(2020, 1, 1), None]),  # noqa: DTZ001
        (pa.list_(pa.int8()), pa.list_(pa.int64()), [[1, None], None]),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16())]), [{"a": 1}, None]),
        (
            pa.map_(pa.large_string(), pa.large_string()),
            pa.map_(pa.string(), pa.string()),
            [[("a", "b")], None],
        ),
    ],
    ids=str,
)
def test_other_layouts_and_narrower_numbers_are_taken(
    given_type: pa.DataType, topic_type: pa.DataType, values: list[Any]
) -> None:
    found = one(pa.table({"c": pa.array(values, given_type)}), pa.schema([("c", topic_type)]))
    column = found.column("value").field(0)
    assert column.type == topic_type
    assert column.equals(pa.array(values, given_type).cast(topic_type))


@pytest.mark.parametrize(
    ("given_type", "topic_type", "value"),
    [
        (pa.int64(), pa.int32(), 1),
        (pa.int64(), pa.float64(), 1),
        (pa.float64(), pa.int64(), 1.0),
        (pa.float64(), pa.float32(), 1.0),
        (pa.string(), pa.int64(), "1"),
        (pa.int64(), pa.string(), 1),
        (pa.binary(), pa.string(), b"a"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), 1),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), 1),
        (pa.struct([("a", pa.string())]), pa.map_(pa.string(), pa.string()), {"a": "b"}),
    ],
    ids=str,
)
def test_a_lossy_cast_is_refused_and_names_the_column(
    given_type: pa.DataType, topic_type: pa.DataType, value: Any
) -> None:
    table = pa.table({"c": pa.array([value], given_type)})
    with pytest.raises(SchemaMismatch) as told:
        messages_of(table, pa.schema([("c", topic_type)]), NOW_US)
    for word in ("'c'", str(given_type), str(topic_type)):
        assert word in told.value.message


NO_TEXT = pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (table_of(value=[1.0]), ("'n' is missing", "int64")),
        (table_of(n=pa.array([None], pa.int64())), ("'n' has 1 nulls", "int64")),
        (table_of(n=[1], other=[1]), ("'other' is not one", "labels")),
        (table_of(value=[{"n": 1, "other": 2}]), ("'other' is not one", "labels")),
        (table_of(value=pa.array([None], pa.struct([("n", pa.int64())]))), ("'value' takes no nulls",)),
        (pa.table([[1], [2]], names=["n", "n"]), ("'n' comes twice",)),
        (pa.table({"n": [1], "@headers": NO_TEXT}), ("'@headers'", "without text")),
        (pa.table({"n": [1], "@id": [b"i"]}), ("'@id' is binary", "string")),
        (pa.table({"n": [1], "@sent_at": [1]}), ("'@sent_at' is int64", "timestamp")),
        (
            pa.table({"n": [1], "@sent_at": pa.array([2**62], pa.timestamp("us", "UTC"))}),
            ("'@sent_at'", "9999"),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "table",
)
def test_a_refused_table_names_the_column_and_the_fault(table: pa.Table, words: tuple[str, ...]) -> None:
    with pytest.raises(SchemaMismatch) as told:
        messages_of(table, TOPIC, NOW_US)
    for word in words:
        assert word in told.value.message


def test_an_envelope_column_by_its_bare_name_beside_flat_columns_gets_a_hint() -> None:
    with pytest.raises(SchemaMismatch) as told:
        messages_of(table_of(n=[1], key=[b"k"]), TOPIC, NOW_US)
    assert "'@key'" in told.value.hint


def test_an_argument_that_is_no_table_is_refused() -> None:
    with pytest.raises(BadRequest):
        messages_of([{"n": 1}], TOPIC, NOW_US)


def test_chunks_become_batches_and_empty_ones_nothing() -> None:
    table = pa.concat_tables([table_of(n=[1]), table_of(n=pa.array([], pa.int64())), table_of(n=[2, 3])])
    assert [batch.num_rows for batch in messages_of(table, TOPIC, NOW_US)] == [1, 2]


def test_a_header_without_text_beside_a_slice_is_not_the_slices_fault() -> None:
    headers = pa.array([[("a", None)], [("a", "b")]], pa.map_(pa.string(), pa.string()))
    table = pa.record_batch({"n": pa.array([1, 2]), "@headers": headers})
    assert one(table.slice(1)).column("headers").to_pylist() == [[("a", "b")]]


# --- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("@id", b"\xff"), ("@headers", [("a", None)]), ("@sent_at", 2**62), ("@sent_at", -(2**62))],
)
def test_rows_that_no_reader_could_show_are_refused(name: str, value: Any) -> None:
    row = {"n": 1, "@sent_at": NOW_US, name: value}
    rows = pa.RecordBatch.from_pylist([row], schema=row_schema(TOPIC))
    with pytest.raises(BadSegment):
        from_rows(rows, TOPIC)


def test_rows_of_other_columns_are_a_mismatch() -> None:
    with pytest.raises(SchemaMismatch):
        from_rows(pa.record_batch({"n": [1]}), TOPIC)
    batch = one(table_of(n=[1]))
    with pytest.raises(SchemaMismatch):
        to_rows(batch, pa.schema([("other", pa.string())]))


LOOSE = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_row_of_nulls_is_a_message_without_value_in_a_state_topic_and_only_there() -> None:
    given = [
        {"key": b"k", "sent_at": NOW, "value": {"a": 1, "b": None}},
        {"key": b"k", "sent_at": NOW, "value": None},
    ]
    batch = pa.RecordBatch.from_pylist(given, schema=message_schema(LOOSE))
    rows = to_rows(batch, LOOSE)
    assert from_rows(rows, LOOSE, state=True).column("value").to_pylist() == [{"a": 1, "b": None}, None]
    assert from_rows(rows, LOOSE).column("value").to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": None}]


def test_a_row_without_a_key_is_none_of_a_state_topic() -> None:
    batch = pa.RecordBatch.from_pylist([{"sent_at": NOW, "value": {"a": 1}}], schema=message_schema(LOOSE))
    with pytest.raises(KeyMissing, match="row 0 of 1"):
        from_rows(to_rows(batch, LOOSE), LOOSE, state=True)
    with pytest.raises(KeyMissing):
        messages_of(pa.table({"a": [1]}), LOOSE, 0, state=True)


def test_a_table_without_a_value_is_refused_where_nothing_can_be_deleted() -> None:
    table = pa.table({"key": [b"k"], "value": pa.array([None], pa.struct(list(LOOSE)))})
    assert messages_of(table, LOOSE, 0, state=True)[0].column("value").to_pylist() == [None]
    with pytest.raises(SchemaMismatch, match="'value'"):
        messages_of(table, LOOSE, 0)
