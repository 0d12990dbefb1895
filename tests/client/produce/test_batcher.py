"""Plain rows join the open parcel without the checks of other rows, and are refused and cut as those are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headpond.client.produce.batcher import ROW_BYTES, Batcher
from headpond.client.produce.values import TypedValues
from headpond.model.errors import KeyMissing, SchemaMismatch, SegmentTooLarge
from headpond.producer.encoder import Sharder

BYTES_MAX = 10 * (ROW_BYTES + 100)


def batcher(
    *, row_bytes_max: int = BYTES_MAX, typed: TypedValues | None = None, state: bool = False, power: int = 0
) -> Batcher:
    made = Batcher(1000)
    made.begin("t", Sharder(power), bytes_max=BYTES_MAX, row_bytes_max=row_bytes_max, typed=typed, state=state)
    return made


def test_a_parcel_of_plain_rows_is_sealed_before_it_is_too_large() -> None:
    it = batcher()
    for _ in range(25):
        it.add(bytes(100), None, None, None)
    it.seal_all()
    assert [(parcel.rows, parcel.size) for parcel in it.sealed] == [
        (10, BYTES_MAX),
        (10, BYTES_MAX),
        (5, BYTES_MAX // 2),
    ]


def test_a_plain_row_behind_others_is_refused_if_it_is_too_large() -> None:
    it = batcher(row_bytes_max=ROW_BYTES + 100)
    it.add(bytes(10), None, None, None)
    with pytest.raises(SegmentTooLarge):
        it.add(bytes(101), None, None, None)


def test_bytes_behind_a_row_of_a_typed_topic_are_refused() -> None:
    it = batcher(typed=TypedValues(pa.schema([("n", pa.int64())])))
    it.add({"n": 1}, None, None, None)
    with pytest.raises(SchemaMismatch):
        it.add(b"tea", None, None, None)


def test_a_plain_row_behind_one_with_a_key_of_a_state_topic_is_refused() -> None:
    it = batcher(state=True)
    it.add(b"tea", b"k", None, None)
    with pytest.raises(KeyMissing):
        it.add(b"tea", None, None, None)


def test_plain_rows_go_to_the_next_shard_after_their_parcel_is_sealed() -> None:
    it = batcher(power=1)
    for _ in range(4):
        it.add(b"one", None, None, None)
        it.add(b"two", None, None, None)
        it.seal_all()
    assert [(parcel.shard, parcel.values) for parcel in it.sealed] == [
        (n % 2, [b"one", b"two"]) for n in range(4)
    ]
