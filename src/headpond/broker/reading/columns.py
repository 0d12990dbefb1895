"""A fetch of some columns: the others are removed from the records before they travel.

A record keeps its header, with the checksum of the frame that its producer made, and gets a frame of its own:
what was read was checked against the one on the disk. One that has no other columns than those wanted goes as
it is stored. When it was sent belongs to every message and stays. It runs in a worker thread, as filters do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headpond.broker.reading.filter import FilteredFetch
from headpond.model.errors import BadRequest
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire import frame
from headpond.wire.frame import HEADER_BYTES, TRAILER, FrameType
from headpond.wire.plain.columns import NAMES
from headpond.wire.plain.segment import UNFOLDED_BYTES_MAX, encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.typed.record import encode_typed_record, fill_messages, stored_rows, version_of
from headpond.wire.typed.versions import SchemaVersions

if TYPE_CHECKING:
    from headpond.storage.log.shard_log import ShardLog

ALWAYS = "sent_at"


@dataclass(frozen=True, slots=True)
class ChosenFetch(FilteredFetch):
    """Reads as ``FilteredFetch`` does if there is a filter; keeps only ``columns``, if they are given."""

    columns: frozenset[str] | None = None

    def run(self, log: ShardLog) -> ReadResult:
        found = log.read(self.entry, self.bytes_max) if self.wanted is None else FilteredFetch.run(self, log)
        if self.columns is None:
            return found
        records = [_chosen(record, self.shard, self.columns, self.schemas) for record in found.records]
        return found._replace(records=records)


def check_columns(columns: list[str] | None) -> None:
    """Refuses what no message has."""
    for name in columns or ():
        if name not in NAMES:
            raise BadRequest(f"a message has no column {name[:80]!r}", hint=f"There are {', '.join(NAMES)}.")


def _chosen(
    record: StoredRecord, shard: int, columns: frozenset[str], schemas: SchemaVersions | None
) -> StoredRecord:
    whole = b"".join(record.parts)
    body = whole[HEADER_BYTES : -TRAILER.size]
    segment = body[RECORD_HEADER_BYTES:]
    rows = stored_rows(segment, schemas)
    if schemas is None:
        kept = [name for name in rows.schema.names if name == ALWAYS or name in columns]
        if len(kept) == rows.num_columns:
            return record
        less = encode_plain(rows.select(kept), UNFOLDED_BYTES_MAX)
    else:
        less = _typed(rows, columns, schemas, version_of(segment))
        if len(less) >= len(segment):
            return record
    lead = body[:RECORD_HEADER_BYTES]
    bytes_now = frame.encode(FrameType.SEGMENT, lead + less, shard=shard, segment=record.segment)
    return record._replace(parts=[bytes_now])


def _typed(rows: pa.RecordBatch, columns: frozenset[str], schemas: SchemaVersions, version: int) -> bytes:
    """In a typed topic's record a value stays what it is, all null: its columns are part of the form."""
    schema = schemas.messages(version)
    whole = fill_messages(rows, schema)
    arrays = [
        column if field.name == ALWAYS or field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field, column in zip(schema, whole.columns, strict=True)
    ]
    return encode_typed_record(pa.RecordBatch.from_arrays(arrays, schema=schema), version)
