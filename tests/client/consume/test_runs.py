"""Many small records of a delivery make one batch, which says of each row what the record alone would say."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from headpond.client.consume.batch import Batch, RecordReader, in_runs, only, without
from headpond.client.consume.deliveries import Deliveries
from headpond.client.consume.gate import InHand, OrderGate
from headpond.model.bounds import Span
from headpond.model.errors import BadSegment
from headpond.model.message import Message
from headpond.wire.control.consuming import Deliver, Subscribed
from headpond.wire.frame import OVERHEAD_BYTES, Frame, FrameType, frame_of
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.few_rows import BARE_BYTES_MAX
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RecordHeader

MANY = 40
READER = RecordReader("t", "node")
ALL: list[Span] = [(0, 2**63)]


def record(first: int, number: int, rows: int = 1, value: bytes = b"") -> Frame:
    """Segment ``number``, of one of three producers."""
    values: list[bytes | None] = [value or b"%d" % entry for entry in range(first, first + rows)]
    segment = encode_plain(rows_to_batch(values, None, None, None, [number] * rows))
    header = RecordHeader(first, rows, bytes([number % 3]) * 16, 1000 + number, 7)
    return frame_of(FrameType.SEGMENT, header.encode() + segment, segment=number)


def records(rows_each: int = 1, *, gap_before: int | None = None) -> list[Frame]:
    """Records with entries from 0 on; entries are missing before one of them."""
    frames: list[Frame] = []
    first = 0
    for number in range(MANY):
        first += 5 if number == gap_before else 0
        frames.append(record(first, number, rows_each))
        first += rows_each
    return frames


def deliver(spans: list[Span]) -> Deliver:
    return Deliver(1, 0, MANY, 1, spans)


def alone(frames: list[Frame], spans: list[Span]) -> list[Message]:
    found = [READER.read([frame], deliver(spans)) for frame in frames]
    return [message for batch in found if batch is not None for message in batch.messages()]


def test_a_small_record_that_claims_other_rows_cannot_be_read() -> None:
    segment = encode_plain(rows_to_batch([b"one"], None, None, None, [1]))
    header = RecordHeader(0, 2, bytes(16), 1000, 7)
    frame = frame_of(FrameType.SEGMENT, header.encode() + segment, segment=0)
    with pytest.raises(BadSegment, match="2 rows holds 1"):
        READER.read([frame], deliver(ALL))


@pytest.mark.parametrize("rows_each", [1, 3])
@pytest.mark.parametrize("gap_before", [None, 17])
@pytest.mark.parametrize("spans", [ALL, [(4, 31)], [(0, 1), (3, 9), (10, 11), (30, 99)], [(20, 20), (38, 39)]])
def test_a_run_gives_the_messages_that_its_records_give_alone(
    rows_each: int, gap_before: int | None, spans: list[Span]
) -> None:
    frames = records(rows_each, gap_before=gap_before)
    batch = READER.read(frames, deliver(spans))
    assert batch is not None
    messages = batch.messages()
    assert messages == alone(frames, spans)
    assert batch.entries.to_pylist() == [message.entry for message in messages]
    stored_at = [message.stored_at for message in messages]
    assert batch.stored_at.to_pylist() == stored_at
    by_segment = [(origin, a, b) for origin, each in batch.by_segment() for a, b in each]
    assert all(origin.first_entry <= a < b <= origin.first_entry + rows_each for origin, a, b in by_segment)
    assert [entry for _, a, b in by_segment for entry in range(a, b)] == batch.entries.to_pylist()
    assert sum(batch.counts) == len(batch)


def test_a_run_without_a_row_that_is_meant_gives_no_batch() -> None:
    assert READER.read(records(gap_before=3), deliver([(3, 8), (500, 600)])) is None


def test_a_part_of_a_batch_keeps_the_origins_of_its_rows() -> None:
    whole = READER.read(records(2), deliver(ALL))
    assert whole is not None
    messages = whole.messages()
    for part in (only(whole, [(7, 9), (40, 41)]), without(whole, [(0, 7), (9, 40), (41, 99)])):
        assert part is not None
        assert part.messages() == [messages[7], messages[8], messages[40]]
        assert part.origins[0] is messages[7].origin and part.origins[-1] is messages[40].origin


def test_only_small_records_of_plain_topics_are_read_together_and_only_many() -> None:
    frames = records()
    large = record(MANY, MANY, value=Random(1).randbytes(2 * BARE_BYTES_MAX))
    folded = record(MANY, MANY, value=bytes(64 * BARE_BYTES_MAX))
    assert len(folded.body) < BARE_BYTES_MAX
    assert [len(run) for run in in_runs(frames, plain=True)] == [MANY]
    assert [len(run) for run in in_runs([*frames, large, *frames[:5]], plain=True)] == [MANY, 1, 1, 1, 1, 1, 1]
    assert [len(run) for run in in_runs([*frames, folded], plain=True)] == [MANY, 1]
    assert [len(run) for run in in_runs(frames, plain=False)] == [1] * MANY
    assert [len(run) for run in in_runs(frames[:5], plain=True)] == [1] * 5


def test_of_a_run_with_a_record_that_cannot_be_read_all_others_are_handed_out_and_credit_is_owed_once() -> None:
    frames = records()
    body = bytearray(frames[11].body)
    body[-1 - len(b"11")] ^= 1  # the last offset of the value
    frames[11] = frames[11]._replace(body=bytes(body))
    with pytest.raises(BadSegment):
        READER.read(frames, deliver(ALL))
    owed: list[int] = []
    lost: list[tuple[int, list[Span]]] = []
    deliveries = Deliveries(
        OrderGate(lambda: 0.0),
        InHand(),
        read=READER.read,
        owe=owed.append,
        on_unreadable=lambda shard, spans, reason: lost.append((shard, spans)),
    )
    info = Subscribed(1, "t", b"u" * 16, 1, "unique", "non_resilient", [0])
    deliveries.add(deliver([(0, MANY)]), frames, info)
    assert deliveries.queued() == [(0, (0, MANY))]
    batches: list[Batch] = []
    while (batch := deliveries.take()) is not None:
        batches.append(batch)
    entries = pa.chunked_array([batch.entries for batch in batches]).to_pylist()
    assert entries == [entry for entry in range(MANY) if entry != 11]
    assert lost == [(0, [(11, 12)])]
    assert sum(owed) == sum(OVERHEAD_BYTES + len(frame.body) for frame in frames)
    assert deliveries.last[0].first_entry == MANY - 1
