"""A row of a typed topic is stored exactly, or refused with the place of the fault."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headpond.client.produce.values import TypedValues
from headpond.model.errors import SchemaMismatch
from headpond.wire.typed.values import python_values

NAIVE = datetime(2026, 1, 2, 3, 4, 5, 678_901)  # noqa: DTZ001
AWARE = NAIVE.replace(tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 2)  # noqa: DTZ001
NANOS = pd.Timestamp("2026-01-02T03:04:05.678901234")
REQUIRED = pa.field("item", pa.int64(), nullable=False)


class Seven:
    def __repr__(self) -> str:
        return "Seven()"  # names of tests are made of it, in every process the same

    def __int__(self) -> int:
        return 7


ALTERED_BY_ARROW: list[tuple[pa.DataType, Any, str]] = [
    (pa.int64(), 1.5, "c"),
    (pa.int64(), np.float32(1.5), "c"),
    (pa.int64(), Decimal("1.5"), "c"),
    (pa.int64(), Decimal("1e999999"), "c"),
    (pa.int64(), np.bool_(True), "c"),
    (pa.int64(), Seven(), "c"),
    (pa.int64(), np.timedelta64(7, "ms"), "c"),
    (pa.time32("s"), np.bool_(True), "c"),
    (pa.date32(), Seven(), "c"),
    (pa.timestamp("us"), Seven(), "c"),
    (pa.date64(), np.datetime64("2026-01-02", "ns"), "c"),
    (pa.timestamp("us"), pd.NaT, "c"),
    (pa.date32(), pd.NaT, "c"),
    (pa.duration("ms"), np.timedelta64("NaT", "ms"), "c"),
    (pa.float64(), np.longdouble("1e400"), "c"),
    (pa.float64(), np.timedelta64(7, "ms"), "c"),
    (pa.list_(pa.int64()), [1, 1.5], "c[1]"),
    (pa.list_(pa.int64()), np.array([1, 1.5]), "c[1]"),
    (pa.list_(pa.int64()), {1, 2}, "c"),
    (pa.list_(pa.int64()), b"ab", "c"),
    (pa.list_(REQUIRED), [1, None], "c[1]"),
    (pa.struct([("a", pa.list_(pa.int8()))]), {"a": [0, 1.5]}, "c.a[1]"),
    (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}, "c"),
    (pa.struct([REQUIRED]), {}, "c.item"),
    (pa.map_(pa.string(), pa.int64()), {"k": 1.5}, "c['k']"),
    (pa.map_(pa.int64(), pa.string()), {1.5: "k"}, "c[1.5]"),
    (pa.map_(pa.string(), pa.int64()), {b"k": 1}, "c[b'k']"),
    (pa.float64(), True, "c"),
    (pa.float32(), 1e300, "c"),
    (pa.float16(), 70_000, "c"),
    (pa.float16(), 2049, "c"),
    (pa.string(), b"text", "c"),
    (pa.binary(), "bytes", "c"),
    (pa.timestamp("us"), AWARE, "c"),
    (pa.timestamp("us", "UTC"), NAIVE, "c"),
    (pa.timestamp("ms"), NAIVE, "c"),
    (pa.timestamp("us"), NANOS, "c"),
    (pa.timestamp("us"), 1.5, "c"),
    (pa.date32(), NAIVE, "c"),
    (pa.date64(), 5, "c"),
    (pa.time32("s"), NAIVE.time(), "c"),
    (pa.time64("us"), time(3, tzinfo=UTC), "c"),
    (pa.time32("s"), 90_000, "c"),
    (pa.duration("s"), timedelta(microseconds=5), "c"),
    (pa.duration("us"), pd.Timedelta(5, "ns"), "c"),
    (pa.duration("s"), 1.5, "c"),
]
REFUSED_BY_ARROW: list[tuple[pa.DataType, Any, str]] = [
    (pa.int8(), 128, "c"),
    (pa.int64(), 2**63, "c"),
    (pa.int64(), float("nan"), "c"),
    (pa.int64(), True, "c"),
    (pa.list_(pa.int8()), [1, 128], "c[1]"),
    (pa.list_(pa.int64()), [1, True], "c[1]"),
    (pa.list_(pa.int64(), 2), [1], "c"),
    (pa.struct([("a", pa.string())]), {"a": "\ud800"}, "c.a"),
    (pa.map_(pa.string(), pa.bool_()), {"k": 1}, "c['k']"),
    (pa.float64(), 2**53 + 1, "c"),
    (pa.decimal128(5, 2), Decimal("1.234"), "c"),
    (pa.decimal128(5, 2), Decimal("1234.5"), "c"),
    (pa.decimal128(5, 2), Decimal("NaN"), "c"),
    (pa.decimal128(5, 2), 1.5, "c"),
]


@pytest.mark.parametrize(("kind", "value", "place"), ALTERED_BY_ARROW + REFUSED_BY_ARROW, ids=str)
def test_a_value_that_does_not_fit_exactly_is_refused_and_its_place_is_named(
    kind: pa.DataType, value: Any, place: str
) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        TypedValues(pa.schema([("other", pa.string()), ("c", kind)])).check({"c": value})
    assert refused.value.message.startswith(f"column {place!r}: ")


def test_a_decimal_of_a_billion_places_is_refused_and_the_process_lives() -> None:
    """Arrow reads past its table of powers of ten here."""
    with pytest.raises(SchemaMismatch, match=r"column 'c'.*decimal places"):
        TypedValues(pa.schema([("c", pa.decimal128(38, 2))])).check({"c": Decimal("1e-999999999")})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 2.0),
        (pa.int64(), np.int8(2)),
        (pa.int64(), Decimal("2.0")),
        (pa.int64(), pa.scalar(2)),
        (pa.list_(pa.int64()), (1, None, 3)),
        (pa.list_(pa.int64()), range(3)),
        (pa.list_(pa.float32()), np.array([0.5, 2.0])),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"b": "text"}),
        (pa.map_(pa.string(), pa.int64()), {"k": 1}),
        (pa.float32(), float("inf")),
        (pa.float64(), 2**53),
        (pa.decimal128(5, 2), Decimal("1.200")),
        (pa.timestamp("us", "UTC"), AWARE),
        (pa.timestamp("us"), NAIVE),
        (pa.timestamp("s"), np.datetime64("2026-01-02", "s")),
        (pa.date32(), MIDNIGHT),
        (pa.date32(), date(2026, 1, 2)),
        (pa.time64("us"), NAIVE.time()),
        (pa.duration("s"), timedelta(days=1)),
        (pa.duration("ms"), np.timedelta64(7, "ms")),
        (pa.bool_(), np.bool_(True)),
        (pa.binary(), bytearray(b"ab")),
    ],
    ids=str,
)
def test_a_value_that_fits_is_read_as_it_was_given(kind: pa.DataType, value: Any) -> None:
    typed = TypedValues(pa.schema([("c", kind)]))
    kept, _ = typed.check({"c": value})
    batch = typed.to_batch([kept], None, None, None, [0])
    batch.validate(full=True)
    (read,) = python_values(batch.column("value"))
    given = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(given, tuple | range | np.ndarray):
        given = list(given)
    if isinstance(given, dict) and pa.types.is_struct(kind):
        given = {"a": None, **given}
    assert read["c"] == (date(2026, 1, 2) if given is MIDNIGHT else given)
