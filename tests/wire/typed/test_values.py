"""Columns of every type that a typed topic carries, as Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headpond.wire.typed.values import python_values

LABELS = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("kind", "given", "shown"),
    [
        (pa.int64(), [1, None], [1, None]),
        (pa.bool_(), [True, None], [True, None]),
        (pa.string(), ["a", None], ["a", None]),
        (pa.binary(), [b"\xff", None], [b"\xff", None]),
        (pa.decimal128(5, 2), [Decimal("1.50")], [Decimal("1.50")]),
        (pa.date32(), [date(2026, 1, 31), None], [date(2026, 1, 31), None]),
        (pa.time64("ns"), [1_001], [time(0, 0, 0, 1)]),
        (pa.duration("ns"), [1_001], [timedelta(microseconds=1)]),
        (pa.timestamp("ns", "UTC"), [1_999, None], [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None]),
        (pa.timestamp("us"), [1], [datetime(1970, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), [2**63 - 1, 0], [2**63 - 1, datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.timestamp("us", "No/Where"), [0], [datetime(1970, 1, 1, tzinfo=UTC)]),
        (LABELS, [[("a", "1"), ("b", None)], None, []], [{"a": "1", "b": None}, None, {}]),
        (LABELS, [[("a", "1"), ("a", "2")]], [{"a": "2"}]),
        (pa.map_(pa.struct([("k", pa.int8())]), pa.int8()), [[({"k": 1}, 2)]], [[({"k": 1}, 2)]]),
        (pa.list_(LABELS), [[[("a", "1")]], None, []], [[{"a": "1"}], None, []]),
        (pa.list_(pa.int8(), 2), [[1, 2], None], [[1, 2], None]),
        (pa.large_list(pa.string()), [["a", None]], [["a", None]]),
        (
            pa.struct([("m", LABELS), ("x", pa.int8())]),
            [{"m": [("a", "b")], "x": 1}, None],
            [{"m": {"a": "b"}, "x": 1}, None],
        ),
    ],
    ids=str,
)
def test_a_column_as_python_values(kind: pa.DataType, given: list[Any], shown: list[Any]) -> None:
    column = pa.array(given, kind)
    assert python_values(column) == shown
    padded = pa.concat_arrays([column, column, column])
    assert python_values(padded.slice(len(given), len(given))) == shown, "a slice shows its own rows"
