"""The digest of rows: the same in any order and any pieces, another as soon as a value is another."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import row_digest
from penstock.client.row_digest import rows_digest

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS: dict[str, list[Any]] = {
    "nothing": [None] * 6,
    "yes": [True, False, None, True, True, False],
    "small": list(range(6)),
    "real": [0.5, -0.0, None, 1e300, 2.5, 3.0],
    "text": ["", "a", None, "aa", "ü" * 9, "a" * 100],
    "fixed": [b"ab", b"cd", None, b"ef", b"gh", b"ij"],
    "at": [START + timedelta(microseconds=n) for n in range(6)],
    "exact": [Decimal(n) / 4 for n in range(6)],
    "items": [[], [1], None, [1, 2], [None], [3, 4, 5]],
    "map": [[], [("a", "b")], None, [("a", None)], [("b", "a"), ("c", "d")], [("x", "y")]],
    "deep": [None, {"a": 1, "b": [{"c": "x"}]}, {"a": None, "b": []}, {"a": 2, "b": None}, None, {"a": 3}],
}
TYPES: dict[str, list[pa.DataType]] = {
    "nothing": [pa.null()],
    "yes": [pa.bool_()],
    "small": [pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.date32(), pa.duration("us")],
    "real": [pa.float32(), pa.float64()],
    "text": [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())],
    "fixed": [pa.binary(2), pa.large_binary()],
    "at": [pa.timestamp("us", "UTC"), pa.timestamp("ns")],
    "exact": [pa.decimal128(10, 2), pa.decimal256(60, 3)],
    "items": [pa.list_(pa.int64()), pa.large_list(pa.int16())],
    "map": [pa.map_(pa.string(), pa.string())],
    "deep": [pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])],
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in TYPES.items() for kind in kinds])
def test_every_type_counts_by_its_values_and_not_by_their_places(name: str, kind: pa.DataType) -> None:
    values = COLUMNS[name]
    whole = rows_digest(pa.table({"c": pa.array(values, kind)}))
    for seed in range(5):
        mixed = random.Random(seed).sample(values, len(values))
        table = pa.table({"c": pa.array(mixed, kind)})
        parts = [rows_digest(table.slice(at, length)) for at, length in ((0, 1), (1, 3), (4, 2))]
        assert sum(parts) % 2**63 == rows_digest(table) == whole
    changed = [[*values[:at], values[at - 1], *values[at + 1 :]] for at in range(len(values))]
    others = [rows_digest(pa.table({"c": pa.array(each, kind)})) for each in changed if each != values]
    assert whole not in others


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.text(max_size=5)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_rows_are_the_same_rows_in_any_order_and_pieces(
    rows: list[tuple[bytes | None, str | None]], chance: random.Random
) -> None:
    def table(some: list[tuple[bytes | None, str | None]]) -> pa.Table:
        values, keys = [value for value, _ in some], [key for _, key in some]
        return pa.table({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.string())})

    whole = rows_digest(table(rows))
    mixed = chance.sample(rows, len(rows))
    cut = chance.randint(0, len(rows))
    assert (rows_digest(table(mixed[:cut])) + rows_digest(table(mixed[cut:]))) % 2**63 == whole
    assert rows_digest(table(mixed).select(["key", "value"])) == whole, "columns go by name"
    if rows:
        assert rows_digest(table(rows[1:])) != whole
        assert rows_digest(table([*rows[1:], (b"another", rows[0][1])])) != whole


def test_which_key_has_which_value_counts() -> None:
    one = pa.table({"key": ["a", "b"], "value": ["1", "2"]})
    other = pa.table({"key": ["a", "b"], "value": ["2", "1"]})
    moved = pa.table({"key": ["a1", "b2"], "value": ["", ""]})
    assert len({rows_digest(table) for table in (one, other, moved)}) == 3


def test_pieces_of_any_size_make_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"x" * (number % 300) for number in range(2000)] + [b"y" * 3_000_000]
    table = pa.table({"value": values, "n": range(2001)})
    whole = rows_digest(table)
    monkeypatch.setattr(row_digest, "PIECE_ROWS", 7)
    assert rows_digest(table) == whole
    monkeypatch.setattr(row_digest, "PIECE_BYTES", 100)
    assert rows_digest(table.slice(0, 100)) == rows_digest(table.slice(0, 100).combine_chunks())
