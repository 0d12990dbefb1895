"""Typed segments: a decoder with the snapshot at k decodes k, k + 1, … as encoded; its state stays bounded."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadSegment, SchemaMismatch, SegmentTooLarge
from headpond.model.identity import SegmentKey
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.typed import columns as typed_write
from headpond.wire.typed import dictionaries as typed_labels
from headpond.wire.typed import dictionaries as typed_words
from headpond.wire.typed import form as typed_form
from headpond.wire.typed.codec import RowDecoder, RowEncoder
from headpond.wire.typed.form import PLAIN
from tests.wire.typed.samples import BATCHES, SCHEMA, TEXTS, Rows, batch_of, encode_all, some_rows, texts

UTC = datetime.UTC
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "decimal": (pa.decimal128(6, 2), st.integers(-999_999, 999_999).map(lambda n: decimal.Decimal(n) / 100)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "duration": (pa.duration("ms"), st.integers(-(2**40), 2**40)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=9)),
    "text": (pa.string(), st.text(max_size=9)),
    "large": (pa.large_string(), st.text(max_size=9)),
    "view": (pa.string_view(), st.text(max_size=30)),
    "list": (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=3), max_size=3)),
    "sizes": (pa.map_(pa.string(), pa.int32()), st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)))),
    "labels": (
        pa.map_(pa.string(), pa.string()),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.text())),
    ),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.string())]), st.fixed_dictionaries({"b": st.text()})),
    "null": (pa.null(), st.none()),
}


@pytest.fixture(params=["few", "many"], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few values take another path than many; each test goes both."""
    if request.param == "many":
        for module in (typed_form, typed_labels, typed_words, typed_write):
            monkeypatch.setattr(module, "FEW", 0)


# --- reading back -----------------------------------------------------------------------------------


@given(BATCHES)
@settings(max_examples=60, deadline=None)
def test_a_decoder_from_the_snapshot_at_any_segment_reads_on_from_there(
    rows: Rows,
) -> None:
    batches = [batch_of(part) for part in rows]
    encoder, segments, redundants = encode_all(batches)
    for k in range(len(batches) + 1):
        decoder = RowDecoder.from_snapshot(encoder.snapshot(redundants[k:]), SCHEMA)
        assert decoder.next_segment == k
        for segment, batch in zip(segments[k:], batches[k:], strict=True):
            decoded = decoder.decode(segment)
            assert decoded.equals(batch)
            assert decoded.schema.equals(SCHEMA, check_metadata=True)
        assert decoder.state_bytes == encoder.state_bytes


@given(BATCHES)
@settings(max_examples=30, deadline=None)
def test_a_decoder_without_a_snapshot_starts_at_segment_0(rows: Rows) -> None:
    batches = [batch_of(part) for part in rows]
    _, segments, _ = encode_all(batches)
    decoder = RowDecoder(SCHEMA)
    assert [decoder.decode(segment) for segment in segments] == batches


@given(BATCHES)
@settings(max_examples=30, deadline=None)
def test_undoing_segments_gives_the_snapshot_that_was_true_before_them(
    rows: Rows,
) -> None:
    encoder = RowEncoder(SCHEMA, 0)
    taken, redundants = [], []
    for part in rows:
        taken.append(encoder.snapshot([]))
        redundants.append(encoder.encode(batch_of(part))[1])
    assert [encoder.snapshot(redundants[k:]) for k in range(len(rows))] == taken


def test_segments_are_numbered_from_0_in_their_shard() -> None:
    encoder, segments, redundants = encode_all([some_rows(n) for n in range(3)])
    assert [segment.key for segment in segments] == [SegmentKey(3, 0), SegmentKey(3, 1), SegmentKey(3, 2)]
    assert [redundant.segment for redundant in redundants] == [0, 1, 2]
    assert encoder.last_segment == 2
    assert RowEncoder(SCHEMA, 3).last_segment == -1


def test_a_text_travels_once() -> None:
    encoder = RowEncoder(TEXTS, 0)
    first, _ = encoder.encode(texts("a long text that comes again"))
    again, redundant = encoder.encode(texts("a long text that comes again"))
    assert b"a long text" in first.body
    assert b"a long text" not in again.body
    assert redundant.lengths == (1,)


def test_label_names_and_texts_travel_once() -> None:
    encoder, segments, _ = encode_all([some_rows(7), some_rows(7)])
    assert b"job-7" in segments[0].body
    assert b"job-7" not in segments[1].body
    assert encoder.snapshot([]).body.count(b"job-7") == 1


def test_a_slice_teaches_only_its_own_words() -> None:
    batch = batch_of(
        [
            {"host": w, "labels": [(w, w)], "value": 0.0, "inner": None, "region": w}
            for w in ("aaaa", "bbbb", "cccc")
        ]
    )
    for piece in (batch.slice(1, 1), batch.slice(0, 1)):
        encoder = RowEncoder(SCHEMA, 0)
        segment, _ = encoder.encode(piece)
        assert RowDecoder(SCHEMA).decode(segment).equals(piece)
        assert b"cccc" not in segment.body + encoder.snapshot([]).body


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_type_comes_back(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    schema = pa.schema([("a", kind), ("n", pa.int8())])
    columns = st.lists(st.none() | values, min_size=1, max_size=20) | st.lists(values, min_size=1, max_size=20)
    given_columns = data.draw(st.lists(columns, min_size=1, max_size=3))
    batches = [
        pa.RecordBatch.from_arrays([pa.array(c, kind), pa.array([1] * len(c), pa.int8())], schema=schema)
        for c in given_columns
    ]
    _, segments, _ = encode_all(batches)
    decoder = RowDecoder(schema)
    for segment, batch in zip(segments, batches, strict=True):
        decoded = decoder.decode(segment)
        decoded.validate(full=True)
        assert decoded.equals(batch)


@given(
    st.lists(st.none() | st.integers(-5, 5), min_size=3, max_size=40), st.integers(0, 20), st.integers(1, 20)
)
@settings(max_examples=50, deadline=None)
def test_a_slice_of_any_columns_comes_back(numbers: list[int | None], begin: int, count: int) -> None:
    begin = begin % len(numbers)
    batch = pa.RecordBatch.from_pylist(
        [
            {"n": n, "b": None if n is None else n > 0, "t": str(n), "l": None if n == 1 else [("n", str(n))]}
            for n in numbers
        ],
        schema=pa.schema(
            [("n", pa.int64()), ("b", pa.bool_()), ("t", pa.string()), ("l", pa.map_(pa.string(), pa.string()))]
        ),
    ).slice(begin, count)
    _, segments, _ = encode_all([batch])
    assert RowDecoder(batch.schema).decode(segments[0]).equals(batch)


def test_bytes_under_a_null_are_not_encoded() -> None:
    hidden = pa.array(["secret", "seen"])
    column = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\2"), *hidden.buffers()[1:]])
    batch = pa.record_batch({"text": column, "bytes": column.view(pa.binary())})
    _, segments, _ = encode_all([batch])
    assert b"secret" not in segments[0].body
    assert RowDecoder(batch.schema).decode(segments[0]).column(0).to_pylist() == [None, "seen"]


def test_a_column_that_is_all_null_costs_one_byte() -> None:
    schema = pa.schema([("n", pa.int64()), *((f"c{i}", kind) for i, (kind, _) in enumerate(KINDS.values()))])
    few_columns = pa.schema([schema.field(0)])
    sizes = [
        len(encode_all([pa.RecordBatch.from_pylist([{"n": 7}] * 500, schema=wanted)])[1][0].body)
        for wanted in (few_columns, schema)
    ]
    assert sizes[1] == sizes[0] + len(KINDS)


def test_a_column_of_equal_values_travels_as_one() -> None:
    kinds = [pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.map_(pa.string(), pa.string())]
    one = [pa.scalar(2**60, kinds[0]), pa.scalar(2**60, kinds[0]).cast(kinds[1]), pa.scalar("x" * 40)]
    labels = pa.array([[("a", "b")]] * 1000, kinds[3])
    batch = pa.record_batch({"n": pa.repeat(one[0], 1000), "t": pa.repeat(one[1], 1000), "l": labels})
    batch = batch.append_column("s", pa.repeat(one[2], 1000))
    _, segments, _ = encode_all([batch])
    assert len(segments[0].body) < 120
    assert RowDecoder(batch.schema).decode(segments[0]).equals(batch)


def test_an_encoder_can_start_at_any_segment_number() -> None:
    encoder = RowEncoder(TEXTS, 2, first_segment=7)
    assert encoder.last_segment == 6
    at_7 = encoder.snapshot([])
    segment, redundant = encoder.encode(texts("a"))
    assert (segment.key, redundant) == (SegmentKey(2, 7), typed_form.Redundant(7, (0,)))
    assert encoder.snapshot([redundant]) == at_7
    assert RowDecoder.from_snapshot(at_7, TEXTS).decode(segment).equals(texts("a"))


def test_a_schema_without_texts_needs_no_state() -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3])})
    encoder, segments, redundants = encode_all([batch])
    assert (encoder.state_bytes, redundants[0].lengths) == (0, ())
    assert (
        RowDecoder.from_snapshot(encoder.snapshot(redundants), batch.schema).decode(segments[0]).equals(batch)
    )


def test_a_snapshot_asks_for_the_redundants_up_to_the_last_segment() -> None:
    encoder, _, redundants = encode_all([some_rows(n) for n in range(3)])
    for wrong in (redundants[:2], redundants[:1], [redundants[0], redundants[2]], [*redundants, redundants[2]]):
        with pytest.raises(ValueError, match="without a gap"):
            encoder.snapshot(wrong)


# --- bounds -----------------------------------------------------------------------------------------


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches in a few rows, for both sides."""
    monkeypatch.setattr(typed_form, "LEAF_VALUES_MAX", 8)
    monkeypatch.setattr(typed_form, "LEAF_BYTES_MAX", 100)
    monkeypatch.setattr(typed_form, "STATE_BYTES_MAX", 150)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("word", ["{}", "{:040d}"], ids=["values", "bytes"])
def test_a_leaf_that_passes_its_bound_goes_plain_for_good(word: str) -> None:
    batches = [texts(word.format(n), word.format(n + 1), None) for n in range(0, 24, 2)] + [texts("0")]
    encoder, segments, redundants = encode_all(batches)
    assert redundants[-1].lengths == (PLAIN,)
    assert redundants[0].lengths == (0,)
    plain_from = [redundant.lengths for redundant in redundants].index((PLAIN,))
    assert all(redundant.lengths == (PLAIN,) for redundant in redundants[plain_from:])
    assert encoder.state_bytes == 0
    for k in range(len(batches) + 1):
        decoder = RowDecoder.from_snapshot(encoder.snapshot(redundants[k:]), TEXTS)
        assert [decoder.decode(segment) for segment in segments[k:]] == batches[k:]
        assert decoder.state_bytes == 0


@pytest.mark.usefixtures("small_bounds")
@given(BATCHES)
@settings(max_examples=60, deadline=None)
def test_leaves_that_go_plain_one_by_one_are_read_from_any_snapshot(rows: Rows) -> None:
    batches = [batch_of(part) for part in rows]
    encoder, segments, redundants = encode_all(batches)
    for k in range(len(batches) + 1):
        decoder = RowDecoder.from_snapshot(encoder.snapshot(redundants[k:]), SCHEMA)
        assert [decoder.decode(segment) for segment in segments[k:]] == batches[k:]
        assert decoder.state_bytes <= 150


@pytest.mark.usefixtures("small_bounds")
def test_all_leaves_together_have_a_bound() -> None:
    schema = pa.schema([(name, pa.string()) for name in "abcd"])
    batch = pa.RecordBatch.from_pylist([dict.fromkeys("abcd", "x" * 60)], schema=schema)
    encoder = RowEncoder(schema, 0)
    _, _ = encoder.encode(batch)
    _, redundant = encoder.encode(batch)
    assert redundant.lengths == (1, 1, PLAIN, PLAIN)


def test_a_full_dictionary_has_65_535_values() -> None:
    encoder = RowEncoder(TEXTS, 0)
    first, _ = encoder.encode(texts(*map(str, range(65_535))))
    second, redundant = encoder.encode(texts("65534", "0"))
    assert redundant.lengths == (65_535,)
    _, redundant = encoder.encode(texts("one more"))
    _, after = encoder.encode(texts("0"))
    assert (redundant.lengths, after.lengths) == ((65_535,), (PLAIN,))
    decoder = RowDecoder(TEXTS)
    assert decoder.decode(first).num_rows == 65_535
    assert decoder.decode(second).column(0).to_pylist() == ["65534", "0"]
    assert decoder.state_bytes <= typed_form.LEAF_BYTES_MAX


def test_a_snapshot_of_full_dictionaries_fits_into_a_frame() -> None:
    schema = pa.schema([(f"c{n}", pa.string()) for n in range(12)])
    encoder = RowEncoder(schema, 0)
    words = [f"{n:011d}" for n in range(60_000)]
    for name in schema.names:
        columns = [words if name == other else [None] * len(words) for other in schema.names]
        encoder.encode(pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=schema))
    snapshot = encoder.snapshot([])
    assert encoder.state_bytes > 4 * 1024 * 1024
    assert len(snapshot.body) < SEGMENT_BYTES_MAX
    assert RowDecoder.from_snapshot(snapshot, schema).state_bytes == encoder.state_bytes


# --- faults of the producer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (some_rows(9).slice(0, 0), BadSegment),
        (some_rows(9).drop_columns("host"), SchemaMismatch),
        (texts("x"), SchemaMismatch),
        (some_rows(9).set_column(4, SCHEMA.field(4), pa.nulls(10, pa.string())), SchemaMismatch),
        (
            batch_of(
                [
                    {
                        "host": "new",
                        "labels": None,
                        "value": 0.0,
                        "inner": {"text": "x" * 9_000_000},
                        "region": "new",
                    }
                ]
            ),
            SegmentTooLarge,
        ),
        (
            batch_of([{"host": "n" * 900_000, "labels": [("new", "new")], "value": 0.0, "region": "new"}] * 40),
            SegmentTooLarge,
        ),
    ],
    ids=["no-rows", "column-missing", "other-columns", "null", "too-large", "unfolds"],
)
def test_a_failed_encode_leaves_the_encoder_as_it_was(batch: pa.RecordBatch, error: type[Exception]) -> None:
    encoder = RowEncoder(SCHEMA, 3)
    encoder.encode(some_rows(1))
    before = encoder.snapshot([])
    with pytest.raises(error):
        encoder.encode(batch)
    assert encoder.snapshot([]) == before
    assert encoder.last_segment == 0
    decoder = RowDecoder.from_snapshot(before, SCHEMA)
    assert decoder.decode(encoder.encode(some_rows(2))[0]).equals(some_rows(2))


@given(BATCHES)
@settings(max_examples=60, deadline=None)
def test_a_decoder_accepts_everything_that_an_encoder_accepts(rows: Rows) -> None:
    batches = [batch_of(part) for part in rows]
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr(typed_words, "_EXACT_FROM_BYTES", 0)
        encoder, plain_encoder = RowEncoder(SCHEMA, 0), RowEncoder(SCHEMA, 0)
        decoder, plain_decoder = RowDecoder(SCHEMA), RowDecoder(SCHEMA)
        for batch in batches:
            bounds.setattr(typed_form, "DECODED_BYTES_MAX", smallest_limit(batch))
            assert decoder.decode(encoder.encode(batch)[0]).equals(batch)
            bounds.setattr(typed_form, "LEAF_VALUES_MAX", 2)
            assert plain_decoder.decode(plain_encoder.encode(batch)[0]).equals(batch)
            bounds.undo()


def smallest_limit(batch: pa.RecordBatch) -> int:
    """The least bound on decoded bytes with which an encoder takes the batch."""
    low, high = 0, 1 << 20
    with pytest.MonkeyPatch.context() as bounds:
        while low < high:
            middle = (low + high) // 2
            bounds.setattr(typed_form, "DECODED_BYTES_MAX", middle)
            try:
                RowEncoder(SCHEMA, 0).encode(batch)
                high = middle
            except SegmentTooLarge:
                low = middle + 1
    return low
