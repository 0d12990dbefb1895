"""The filter language: which rows it selects, and which filters it refuses."""

from __future__ import annotations

import math
import operator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest

from headpond.model.errors import BadFilter
from headpond.wire.filter import DEPTH_MAX, FILTER_LENGTH_MAX, TESTS_MAX, Filter

COLUMNS: dict[str, pa.Array] = {
    "key": pa.array([b"a", b"b", None, b"\xff"]),
    "id": pa.array(["one", "two", "it's", None]),
    "entry": pa.array([1, 2, 3, 4]),
    "headers": pa.array([[("a", "x")], [("b", "y"), ("a", "z")], None, []], pa.map_(pa.string(), pa.string())),
    "sent_at": pa.array(
        [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC")
    ),
    "value": pa.array(
        [
            {"price": 1.5, "ok": True, "in": {"n": 1}},
            {"price": 2.5, "ok": False, "in": None},
            None,
            {"price": None},
        ],
        pa.struct([("price", pa.float64()), ("ok", pa.bool_()), ("in", pa.struct([("n", pa.int32())]))]),
    ),
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("key = 'a'", [0]),
        ("key != 'a'", [1, 3]),
        ("not key = 'a'", [1, 3]),
        ("key is null", [2]),
        ("key IS NOT NULL and entry < 4", [0, 1]),
        ("id = 'it''s'", [2]),
        ("id like '%o%'", [0, 1]),
        ("id not like 't_o'", [0, 2]),
        ("entry in (1, 3, 9)", [0, 2]),
        ("id not in ('one')", [1, 2]),
        ("entry = 1 or entry = 2 and key = 'zz'", [0]),
        ("(entry = 1 or entry = 2) and key = 'b'", [1]),
        ("headers['a'] = 'z' or headers['b'] = 'none'", [1]),
        ("headers['a'] is null", [2, 3]),
        ("sent_at >= '2026-01-03' and sent_at < '2026-01-04T00:00:00+00:00'", [2]),
        ("value.price > 1", [0, 1]),
        ("value.price >= 2.5e0", [1]),
        ("value.ok = true", [0]),
        ("value.in.n = 1", [0]),
        ("entry > -1 and entry <> 2", [0, 2, 3]),
    ],
)
def test_a_filter_selects_the_rows_it_is_true_for_and_null_is_neither(text: str, rows: list[int]) -> None:
    mask = Filter(text).mask(COLUMNS)
    assert [row for row, wanted in enumerate(mask.to_pylist()) if wanted] == rows


COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.int8(), [-128, -1, 0, 1, 2, 127]),
        (pa.int64(), [-(2**63), -1, 0, 1, 2, 2**53 + 1, 2**63 - 1]),
        (pa.uint64(), [0, 1, 2, 2**53 + 1, 2**64 - 1]),
    ],
)
def test_integers_compare_exactly_with_any_number(kind: pa.DataType, numbers: list[int]) -> None:
    columns = {"n": pa.array([*numbers, None], kind)}
    for literal in (1, 1.5, -0.5, 2.0, 128, 9007199254740992.0, 2**64 - 1, 10**30, -math.inf):
        text = "-1e999" if literal == -math.inf else str(literal)
        for sign, holds in COMPARISONS.items():
            meant = [holds(number, literal) for number in numbers]
            assert Filter(f"n {sign} {text}").mask(columns).to_pylist() == [*meant, False], (sign, text)
        found = Filter(f"n in ({text}, 0.5)").mask(columns).to_pylist()
        assert found == [*(number == literal for number in numbers), False], text


DAY = date(2026, 1, 31)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values", "literals"),
    [
        (pa.bool_(), [False, True], ["true", "false"]),
        (pa.float64(), [-1.5, 0.1, 2.0], ["0.1", "2", "1e300"]),
        (pa.float16(), [-1.5, 0.5, 2.0], ["0.5", "2"]),
        (pa.decimal128(5, 2), [Decimal("-1.50"), Decimal("3.50"), Decimal(4)], ["3.5", "3.55", "4", "1e30"]),
        (pa.decimal256(70, 2), [Decimal("-1.50"), Decimal("3.50")], ["3.5", "3.55", "1e80"]),
        (pa.decimal128(5, -2), [Decimal(-100), Decimal(12300)], ["12300", "12300.5"]),
        (pa.string(), ["a", "b", "c"], ["'b'"]),
        (pa.large_binary(), [b"a", b"b", b"c"], ["'b'"]),
        (pa.binary(1), [b"a", b"b", b"c"], ["'b'"]),
        (pa.date32(), [date(1969, 12, 31), DAY, date(2026, 2, 1)], ["'2026-01-31'", "'1970-01-01'"]),
        (pa.date64(), [date(1969, 12, 31), DAY, date(2026, 2, 1)], ["'2026-01-31'", "'1970-01-01'"]),
        (pa.time32("s"), [time(0), time(12), time(13)], ["'12:00'", "'12:00:00.5'"]),
        (pa.time32("ms"), [time(0), time(12), time(13)], ["'12:00'", "'12:00:00.0005'"]),
        (pa.time64("us"), [time(0), time(12), time(12, 0, 0, 500)], ["'12:00'", "'12:00:00.0005'"]),
        (pa.time64("ns"), [time(0), time(12), time(12, 0, 0, 500)], ["'12:00'", "'12:00:00.0005'"]),
        (pa.timestamp("s", "UTC"), [NOON, datetime(1960, 1, 1, tzinfo=UTC)], ["'2026-01-31 12:00:00.5'"]),
        (pa.timestamp("ms", "UTC"), [NOON, datetime(1960, 1, 1, tzinfo=UTC)], ["'1959-12-31 23:59:59.9999'"]),
        (pa.timestamp("ns", "UTC"), [NOON, datetime(1960, 1, 1, tzinfo=UTC)], ["'2026-01-31 13:00+01:00'"]),
        (pa.duration("s"), [timedelta(seconds=each) for each in (-2, 0, 5)], ["5", "-1.5", "4.25"]),
        (pa.duration("ns"), [timedelta(seconds=each) for each in (-2, 0, 5)], ["5", "-1.5", "4.25"]),
    ],
)
def test_every_column_type_compares_with_literals(
    kind: pa.DataType, values: list[Any], literals: list[str]
) -> None:
    columns = {"c": pa.array([*values, None], kind)}
    for text in literals:
        meant = {"true": True, "false": False}.get(text) or meaning(kind, text)
        for sign, holds in COMPARISONS.items():
            expected = [*(holds(value, meant) for value in values), False]
            assert Filter(f"c {sign} {text}").mask(columns).to_pylist() == expected, (sign, text)
        expected = [*(value == meant for value in values), False]
        assert Filter(f"c in ({text}, {text})").mask(columns).to_pylist() == expected, text


def meaning(kind: pa.DataType, text: str) -> Any:
    """What a literal is in Python, beside a column of this type."""
    bare = text.strip("'")
    if pt.is_decimal(kind) or pt.is_floating(kind):
        return Decimal(bare) if pt.is_decimal(kind) else float(bare)
    if pt.is_date(kind):
        return date.fromisoformat(bare)
    if pt.is_time(kind):
        return time.fromisoformat(bare)
    if pt.is_timestamp(kind):
        when = datetime.fromisoformat(bare)
        return when if when.tzinfo else when.replace(tzinfo=UTC)
    if pt.is_duration(kind):
        return timedelta(seconds=float(bare))
    return bare if pt.is_string(kind) else False if pt.is_boolean(kind) else bare.encode()


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        (pa.date32(), "'2026-01-31T12:00'"),
        (pa.date32(), "'today'"),
        (pa.date32(), "5"),
        (pa.time64("us"), "'12:00+01:00'"),
        (pa.time64("us"), "'noon'"),
        (pa.duration("s"), "'5'"),
        (pa.duration("s"), "1e300"),
        (pa.list_(pa.int32()), "5"),
    ],
)
def test_a_literal_of_another_type_than_the_column_is_refused(kind: pa.DataType, literal: str) -> None:
    for text in (f"c = {literal}", f"c in ({literal})"):
        with pytest.raises(BadFilter, match="at character 1 of the filter"):
            Filter(text).check({"c": pa.array([], kind)})


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 1, "a column is expected, and the filter ends"),
        ("key = ", 7, "a number, a text"),
        ("key = 'a' entry = 1", 11, "its end, 'and' or 'or'"),
        ("key = 'a", 7, "is not allowed"),
        ("key ; 1", 5, "';' is not allowed"),
        ("(key = 'a'", 11, "')' is expected"),
        ("key is 5", 8, "'null' is expected"),
        ("key", 4, "a comparison"),
        ("key like 5", 10, "a text in single quotes"),
        ("entry in ()", 11, "a number, a text"),
        ("1 = 1", 1, "a column is expected"),
        ("entry = 1 and nothing = 2", 15, "filter: there is no column 'nothing'; there"),
        ("value.nothing = 2", 1, "filter: there is no column 'nothing' in value"),
        ("entry = 'one'", 1, "a text cannot be compared with int64"),
        ("id = 5", 1, "a number cannot be compared with string"),
        ("entry = true", 1, "True cannot be compared with int64"),
        ("sent_at > 'noon'", 1, "noon"),
        ("entry like 'x'", 1, "'like' needs text or bytes"),
        ("value = 'x'", 1, "struct"),
    ],
)
def test_a_fault_in_a_filter_names_its_position(text: str, place: int, words: str) -> None:
    with pytest.raises(BadFilter) as refused:
        Filter(text).check(COLUMNS)
    assert f"at character {place} of the filter" in refused.value.message and words in refused.value.message


def test_filters_are_bounded() -> None:
    for text in (
        "entry = 1" + " " * FILTER_LENGTH_MAX,
        "not " * DEPTH_MAX + "entry = 1",
        "(" * (DEPTH_MAX + 1) + "entry = 1",
        " or ".join(["id=1"] * (TESTS_MAX + 1)),
        f"entry in ({','.join(['1'] * (TESTS_MAX + 1))})",
    ):
        with pytest.raises(BadFilter):
            Filter(text)
