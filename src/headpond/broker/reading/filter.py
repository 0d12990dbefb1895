"""A fetch that looks at rows: records without a wanted row are left out, the others have a mask.

Records stay as they are stored. It runs in a worker thread, a bounded number of bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headpond.broker.effects import Fetch
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.filter import Filter
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.columns import PLAIN_SCHEMA
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.typed.record import fill_messages, stored_rows
from headpond.wire.typed.schema import fit_messages
from headpond.wire.typed.versions import SchemaVersions

if TYPE_CHECKING:
    from headpond.storage.log.shard_log import ShardLog

MASK_BYTES_MAX = 512 * 1024
"""The most bytes of masks in one answer, so that they fit into its frame; one record's do."""

_MICROS = pa.timestamp("us", tz="UTC")
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class FilteredFetch(Fetch):
    """Reads as ``Fetch`` does, and keeps what ``wanted`` is true of."""

    wanted: Filter | None = None
    schemas: SchemaVersions | None = None
    """Of a typed topic; rows are looked at in the newest."""
    masks: list[bytes] = field(default_factory=list)
    """Filled by the read: a bit for each row of each record that it brings, set for those that are wanted."""

    def run(self, log: ShardLog) -> ReadResult:
        assert self.wanted is not None
        found = log.read(self.entry, self.bytes_max)
        kept: list[StoredRecord] = []
        self.masks.clear()
        room = MASK_BYTES_MAX
        for record in found.records:
            mask = _mask(record, self.shard, self.wanted, self.schemas)
            if mask is None:
                continue
            room -= len(mask)
            if room < 0 and kept:  # compressed rows can be far more than their bytes
                at = record.header.first_entry
                return ReadResult(kept, at, [(start, min(end, at)) for start, end in found.lost if start < at])
            kept.append(record)
            self.masks.append(mask)
        return ReadResult(kept, found.next_entry, found.lost)


def check_filter(wanted: Filter, schemas: SchemaVersions | None) -> None:
    """Refuses a filter that a topic's messages cannot be held against."""
    schema = PLAIN_SCHEMA if schemas is None else schemas.messages(schemas.version)
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    wanted.check(_columns(empty, 0, 0, 0))


def _mask(record: StoredRecord, shard: int, wanted: Filter, schemas: SchemaVersions | None) -> bytes | None:
    """A bit for each row, as Arrow packs them; None where no row is wanted."""
    body = record.parts[0][_LEAD_BYTES : -TRAILER.size]
    header = record.header
    rows = stored_rows(body, schemas, header.stored_at_us)
    if schemas is None:
        rows = fill_messages(rows, PLAIN_SCHEMA)
    else:
        rows = fill_messages(fit_messages(rows, schemas.newest), schemas.messages(schemas.version))
    mask = wanted.mask(_columns(rows, shard, header.first_entry, header.stored_at_us))
    if not mask.true_count:
        return None
    assert mask.offset == 0, "it was computed just now"
    return bytes(mask.buffers()[1][: (len(mask) + 7) // 8])


def _columns(rows: pa.RecordBatch, shard: int, first: int, stored_at_us: int) -> dict[str, pa.Array]:
    count = rows.num_rows
    return {
        **dict(zip(rows.schema.names, rows.columns, strict=True)),
        "shard": pa.repeat(pa.scalar(shard, pa.int32()), count),
        "entry": pa.array(range(first, first + count), pa.int64()),
        "stored_at": pa.repeat(pa.scalar(stored_at_us, _MICROS), count),
    }
