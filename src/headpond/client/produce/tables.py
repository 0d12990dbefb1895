"""A user's table, cut into pieces that are each one segment of one shard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import BadRequest, KeyMissing, SchemaMismatch, ValueMissing
from headpond.producer.encoder import Sharder
from headpond.wire.plain.columns import PLAIN_SCHEMA, cut_batch, table_to_batches
from headpond.wire.typed.rows import messages_of, shard_column

SPLIT_BYTES_MAX = 4 * 1024 * 1024
"""How much of a table with keys is split by shard at a time: each shard's piece is near a whole segment."""


class Piece(NamedTuple):
    shard: int
    batch: pa.RecordBatch
    first_row: int
    """The table's row that the piece's rows are counted from."""
    places: pa.Array | None
    """Where each row stood, counted from ``first_row``; None where they follow in a run."""


def take_shards(
    table: pa.Table | pa.RecordBatch, name: str = "shard"
) -> tuple[pa.Table | pa.RecordBatch, pa.Array | None]:
    """A table without the column that names each row's shard, and that column."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return table, None
    kind = table.schema.field(place).type
    if not pt.is_integer(kind) and not pt.is_null(kind):
        raise SchemaMismatch(f"column {name!r} is {kind}; it must be a whole number, the number of a shard")
    column = table.column(place)
    try:
        shards = column.cast(pa.uint16())
    except pa.ArrowException as error:
        raise SchemaMismatch(f"column {name!r}: {error}; it must be the number of a shard") from error
    whole = shards.combine_chunks() if isinstance(shards, pa.ChunkedArray) else shards
    return table.drop_columns([name]), whole


def cut_rows(
    table: pa.Table | pa.RecordBatch,
    sharder: Sharder,
    bytes_target: int,
    *,
    schema: pa.Schema | None,
    state: bool | None,
    may_name_shards: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Piece]:
    """Pieces of about ``bytes_target`` in the table's order; a table at fault raises before the first piece.

    ``schema`` is that of a typed topic, ``state`` whether it is a state topic. With ``may_name_shards`` a
    column may name the shards of rows (``take_shards``). ``headers`` are added to rows that have none of them.
    """
    sent_at_us = time.time_ns() // 1000
    shards: pa.Array | None = None
    if may_name_shards:
        table, shards = take_shards(table, "shard" if schema is None else shard_column(table.schema, schema))
    if schema is not None:
        batches: Iterable[pa.RecordBatch] = messages_of(table, schema, sent_at_us, state=bool(state))
        block_bytes = _block_bytes(sharder, bytes_target, keyed=True)
        return _pieces(batches, sharder, shards, partial(_slices, bytes_target), headers, block_bytes)
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise BadRequest(
            f"send_batch takes an Arrow table or record batch, not {type(table).__name__}",
            hint="Make one: pa.table({'value': [...]}), pa.Table.from_pandas(frame), …",
        )
    check_state_table(table, state)
    keyed = sharder.mask > 0 and ("key" in table.schema.names or shards is not None)
    block_bytes = _block_bytes(sharder, bytes_target, keyed=keyed)
    batches = table_to_batches(table, sent_at_us, block_bytes)
    return _pieces(batches, sharder, shards, lambda rows: cut_batch(rows, bytes_target), headers, block_bytes)


def _block_bytes(sharder: Sharder, bytes_target: int, *, keyed: bool) -> int:
    """How much to split by shard at a time."""
    return max(bytes_target, min(bytes_target * (sharder.mask + 1), SPLIT_BYTES_MAX)) if keyed else bytes_target


def _pieces(
    batches: Iterable[pa.RecordBatch],
    sharder: Sharder,
    shards: pa.Array | None,
    cut: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
    headers: Mapping[str, str] | None,
    block_bytes: int,
) -> Iterator[Piece]:
    if headers:
        batches = (with_headers(batch, headers) for batch in batches)
    first = 0
    for block in gather(batches, block_bytes):
        chosen = None if shards is None else shards.slice(first, block.num_rows)
        for shard, rows, places in sharder.split(block, chosen):
            at = 0
            for piece in cut(rows):
                where = None if places is None else places.slice(at, piece.num_rows)
                yield Piece(shard, piece, first if places is not None else first + at, where)
                at += piece.num_rows
        first += block.num_rows


def gather(batches: Iterable[pa.RecordBatch], bytes_target: int) -> Iterator[pa.Table]:
    """Small batches in tables of about the target; nothing is copied."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > bytes_target * 3 // 2:
            yield pa.Table.from_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
        if size >= bytes_target:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def with_headers(batch: pa.RecordBatch, headers: Mapping[str, str]) -> pa.RecordBatch:
    """The rows with these headers, but for those that have one of them already."""
    added, field = list(headers.items()), PLAIN_SCHEMA.field("headers")
    place = batch.schema.get_field_index("headers")
    own = None if place < 0 else batch.column(place)
    if own is None or own.null_count == len(own):
        column = pa.repeat(pa.scalar(added, field.type), batch.num_rows)
    else:
        column = pa.array([_with(items or [], added) for items in own.to_pylist()], field.type)
    if own is None:
        return batch.add_column(batch.schema.get_field_index("sent_at"), field, column)
    return batch.set_column(place, field, column)


def _with(items: list[tuple[str, str]], added: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = {name for name, _ in items}
    return items if any(name in names for name, _ in added) else [*items, *added]


def _slices(bytes_target: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, min(rows.num_rows, bytes_target * rows.num_rows // max(rows.nbytes, 1)))
    return (rows.slice(at, step) for at in range(0, rows.num_rows, step))


def check_state_table(table: pa.Table | pa.RecordBatch, state: bool | None) -> None:
    """A state topic's rows have keys, and only they may have no value; the node asks the same."""
    names = table.schema.names
    if state and "value" in names and ("key" not in names or table.column("key").null_count):
        raise KeyMissing("a row of the table has no key, and the topic is a state topic")
    if state is False and "value" in names and table.column("value").null_count:
        raise ValueMissing("a row of the table has no value, and the topic is no state topic")
