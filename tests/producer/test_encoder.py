from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import SchemaMismatch
from headpond.producer.encoder import Sharder

KEYS = st.lists(st.none() | st.binary(max_size=4), min_size=1, max_size=60)


def batch_of(keys: list[bytes | None]) -> pa.RecordBatch:
    rows = [b"%d" % row for row in range(len(keys))]
    return pa.record_batch({"value": pa.array(rows, pa.binary()), "key": pa.array(keys, pa.binary())})


@pytest.mark.parametrize(("key", "shard"), [(b"", 2), (b"a", 15), (b"customer-17", 12), (b"\x00\xff", 3)])
def test_the_shard_of_a_key_never_changes(key: bytes, shard: int) -> None:
    """These values are part of the protocol: a client that computed others would break the order of keys."""
    assert Sharder(4).of_key(key) == shard


@settings(max_examples=60, deadline=None)
@given(keys=KEYS, power=st.integers(0, 5), turn=st.integers(0, 31), chunk=st.none() | st.integers(1, 5))
def test_splitting_keeps_every_row_once_in_order_on_the_shard_of_its_key(
    keys: list[bytes | None], power: int, turn: int, chunk: int | None
) -> None:
    sharder = Sharder(power, turn)
    keyless = sharder.turn
    seen: list[int] = []
    given_rows: pa.RecordBatch | pa.Table = batch_of(keys)
    if chunk is not None:
        given_rows = pa.Table.from_batches(given_rows.slice(at, chunk) for at in range(0, len(keys), chunk))
    for shard, rows, places in sharder.split(given_rows):
        assert isinstance(rows, pa.RecordBatch)
        numbers = [int(value) for value in rows.column("value").to_pylist()]
        assert numbers == sorted(numbers)
        if places is not None:
            assert places.to_pylist() == numbers
        for number, key in zip(numbers, rows.column("key").to_pylist(), strict=True):
            assert key == keys[number]
            assert shard == (keyless if key is None else sharder.of_key(key))
        seen += numbers
    assert sorted(seen) == list(range(len(keys)))


def test_rows_may_name_their_shard_if_it_is_the_one_of_their_key() -> None:
    sharder = Sharder(2, turn=1)
    keys = [None, b"a", None, b"b", None]
    chosen = pa.array([3, None, 0, sharder.of_key(b"b"), None], pa.uint16())
    found = {
        place: shard
        for shard, _, places in sharder.split(batch_of(keys), chosen)
        for place in (places.to_pylist() if places is not None else range(5))
    }
    assert [found[place] for place in range(5)] == [3, sharder.of_key(b"a"), 0, sharder.of_key(b"b"), 1]
    keyless = Sharder(2, turn=1).split(batch_of([None] * 3), pa.array([2, None, 2], pa.uint16()))
    assert [(shard, rows.num_rows) for shard, rows, _ in keyless] == [(1, 1), (2, 2)]
    for wrong in (
        pa.array([4, None, None, None, None], pa.uint16()),
        pa.array([None, 3 - found[1]] + [None] * 3),
    ):
        with pytest.raises(SchemaMismatch):
            sharder.split(batch_of(keys), wrong.cast(pa.uint16()))
    assert Sharder(0).split(batch_of([b"a"]), pa.array([0], pa.uint16()))[0][0] == 0


def test_segments_without_keys_go_round_the_shards() -> None:
    sharder = Sharder(2, turn=3)
    shards = [sharder.split(batch_of([None, None]))[0][0] for _ in range(5)]
    assert shards == [3, 0, 1, 2, 3]


def test_rows_without_a_key_among_others_end_their_turn_too() -> None:
    sharder = Sharder(2, turn=0)
    for turn in (0, 1, 2, 3, 0):
        assert sharder.turn == turn
        sharder.split(batch_of([b"a", None, b"b"]))
    sharder.split(batch_of([b"a", b"b"]))
    assert sharder.turn == 1


def test_a_table_without_a_key_column_stays_whole() -> None:
    rows = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})
    [(_, piece, places)] = Sharder(3).split(rows)
    assert piece.equals(rows)
    assert places is None
