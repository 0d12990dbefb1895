"""A packed record makes one batch, which says of each row what its segment alone would say."""

from __future__ import annotations

import pytest

from headpond.client.consume.batch import RecordReader, only
from headpond.model.bounds import Span
from headpond.model.message import Message
from headpond.wire.control.consuming import Deliver
from headpond.wire.frame import Frame, FrameType, frame_of
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.packed import PlacedSegment, pack
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RecordHeader

MANY = 40
READER = RecordReader("t", "node")
ALL: list[Span] = [(0, 2**63)]


def segments(rows_each: int) -> list[PlacedSegment]:
    """Those of three producers, in turn."""
    found = []
    for number in range(MANY):
        first = 100 + number * rows_each
        values: list[bytes | None] = [b"%d" % entry for entry in range(first, first + rows_each)]
        segment = encode_plain(rows_to_batch(values, None, None, None, [number] * rows_each))
        header = RecordHeader(first, rows_each, bytes([number % 3]) * 16, 1000 + number, 7)
        found.append(PlacedSegment(header, number, segment, 0))
    return found


def packed_frame(run: list[PlacedSegment]) -> Frame:
    packed = pack(run)
    assert packed is not None
    return frame_of(FrameType.SEGMENT, packed[0].encode() + packed[1])


def deliver(spans: list[Span]) -> Deliver:
    return Deliver(1, 0, 1, 1, spans)


def alone(run: list[PlacedSegment], spans: list[Span]) -> list[Message]:
    frames = [
        frame_of(FrameType.SEGMENT, each.header.encode() + each.segment, segment=each.number) for each in run
    ]
    found = [READER.read([frame], deliver(spans)) for frame in frames]
    return [message for batch in found if batch is not None for message in batch.messages()]


@pytest.mark.parametrize("rows_each", [1, 3])
@pytest.mark.parametrize(
    "spans", [ALL, [(104, 131)], [(99, 101), (103, 109), (110, 111), (130, 999)], [(139, 140)]]
)
def test_it_gives_the_messages_that_its_segments_give(rows_each: int, spans: list[Span]) -> None:
    run = segments(rows_each)
    batch = READER.read([packed_frame(run)], deliver(spans))
    assert batch is not None
    messages = batch.messages()
    assert messages == alone(run, spans)
    assert batch.entries.to_pylist() == [message.entry for message in messages]
    assert batch.stored_at.to_pylist() == [message.stored_at for message in messages]
    by_segment = [(origin, a, b) for origin, each in batch.by_segment() for a, b in each]
    assert all(origin.first_entry <= a < b <= origin.first_entry + rows_each for origin, a, b in by_segment)
    assert [entry for _, a, b in by_segment for entry in range(a, b)] == batch.entries.to_pylist()
    assert sum(batch.counts) == len(batch)


def test_a_part_of_it_keeps_the_origins_of_its_rows() -> None:
    whole = READER.read([packed_frame(segments(2))], deliver(ALL))
    assert whole is not None
    messages = whole.messages()
    part = only(whole, [(107, 109), (140, 141)])
    assert part is not None
    assert part.messages() == [messages[7], messages[8], messages[40]]
    assert part.origins[0] == messages[7].origin and part.origins[-1] == messages[40].origin
    assert list(part.origins) == [whole.origins[place] for place in range(3, 21)]


def test_it_gives_nothing_where_no_row_is_meant() -> None:
    assert READER.read([packed_frame(segments(1))], deliver([(0, 100), (140, 200)])) is None
