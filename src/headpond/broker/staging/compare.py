"""Whether a repeated batch has the rows that were committed under its number.

The rows of the first time are read back from their topics, those of the repeat from their stages. Repeats are
rare, so commits store and compute nothing for this. Both sides are the sum of a hash of every row, which does
not depend on order, shards or stages. What the node or the client added (``sent_at``, the position of a row)
does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from xxhash import xxh3_64_intdigest

from headpond.broker.catalog.topics import Catalog
from headpond.broker.staging.stage_file import read_segment
from headpond.broker.staging.stages import StageState
from headpond.broker.staging.writers import Committed
from headpond.model.errors import BatchDiffers, BatchOutOfTurn
from headpond.storage.disk import Disk
from headpond.storage.log.read import segment_of
from headpond.wire.plain.segment import decode_plain
from headpond.wire.typed.record import decode_typed_record

PORTION_BYTES = 8 * 1024 * 1024
"""How much a worker thread reads before others get their turn."""
_COLUMNS = ("value", "key", "id", "headers")
_NOTHING, _NO_LENGTH = pa.scalar(b"", pa.binary()), pa.scalar(b"-", pa.binary())
_SEPARATOR = pa.scalar(b"\x1f", pa.binary())


class Comparison:
    """A worker thread calls ``read`` until it returns False; then ``check`` raises how the rows differ."""

    def __init__(self, committed: Committed, stages: list[StageState], catalog: Catalog) -> None:
        self._committed = committed
        self._stages = stages
        topics = {*(stage.topic for stage in stages), *(run[0] for run in committed.runs)}
        self._topics = {uuid: catalog.by_uuid(uuid) for uuid in topics}
        self._steps: Iterator[int] | None = None
        self._rows = [0, 0]
        """Found: of the first time, of the repeat."""
        self._sums = [0, 0]

    def read(self, disk: Disk) -> bool:
        """Reads one portion; returns whether there is more."""
        self._steps = self._steps or self._read(disk)
        size = 0
        while size < PORTION_BYTES:
            if (read_bytes := next(self._steps, None)) is None:
                return False
            size += read_bytes
        return True

    def check(self, what: str) -> None:
        """Raises unless both sides have the same rows; ``what`` names the batch in the error."""
        if self._rows[0] != self._committed.rows:
            raise BatchOutOfTurn(
                f"{what} is a repeat, and only {self._rows[0]:,} of its {self._committed.rows:,} rows are "
                "still in their topics, so it cannot be compared; nothing was committed"
            )
        if self._sums[0] != self._sums[1]:
            raise BatchDiffers(
                f"{what} is a repeat with other rows, {self._rows[1]:,} as before; nothing was committed"
            )

    def _read(self, disk: Disk) -> Iterator[int]:
        """Yields bytes that were read."""
        for stage in self._stages:
            for number, chunk in enumerate(stage.chunks):
                segment = chunk.segment or read_segment(disk, chunk.place, stage.uuid, number)
                self._add(1, stage.topic, segment)
                yield len(segment)
        for topic, shard, block, first, count in self._committed.runs:
            if (found := self._topics[topic]) is None:
                continue
            log = found.shards[shard].log
            entry, end = log.find_time(self._committed.at_us), log.entry_durable
            wanted = set(range(first, first + count))
            while wanted and entry < end:
                run = log.read(entry, PORTION_BYTES)
                for record in run.records:
                    if record.header.block == block and record.segment in wanted:
                        wanted.remove(record.segment)
                        if record.header.count:
                            self._add(0, topic, segment_of(record))
                if run.next_entry <= entry:
                    break
                entry = run.next_entry
                yield sum(len(part) for record in run.records for part in record.parts)

    def _add(self, side: int, uuid: bytes, segment: bytes) -> None:
        topic = self._topics[uuid]
        schemas = None if topic is None else topic.schemas
        rows = decode_plain(segment) if schemas is None else decode_typed_record(segment, schemas)
        self._rows[side] += rows.num_rows
        if topic is not None and topic.is_state:  # compaction leaves nulls for the rows that it removed
            self._rows[side] -= rows.column("key").null_count
        self._sums[side] += rows_sum(rows) * (int.from_bytes(uuid) | 1)


def rows_sum(rows: pa.RecordBatch) -> int:
    """A number that is the same for the same messages in any order; sums of several batches are added."""
    columns = [_bytes(rows, name) for name in _COLUMNS]
    # The lengths follow: without them bytes could move from one column to the next, and null equal a value.
    lengths = [pc.binary_length(column).cast(pa.string()).cast(pa.binary()) for column in columns]
    joined = pc.binary_join_element_wise(
        *(column.fill_null(_NOTHING) for column in columns),
        *(length.fill_null(_NO_LENGTH) for length in lengths),
        _SEPARATOR,
    )
    return sum(map(xxh3_64_intdigest, joined.to_pylist()))


def _bytes(rows: pa.RecordBatch, name: str) -> Any:
    place = rows.schema.get_field_index(name)
    if place < 0:
        return pa.nulls(rows.num_rows, pa.binary())
    column = rows.column(place)
    if pt.is_binary(column.type) or pt.is_string(column.type):
        return column.cast(pa.binary())
    return pa.array([None if item is None else _text(item) for item in column.to_pylist()], pa.binary())


def _text(item: Any) -> bytes:
    """Headers, or the columns of a typed message: those that a newer schema added are null."""
    pairs = item.items() if isinstance(item, dict) else item
    return repr([(name, value) for name, value in pairs if value is not None]).encode()
