"""A packed record gives back the segments that it was made of, byte for byte, and its rows at once."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from headpond.model.errors import BadSegment, SchemaMismatch
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import PLAIN_SCHEMA, SENT_AT_US_UNKNOWN, fill_times, rows_to_batch
from headpond.wire.plain.packed import (
    PACK_ROWS_MAX,
    PACKED_BYTES_MAX,
    PlacedSegment,
    can_pack,
    decode_packed,
    facts_of,
    is_packed,
    pack,
    salvage,
    unpack,
    with_columns,
)
from headpond.wire.plain.segment import check_state_rows, decode_plain, encode_plain
from headpond.wire.record import RecordHeader
from headpond.wire.sent_at import sent_at_us
from headpond.wire.typed.record import fill_messages, stored_rows

COLUMNS = ("value", "key", "id", "headers")
BLOCKS = (b"a" * 16, b"b" * 16, bytes(16))


def run_of(seed: int) -> list[PlacedSegment]:
    """Neighbouring segments with the same columns, of one or a few rows each."""
    draw = random.Random(seed)
    names = {name for name in COLUMNS if draw.random() < 0.5}
    entry = draw.randrange(2**40)

    def text() -> str:
        return "".join(draw.choices("aä€𝄞", k=draw.randrange(4)))

    def cell(name: str) -> Any:
        if name == "headers":
            return {text(): text() for _ in range(draw.randrange(3))}
        return text() if name == "id" else draw.randbytes(draw.randrange(9))

    found: list[PlacedSegment] = []
    for _ in range(draw.randrange(1, 50)):
        count = draw.choice([1, 1, 1, 2, 9])
        rows = {name: [cell(name) for _ in range(count)] for name in COLUMNS if name in names}
        times = draw.choices([SENT_AT_US_UNKNOWN, 7, 2**50], k=count)
        values = rows.get("value", [None] * count)
        body = encode_plain(rows_to_batch(values, rows.get("key"), rows.get("id"), rows.get("headers"), times))
        header = RecordHeader(entry, count, draw.choice(BLOCKS), draw.randrange(2**50), draw.randrange(2**32))
        found.append(PlacedSegment(header, draw.randrange(2**32), body, draw.randrange(2**32)))
        entry += count
    return found


def rows_of(batch: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fill_messages(batch, PLAIN_SCHEMA).to_pylist()
    return found


def single(values: list[bytes], first: int = 0) -> list[PlacedSegment]:
    return [
        PlacedSegment(
            RecordHeader(first + place, 1, b"a" * 16, 100 + place, place),
            place,
            encode_plain(rows_to_batch([value], None, None, None, [5])),
            0,
        )
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_unpacking_gives_the_same_segments_from_any_entry_on(seed: int) -> None:
    run = run_of(seed)
    assert all(can_pack(each.segment) for each in run)
    packed = pack(run)
    assert packed is not None and is_packed(packed[1])
    header, segment = packed
    assert list(unpack(header, segment)) == run
    for entry in range(header.first_entry, header.end_entry, 5):
        assert list(unpack(header, segment, entry)) == [each for each in run if each.header.end_entry > entry]


@pytest.mark.parametrize("seed", range(40))
def test_the_rows_are_those_of_the_segments_with_the_time_of_storage_where_none_was_sent(seed: int) -> None:
    run = run_of(seed)
    packed = pack(run)
    assert packed is not None
    apart = [(decode_plain(each.segment), each.header.stored_at_us) for each in run]
    assert rows_of(stored_rows(packed[1], None)) == [row for rows, _ in apart for row in rows_of(rows)]
    filled = [row for rows, at_us in apart for row in rows_of(fill_times(rows, at_us))]
    assert rows_of(stored_rows(packed[1], None, 0)) == filled
    times = [sent_at_us(packed[1], row, None, 0) for row in range(len(filled))]
    assert times == pa.array([row["sent_at"] for row in filled]).cast(pa.int64()).to_pylist()


def test_a_packed_record_with_other_bytes_is_refused_or_read_without_a_fault() -> None:
    run = single([b"value %d" % place for place in range(10)])
    packed = pack(run)
    assert packed is not None
    header, segment = packed
    faults = 0
    for at in range(len(segment)):
        altered = segment[:at] + bytes([segment[at] ^ 0x41]) + segment[at + 1 :]
        for cut in (altered, segment[:at]):
            try:
                assert sum(each.header.count for each in unpack(header, cut)) == header.count
                decode_packed(cut, fill=True)
            except (BadSegment, SchemaMismatch):
                faults += 1
    assert faults > len(segment)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_its_numbers_say_it_never_unfolds_to_more_than_it_holds(seed: int) -> None:
    """Each 4 bytes may be any number: an offset far away, negative, or behind the next one."""
    packed = pack(run_of(seed))
    assert packed is not None
    header, segment = packed
    draw = random.Random(seed)
    for _ in range(200):
        altered = bytearray(segment)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(12, len(segment) - 4, 4)
            altered[at : at + 4] = draw.choice(
                [0, 1, 2**31 - 1, -1, -(2**31), draw.randrange(len(segment))]
            ).to_bytes(4, "little", signed=True)
        size = 0
        with suppress(BadSegment):
            for each in unpack(header, bytes(altered)):
                size += len(each.segment)
        assert size <= len(segment) + header.count * 64
        with suppress(BadSegment, SchemaMismatch):
            decode_packed(bytes(altered), fill=True)


def framed_run(seed: int) -> list[PlacedSegment]:
    """A run with the checksums that its frames in shard 3 have."""
    found = []
    for each in run_of(seed):
        whole = encode(FrameType.SEGMENT, each.header.encode() + each.segment, shard=3, segment=each.number)
        found.append(each._replace(crc=int.from_bytes(whole[-4:], "little")))
        assert found[-1].framed(3) == whole
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_number_of_rows_costs_no_segment(seed: int) -> None:
    run = framed_run(seed)
    packed = pack(run)
    assert packed is not None
    header, segment = packed
    assert list(salvage(header.first_entry, segment, 3)) == run
    counts_at = facts_of(segment).rows_at - 2 * 2 * len(run)
    for at in range(counts_at, counts_at + 2 * len(run)):
        altered = bytearray(segment)
        altered[at] ^= 1 << random.Random(at).randrange(8)
        assert list(salvage(header.first_entry, bytes(altered), 3)) == run
    assert not list(salvage(header.first_entry, segment, 4))
    assert not list(salvage(header.first_entry + 1, segment, 3))


def test_a_record_that_is_longer_than_any_packed_one_is_refused() -> None:
    packed = pack(single([b"v"] * 10))
    assert packed is not None
    with pytest.raises(BadSegment, match="bytes"):
        facts_of(packed[1] + bytes(PACKED_BYTES_MAX))


def test_overlapping_rows_are_refused() -> None:
    packed = pack(single([b"x" * 100] * 10))
    assert packed is not None
    header, segment = packed
    offsets_at = facts_of(segment).rows_at + 8 + 8 * 10
    for row in range(1, 10):
        at = offsets_at + 4 * row
        for number in (1001, 0 if row > 1 else -1):
            altered = segment[:at] + number.to_bytes(4, "little", signed=True) + segment[at + 4 :]
            with pytest.raises(BadSegment):
                list(unpack(header, altered))


def test_a_record_whose_segments_are_not_its_rows_is_refused() -> None:
    packed = pack(single([b"v"] * 10))
    assert packed is not None
    header, segment = packed
    with pytest.raises(BadSegment, match="holds 10"):
        list(unpack(header._replace(count=9), segment))
    counts_at = facts_of(segment).rows_at - 2 * 2 * 10
    for numbers in ((0, 2), (2, 1), (1, 0)):
        changed = b"".join(number.to_bytes(2, "little") for number in numbers)
        altered = segment[:counts_at] + changed + segment[counts_at + 4 :]
        with pytest.raises(BadSegment, match="contradicts"):
            facts_of(altered)


def test_a_record_of_more_rows_than_a_run_has_is_refused() -> None:
    run = single([b""] * (PACK_ROWS_MAX + 1))
    assert pack(run[:-1]) is not None and pack(run) is None


@pytest.mark.parametrize("columns", [["sent_at"], ["value", "sent_at"], ["key", "sent_at"]])
def test_fewer_columns_leave_the_facts_as_they_are(columns: list[str]) -> None:
    run = [
        each._replace(segment=encode_plain(rows_to_batch([b"v"], [b"k"], None, None, [place])))
        for place, each in enumerate(single([b""] * 12))
    ]
    packed = pack(run)
    assert packed is not None
    less = with_columns(packed[1], decode_packed(packed[1], fill=False).select(columns))
    assert rows_of(decode_packed(less, fill=False)) == [
        {**row, **{name: None for name in ("value", "key") if name not in columns}}
        for row in rows_of(decode_packed(packed[1], fill=False))
    ]
    assert list(facts_of(less).origin_crcs) == list(range(12))
    assert [each.header for each in unpack(packed[0], less)] == [each.header for each in run]


def test_a_segment_with_nulls_or_bytes_behind_its_end_is_not_packed() -> None:
    nulls = encode_plain(rows_to_batch([b"v", None], None, None, None, [1, 2]))
    assert not can_pack(nulls)
    run = single([b"v"] * 10)
    run[4] = run[4]._replace(segment=run[4].segment + b"\0")
    assert pack(run) is None


def test_a_node_takes_no_packed_record_from_a_producer() -> None:
    packed = pack(single([b"v"] * 10))
    assert packed is not None
    with pytest.raises(BadSegment, match=r"columns|form"):
        check_state_rows(packed[1], state=False)
