"""Which entries are meant by chosen rows of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headpond.client.consume.batch import Batch, without
from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import BadRequest
from headpond.model.message import Origin
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.few_rows import read_few
from headpond.wire.plain.segment import decode_plain, encode_plain


@pytest.mark.parametrize("keys", [None, [b"k1", b"k2"]])
@pytest.mark.parametrize("ids", [None, ["i1", "i2"]])
def test_a_batch_of_a_few_rows_is_like_one_of_arrow(keys: list[bytes] | None, ids: list[str] | None) -> None:
    segment = encode_plain(rows_to_batch([b"v1", b"value 2"], keys, ids, None, [5, 6]))
    rows = read_few(segment)
    assert rows is not None
    origin = Origin("t", 0, 100, b"b" * 16, 0, 9, "n", 2)
    few, usual = (Batch(each, [origin], [(100, 102)], 3) for each in (rows, decode_plain(segment)))
    assert few.messages() == usual.messages()
    assert (len(few), few.counts) == (2, [2])
    assert few.arrow.equals(usual.arrow) and few.column("key") == usual.column("key")
    rest, usual_rest = without(few, [(100, 101)]), without(usual, [(100, 101)])
    assert rest is not None and usual_rest is not None and rest.messages() == usual_rest.messages()


def batch_of(count: int) -> Batch:
    rows = rows_to_batch([b"x"] * count, None, None, None, [1] * count)
    return Batch(rows, [Origin("t", 0, 100, b"b" * 16, 0, 0, "n")], [(100, 102), (110, 110 + count - 2)], 1)


@pytest.mark.parametrize(
    ("rows", "spans"),
    [
        ([0, 1, 2], [(100, 102), (110, 111)]),
        ([3, 1, 1], [(101, 102), (111, 112)]),
        (np.array([0, 3]), [(100, 101), (111, 112)]),
        ([], []),
        ([True, False, True, False], [(100, 101), (110, 111)]),
        (np.array([False, False, True, True]), [(110, 112)]),
        ([None, True, None, True], [(101, 102), (111, 112)]),
        (pa.array([None, False, True, None]), [(110, 111)]),
        ([None] * 4, []),
    ],
)
def test_rows_are_chosen_by_number_or_by_a_mask_in_which_null_is_no(
    rows: object, spans: list[tuple[int, int]]
) -> None:
    assert batch_of(4).select(rows) == spans


@pytest.mark.parametrize(
    "rows", [[-1], [0, -4], [4], [True], [None, True], [None], [0, None], [1.5], ["0"], [[0]]], ids=repr
)
def test_rows_that_cannot_be_meant_are_refused(rows: object) -> None:
    with pytest.raises(BadRequest):
        batch_of(4).select(rows)


def test_everything_up_to_an_entry_is_taken_out_of_a_batch_however_far_into_a_log_it_stands() -> None:
    left = without(batch_of(4), [(0, 111), (200, ENTRY_MAX)])
    assert left is not None and left.spans == [(111, 112)]
    assert without(batch_of(4), [(0, ENTRY_MAX)]) is None
