"""Tables are cut into pieces for segments, however small or large their chunks are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headpond.client.produce.tables import Piece, cut_rows
from headpond.producer.encoder import Sharder

VALUE_BYTES = 100
TARGET = 20_000
"""Bytes of a piece."""


def pieces_of(rows: int, rows_each: int, *, keyed: bool) -> list[Piece]:
    columns = {"value": [f"{number:0{VALUE_BYTES}}" for number in range(rows)]}
    if keyed:
        columns["key"] = [f"k{number % 50}" for number in range(rows)]
    batches = pa.table(columns).to_batches(max_chunksize=rows_each)
    table = pa.Table.from_batches(batches)
    return list(cut_rows(table, Sharder(2), TARGET, schema=None, state=False))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("rows_each", [1, 7, 150, 5000])
def test_each_row_is_in_one_piece_of_about_the_target_and_its_place_is_known(
    rows_each: int, keyed: bool
) -> None:
    pieces = pieces_of(5000, rows_each, keyed=keyed)
    found: dict[int, int] = {}
    for piece in pieces:
        places = range(piece.batch.num_rows) if piece.places is None else piece.places.to_pylist()
        values = map(int, piece.batch.column("value").to_pylist())
        found |= {piece.first_row + place: value for place, value in zip(places, values, strict=True)}
    assert found == {number: number for number in range(5000)}
    small = [piece for piece in pieces if piece.batch.nbytes < TARGET // 2]
    assert len(small) <= 4, "a table of small chunks makes no small segments, except at its end"
    assert max(piece.batch.nbytes for piece in pieces) <= 2 * TARGET


def test_a_chunk_of_the_right_size_is_not_copied() -> None:
    value = pa.array([f"{number:0{VALUE_BYTES}}" for number in range(400)])
    table = pa.Table.from_batches([pa.record_batch({"value": part}) for part in (value[:200], value[200:])])
    pieces = list(cut_rows(table, Sharder(2), TARGET, schema=None, state=False))
    addresses = {piece.batch.column("value").buffers()[2].address for piece in pieces}
    assert len(pieces) == 2
    assert addresses == {value.buffers()[2].address}
