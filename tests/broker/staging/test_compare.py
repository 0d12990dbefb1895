"""The sum of row hashes that compares a repeated batch."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from headpond.broker.staging.compare import rows_sum

HEADERS = pa.map_(pa.string(), pa.string())
PLAIN: list[dict[str, Any]] = [
    {"value": b"1", "key": b"a", "id": "x", "headers": [("n", "1"), ("m", "2")]},
    {"value": b"1", "key": b"b", "id": None, "headers": None},
    {"value": None, "key": b"c", "id": "y", "headers": []},
    {"value": b"", "key": None, "id": "", "headers": [("n", "")]},
]


def plain(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {"value": pa.binary(), "key": pa.binary(), "id": pa.string(), "headers": HEADERS}
    arrays = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    return pa.record_batch(arrays | {"sent_at": pa.array(range(len(rows)), pa.timestamp("us", "UTC"))})


def typed(*rows: dict[str, Any] | None, **columns: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(rows, pa.struct(columns.items()))})


def test_order_pieces_and_time_do_not_count() -> None:
    whole = rows_sum(plain(PLAIN))
    for seed in range(5):
        mixed = random.Random(seed).sample(PLAIN, len(PLAIN))
        assert rows_sum(plain(mixed[:1])) + rows_sum(plain(mixed[1:])) == whole


@pytest.mark.parametrize("name", ["value", "key", "id", "headers"])
def test_every_other_column_counts_and_so_does_which_row_has_it(name: str) -> None:
    whole = rows_sum(plain(PLAIN))
    for at in range(1, len(PLAIN)):
        rows = [dict(row) for row in PLAIN]
        rows[at][name], rows[0][name] = PLAIN[0][name], PLAIN[at][name]
        assert (rows_sum(plain(rows)) == whole) == (PLAIN[0][name] == PLAIN[at][name])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"value": b"a\x1fb", "key": b"c"}, {"value": b"a", "key": b"b\x1fc"}),
        ({"value": b"a", "key": b"1\x1f1"}, {"value": b"a\x1f1", "key": b"1"}),
        ({"value": None}, {"value": b"\x00null"}),
        ({"value": None}, {"value": b""}),
        ({"value": None}, {"value": b"-"}),
    ],
)
def test_no_bytes_make_rows_alike_that_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    bare = dict.fromkeys(("value", "key", "id", "headers"))
    assert rows_sum(plain([bare | one])) != rows_sum(plain([bare | other]))


def test_a_column_that_is_left_out_is_one_of_nulls() -> None:
    rows = [{**row, "key": None, "headers": None} for row in PLAIN]
    assert rows_sum(plain(rows)) == rows_sum(plain(rows).drop_columns(["key", "headers"]))


def test_a_typed_message_is_the_same_under_a_schema_that_has_grown() -> None:
    before = typed({"a": 1, "b": [2.5]}, None, a=pa.int32(), b=pa.list_(pa.float64()))
    after = typed(None, {"a": 1, "b": [2.5]}, a=pa.int64(), b=pa.list_(pa.float64()), c=pa.string())
    other = typed(None, {"a": 1, "b": [2.5], "c": ""}, a=pa.int64(), b=pa.list_(pa.float64()), c=pa.string())
    assert rows_sum(before) == rows_sum(after) != rows_sum(other)
