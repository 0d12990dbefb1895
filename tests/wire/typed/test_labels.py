"""Labels are encoded as whole sets: a row costs one index, whatever its labels, and decodes unchanged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.typed import columns as typed_write
from headpond.wire.typed import dictionaries as typed_labels
from headpond.wire.typed import dictionaries as typed_words
from headpond.wire.typed import form as typed_form
from headpond.wire.typed.codec import RowDecoder, RowEncoder
from headpond.wire.typed.form import PLAIN
from tests.wire.typed.samples import LABELS, encode_all

SCHEMA = pa.schema([("labels", pa.map_(pa.string(), pa.string())), ("n", pa.int64())])
Sets = list[list[list[tuple[str, str | None]] | None]]

SETS = st.lists(st.lists(st.none() | LABELS, min_size=1, max_size=12), min_size=1, max_size=6)


@pytest.fixture(params=["few", "many"], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few values take another path than many; each test goes both."""
    if request.param == "many":
        for module in (typed_form, typed_labels, typed_words, typed_write):
            monkeypatch.setattr(module, "FEW", 0)


def batch_of(*labels: Any) -> pa.RecordBatch:
    arrays = [pa.array(labels, SCHEMA.field(0).type), pa.array(range(len(labels)), pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def read_from_every_snapshot(batches: list[pa.RecordBatch]) -> tuple[RowEncoder, list[tuple[int, ...]]]:
    encoder, segments, redundants = encode_all(batches)
    for k in range(len(batches) + 1):
        decoder = RowDecoder.from_snapshot(encoder.snapshot(redundants[k:]), SCHEMA)
        for segment, batch in zip(segments[k:], batches[k:], strict=True):
            decoded = decoder.decode(segment)
            decoded.validate(full=True)
            # The order of labels, and a name that comes twice, are part of what is equal.
            assert decoded.column(0).to_pylist() == batch.column(0).to_pylist()
            assert decoded.equals(batch)
        assert decoder.state_bytes == encoder.state_bytes
    return encoder, [redundant.lengths for redundant in redundants]


@given(SETS)
@settings(max_examples=60, deadline=None)
def test_labels_come_back_from_every_snapshot(sets: Sets) -> None:
    read_from_every_snapshot([batch_of(*part) for part in sets])


@given(SETS, st.integers(1, 6), st.integers(20, 90), st.integers(40, 160))
@settings(max_examples=120, deadline=None)
def test_labels_come_back_while_dictionaries_go_plain_one_by_one(
    sets: Sets, values: int, leaf_bytes: int, state_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr(typed_form, "LEAF_VALUES_MAX", values)
        bounds.setattr(typed_form, "LEAF_BYTES_MAX", leaf_bytes)
        bounds.setattr(typed_form, "STATE_BYTES_MAX", state_bytes)
        encoder, _ = read_from_every_snapshot([batch_of(*part) for part in sets])
        assert encoder.state_bytes <= state_bytes


def test_a_set_that_is_known_costs_one_index() -> None:
    encoder = RowEncoder(SCHEMA, 0)
    rows = [[(f"name-{n}", f"text-{n}-{row}") for n in range(10)] for row in range(200)]
    encoder.encode(batch_of(*rows))
    again, _ = encoder.encode(batch_of(*rows))
    assert len(again.body) < 200 * (1 + 1) + 30  # an index and a number of one byte each


def test_two_orders_are_two_sets() -> None:
    ab, ba = [("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]
    _, lengths = read_from_every_snapshot([batch_of(ab, ba, ab), batch_of(ba)])
    assert lengths[1] == (2, 2, 2)


def test_null_empty_and_textless_labels_stay_distinct() -> None:
    _, lengths = read_from_every_snapshot(
        [batch_of(None, [], [("a", None)], [("a", "")], None), batch_of(None)]
    )
    assert lengths[1] == (1, 1, 3)


def test_sets_that_pass_their_bound_leave_names_and_texts_coded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_form, "LEAF_VALUES_MAX", 12)
    names, texts = ("a-long-name", "another-name"), [f"a-text-{n}" for n in range(8)]
    batches = [batch_of(*[list(zip(names, (one, two), strict=True)) for one in texts]) for two in texts]
    encoder, lengths = read_from_every_snapshot(batches)
    assert lengths[1] == (2, 8, 8)
    assert lengths[2] == (2, 8, PLAIN)
    last, _ = encoder.encode(batches[3])
    assert b"name" not in last.body
    assert b"text" not in last.body


def test_texts_that_pass_their_bound_take_the_sets_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_form, "LEAF_VALUES_MAX", 12)
    batches = [batch_of(*[[("a-long-name", f"{n}-{k}")] for n in range(5)]) for k in range(4)]
    encoder, lengths = read_from_every_snapshot(batches)
    assert lengths == [(0, 0, 0), (1, 5, 5), (1, 10, 10), (1, PLAIN, PLAIN)]
    last, _ = encoder.encode(batches[0])
    assert b"name" not in last.body
    assert b"4-0" in last.body


def test_an_absent_column_keeps_its_dictionaries() -> None:
    known = batch_of([("a", "1")])
    _, lengths = read_from_every_snapshot([known, batch_of(None, None), known])
    assert lengths[2] == (1, 1, 1)


def test_ten_thousand_sets_of_ten_labels_stay_far_below_the_bounds() -> None:
    kind = SCHEMA.field(0).type
    encoder, decoder = RowEncoder(SCHEMA, 0), RowDecoder(SCHEMA)
    for first in range(0, 10_000, 2_500):
        rows = [
            [(f"label_{n}", f"{n}-{row if n == 0 else row % 100}") for n in range(10)]
            for row in range(first, first + 2_500)
        ]
        batch = pa.RecordBatch.from_arrays([pa.array(rows, kind), pa.array(range(2_500))], schema=SCHEMA)
        segment, _ = encoder.encode(batch)
        assert decoder.decode(segment).equals(batch)
    _, redundant = encoder.encode(batch_of(None))
    assert redundant.lengths == (10, 10_000 + 9 * 100, 10_000)
    assert encoder.state_bytes < typed_form.LEAF_BYTES_MAX
    assert len(encoder.snapshot([]).body) < SEGMENT_BYTES_MAX / 8
