"""The language of filters: what it means, and what it refuses."""

from __future__ import annotations

import math
import operator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import BadFilter
from penstock.wire.filter import DEPTH_MAX, FILTER_LENGTH_MAX, TESTS_MAX, Filter

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
def test_a_filter_means_what_it_says_and_null_is_neither(text: str, rows: list[int]) -> None:
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
def test_whole_numbers_are_held_against_any_number_exactly(kind: pa.DataType, numbers: list[int]) -> None:
    columns = {"n": pa.array([*numbers, None], kind)}
    for literal in (1, 1.5, -0.5, 2.0, 128, 9007199254740992.0, 2**64 - 1, 10**30, -math.inf):
        text = "-1e999" if literal == -math.inf else str(literal)
        for sign, holds in COMPARISONS.items():
            meant = [holds(number, literal) for number in numbers]
            assert Filter(f"n {sign} {text}").mask(columns).to_pylist() == [*meant, False], (sign, text)
        found = Filter(f"n in ({text}, 0.5)").mask(columns).to_pylist()
        assert found == [*(number == literal for number in numbers), False], text


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 1, "a column is expected, and the filter ends"),
        ("key = ", 7, "a number, a text"),
        ("key = 'a' entry = 1", 11, "its end, 'and' or 'or'"),
        ("key = 'a", 7, "makes no sense"),
        ("key ; 1", 5, "';' makes no sense"),
        ("(key = 'a'", 11, "')' is expected"),
        ("key is 5", 8, "'null' is expected"),
        ("key", 4, "a comparison"),
        ("key like 5", 10, "a text in single quotes"),
        ("entry in ()", 11, "a number, a text"),
        ("1 = 1", 1, "a column is expected"),
        ("entry = 1 and nothing = 2", 15, "filter: there is no column 'nothing'; there"),
        ("value.nothing = 2", 1, "filter: there is no column 'nothing' in value"),
        ("entry = 'one'", 1, "a text cannot be held against int64"),
        ("id = 5", 1, "a number cannot be held against string"),
        ("entry = true", 1, "True cannot be held against int64"),
        ("sent_at > 'noon'", 1, "noon"),
        ("entry like 'x'", 1, "not like a text"),
        ("value = 'x'", 1, "struct"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(text: str, place: int, words: str) -> None:
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


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            ["key", "value.price", "headers['a']", "=", "<", "'a'", "1", "and", "or", "not", "(", ")", "in"]
        )
        | st.text(max_size=3),
        max_size=12,
    )
)
def test_any_text_is_a_filter_or_refused(pieces: list[Any]) -> None:
    try:
        mask = Filter(" ".join(pieces)).mask(COLUMNS)
    except BadFilter as error:
        assert "filter" in error.message
    else:
        assert len(mask) == 4 and mask.null_count == 0
