"""The bytes of a refill file that other code depends on: row counts of segments, offsets of statuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headpond.model.errors import BadFrame
from headpond.producer.refill.form import (
    HEAD_BYTES,
    REJECTIONS_A_FRAME,
    Rejection,
    Rejections,
    Status,
    decode_body,
    encode_rejections,
    encode_status,
    rows_of,
)
from headpond.wire.frame import FILE_BODY_BYTES_MAX, FrameType, decode_at
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.typed.codec import RowEncoder


@pytest.mark.parametrize("rows", [1, 2, 127, 128, 300, 20_000])
def test_the_rows_of_every_form_of_segment_are_counted(rows: int) -> None:
    plain = encode_plain(rows_to_batch([b"v"] * rows, None, None, None, [0] * rows))
    schema = pa.schema([pa.field("n", pa.int64())])
    typed, _ = RowEncoder(schema, 0).encode(pa.RecordBatch.from_arrays([pa.array(range(rows))], schema=schema))
    for body in (plain, typed.body):
        assert rows_of(body) == rows_of(body[:HEAD_BYTES]) == rows


@pytest.mark.parametrize("body", [b"", b"\x03", b"\x03" + b"\xff" * 20, b"\x01", b"\xff" * 20])
def test_rows_of_anything_at_all_are_a_number_that_fits(body: bytes) -> None:
    assert 0 <= rows_of(body) < 2**32


def test_a_status_names_its_place() -> None:
    for place in (0, 5, 2**32 + 7):
        frame = decode_at(encode_status(Status(3), place), 0, 1000)
        assert frame is not None
        assert (frame.type, frame.segment) == (FrameType.STATUS, place % 2**32)


def test_many_rejections_are_several_frames() -> None:
    many = [Rejection("a", 0, n, n + 1) for n in range(REJECTIONS_A_FRAME + 1)]
    found = []
    for raw in encode_rejections(many):
        frame = decode_at(raw, 0, FILE_BODY_BYTES_MAX)
        assert frame is not None
        found.append(decode_body(frame.body, Rejections).entries)
    assert [len(each) for each in found] == [REJECTIONS_A_FRAME, 1]
    assert [entry for each in found for entry in each] == many
    assert list(encode_rejections([])) == []


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91\xff", b"\x91\xa1x", b"\x92\x01\x91\x93\xcd\xff\xff\x00\x01"]
)
def test_a_body_that_is_none_is_a_bad_frame(body: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_body(body, Status)
