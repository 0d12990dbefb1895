"""A few rows without Arrow are the same bytes, and count only if Arrow finds no fault in them either."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.model.errors import HeadpondError
from headpond.wire.plain.columns import (
    SENT_AT_US_MAX,
    SENT_AT_US_MIN,
    SENT_AT_US_UNKNOWN,
    fill_times,
    rows_to_batch,
)
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, ROWS_MAX, count_few, encode_few, read_few
from headpond.wire.plain.segment import decode_plain, encode_plain

Columns = tuple[list[Any], list[Any] | None, list[Any] | None, list[int]]

TIMES = st.integers(SENT_AT_US_MIN, SENT_AT_US_MAX)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    rows = draw(st.integers(1, ROWS_MAX))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=rows, max_size=rows))

    keys = column(st.binary(max_size=8)) if draw(st.booleans()) else None
    ids = column(st.text(max_size=8)) if draw(st.booleans()) else None
    return column(st.binary(max_size=40)), keys, ids, column(TIMES)


def with_arrow(values: list[Any], keys: Any, ids: Any, sent_at_us: list[int]) -> bytes:
    return encode_plain(rows_to_batch(values, keys, ids, None, sent_at_us))


@given(columns())
def test_the_bytes_are_those_of_arrow(rows: Columns) -> None:
    segment = encode_few(*rows)
    assert segment == with_arrow(*rows)
    assert count_few(segment, state=False, value_bytes_max=None) == len(rows[0])


@given(columns(), st.booleans())
def test_rows_are_read_as_arrow_reads_them(rows: Columns, unknown: bool) -> None:
    times = [SENT_AT_US_UNKNOWN, *rows[3][1:]] if unknown else rows[3]
    segment = with_arrow(*rows[:3], times)
    few = read_few(segment, stored_at_us=7)
    whole = fill_times(decode_plain(segment), 7)
    assert few is not None
    again = rows_to_batch(few.values, few.keys, few.ids, None, few.sent_at_us)
    assert again.equals(whole) and again.schema.equals(whole.schema)


@pytest.mark.parametrize(
    "rows",
    [
        ([None], [b"k"], None, [1]),
        ([b"v", b"w"], [b"k", None], None, [1, 2]),
        ([b"v"], None, [None], [1]),
        ([b"v"], None, ["\ud800"], [1]),
        ([b"v"], None, None, [2**63]),
        ([b"v" * BARE_BYTES_MAX], None, None, [1]),
        ([b"v"] * (ROWS_MAX + 1), None, None, [1] * (ROWS_MAX + 1)),
    ],
)
def test_other_rows_are_left_to_arrow(rows: Columns) -> None:
    assert encode_few(*rows) is None


@given(columns(), st.data())
def test_what_counts_has_no_fault(rows: Columns, data: st.DataObject) -> None:
    segment = bytearray(with_arrow(*rows))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(segment) - 1))
        segment[place] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, segment[place] ^ 1]))
    altered = bytes(segment[: data.draw(st.integers(0, len(segment)))] if data.draw(st.booleans()) else segment)
    counted = count_few(altered, state=False, value_bytes_max=None)
    try:
        batch = decode_plain(altered)
    except HeadpondError:
        assert counted == 0
    else:
        assert counted in (0, batch.num_rows)
        assert counted == 0 or (batch.column("value").null_count == 0)


def test_the_rules_of_a_topic_hold() -> None:
    keyless = with_arrow([b"12345", b"1"], None, None, [1, 2])
    keyed = with_arrow([b"1"], [b"k"], None, [1])
    assert count_few(keyless, state=True, value_bytes_max=None) == 0
    assert count_few(keyed, state=True, value_bytes_max=None) == 1
    assert count_few(keyless, state=False, value_bytes_max=4) == 0
    assert count_few(keyless, state=False, value_bytes_max=5) == 2
