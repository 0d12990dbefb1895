"""Many segments decoded at once: exactly the rows that each gives by itself, and its faults."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadSegment
from headpond.wire.plain.columns import PLAIN_SCHEMA, SENT_AT_US_UNKNOWN, fill_times, rows_to_batch
from headpond.wire.plain.few_rows import encode_few
from headpond.wire.plain.many import TOGETHER_MIN, decode_many, decode_records
from headpond.wire.plain.segment import decode_plain, encode_plain
from headpond.wire.record import RecordHeader
from headpond.wire.typed.record import fill_messages

TIMES = st.integers(0, 2**50)
TEXTS = st.text(max_size=6)


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """A segment of one or a few rows with some of the columns; of a few rows some may lack a column."""
    count = draw(st.sampled_from([1, 1, 1, 2, 9]))

    def column(cells: st.SearchStrategy[Any]) -> list[Any] | None:
        how = draw(st.sampled_from(["none", "all", "all", "some"]))
        if how == "none":
            return None
        cells = cells if how == "all" else st.none() | cells
        return draw(st.lists(cells, min_size=count, max_size=count))

    values = column(st.binary(max_size=9)) or [None] * count
    pairs = st.dictionaries(TEXTS, TEXTS, max_size=3)
    times = draw(st.lists(TIMES, min_size=count, max_size=count))
    return encode_plain(
        rows_to_batch(values, column(st.binary(max_size=5)), column(TEXTS), column(pairs), times)
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fill_messages(batch, PLAIN_SCHEMA).to_pylist()
    return found


def repeated(kinds: list[bytes]) -> list[bytes]:
    """The kinds in turn, each often enough to be decoded with others of its kind."""
    return kinds * TOGETHER_MIN


def one(value: bytes = b"x", key: bytes | None = None, at_us: int = 1) -> bytes:
    encoded = encode_few([value], None if key is None else [key], None, [at_us])
    assert encoded is not None
    return encoded


def test_all_rows_come_in_order_as_each_segment_has_them_by_itself() -> None:
    @settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(segments(), min_size=1, max_size=5))
    def holds(kinds: list[bytes]) -> None:
        given = repeated(kinds)
        batch, counts = decode_many(pa.array(given, pa.binary()))
        batch.validate(full=True)
        alone = [rows_of(decode_plain(each)) for each in given]
        assert counts.to_pylist() == [len(rows) for rows in alone]
        assert rows_of(batch) == [row for rows in alone for row in rows]

    holds()


def test_bytes_that_one_segment_alone_could_not_have_are_refused_among_others() -> None:
    @settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
    @given(segments(), st.data())
    def holds(segment: bytes, data: st.DataObject) -> None:
        altered = bytearray(segment)
        at = data.draw(st.integers(0, len(altered) - 1))
        altered[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([len(altered), len(altered) - 1, len(altered) // 2]))
        among = [segment] * TOGETHER_MIN
        among[7] = bytes(altered[:cut])
        try:
            alone = rows_of(decode_plain(among[7]))
        except BadSegment:
            with pytest.raises(BadSegment):
                decode_many(pa.array(among, pa.binary()))
            return
        batch, _ = decode_many(pa.array(among, pa.binary()))
        whole = rows_of(decode_plain(segment))
        assert rows_of(batch) == whole * 7 + alone + whole * (TOGETHER_MIN - 8)

    holds()


@pytest.mark.parametrize("columns", [0b10001, 0b10011, 0b10111, 0b11111])
def test_offsets_that_run_backwards_or_beyond_their_segment_are_refused(columns: int) -> None:
    cells: list[Any] = [[b"value"], [b"key"], ["id"], [{"name": "text"}]]
    cells = [each if columns >> index & 1 else None for index, each in enumerate(cells)]
    whole = encode_plain(rows_to_batch(cells[0], cells[1], cells[2], cells[3], [1]))
    refused = 0
    for at in range(16, len(whole) - 3):
        for number in (-1, 2**31 - 1):
            altered = whole[:at] + number.to_bytes(4, "little", signed=True) + whole[at + 4 :]
            among = [whole] * TOGETHER_MIN + [altered]
            try:
                expected = rows_of(decode_plain(altered))
            except BadSegment:
                refused += 1
                with pytest.raises(BadSegment):
                    decode_many(pa.array(among, pa.binary()))
            else:
                assert rows_of(decode_many(pa.array(among, pa.binary()))[0])[-1:] == expected
    assert refused >= 8


def test_records_have_the_fields_of_their_headers_and_times_as_readers_see_them() -> None:
    given = [one(b"%d" % row, at_us=SENT_AT_US_UNKNOWN if row % 3 else row) for row in range(TOGETHER_MIN)]
    headers = [RecordHeader(100 + row, 1, bytes([row]) * 16, 10**15 + row, 7) for row in range(TOGETHER_MIN)]
    found = decode_records([header.encode() + each for header, each in zip(headers, given, strict=True)])
    fields = zip(found.first_entries, found.counts, found.blocks, found.stored_at_us, strict=True)
    assert [RecordHeader(*each, 7) for each in fields] == headers
    alone = [fill_times(decode_plain(each), h.stored_at_us) for each, h in zip(given, headers, strict=True)]
    assert rows_of(found.rows) == [row for each in alone for row in rows_of(each)]


@pytest.mark.parametrize(("first_entry", "count"), [(0, 2), (10, 1), (5, 0)])
def test_a_record_that_claims_other_rows_or_entries_out_of_order_is_refused(
    first_entry: int, count: int
) -> None:
    bodies = [RecordHeader(row, 1, bytes(16), 1, 7).encode() + one() for row in range(TOGETHER_MIN)]
    decode_records(bodies)
    bodies[5] = RecordHeader(first_entry, count, bytes(16), 1, 7).encode() + one()
    with pytest.raises(BadSegment):
        decode_records(bodies)


def test_a_body_that_is_too_short_for_a_segment_is_refused() -> None:
    body = RecordHeader(0, 1, bytes(16), 1, 7).encode() + one()
    for short in (b"", body[:20], body[:45]):
        with pytest.raises(BadSegment):
            decode_records([body] * TOGETHER_MIN + [short])
