"""A fetch of some rows or some columns of records, in a worker thread, a bounded number of bytes at a time.

A filter leaves out records without a wanted row; the others stay as they are stored, with a mask of the rows.

A choice of columns removes the others from a record. The record keeps its header, with the checksum of the
frame that its producer made, and gets a new frame: the read has checked the stored one. A record without other
columns goes out as it is stored. Every message keeps the time at which it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headpond.broker.effects import Fetch
from headpond.model.errors import BadRequest
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire import frame
from headpond.wire.filter import Filter
from headpond.wire.frame import HEADER_BYTES, TRAILER, FrameType
from headpond.wire.plain.columns import NAMES, PLAIN_SCHEMA
from headpond.wire.plain.packed import facts_of, is_packed, stored_times, with_columns
from headpond.wire.plain.segment import UNFOLDED_BYTES_MAX, encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.typed.record import encode_typed_record, fill_messages, stored_rows, version_of
from headpond.wire.typed.schema import fit_messages
from headpond.wire.typed.versions import SchemaVersions

if TYPE_CHECKING:
    from headpond.storage.log.shard_log import ShardLog

MASK_BYTES_MAX = 512 * 1024
"""The most bytes of masks in one answer, so that they fit into its frame; the mask of one record does."""
ALWAYS = "sent_at"

_MICROS = pa.timestamp("us", tz="UTC")
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class ChosenFetch(Fetch):
    """Keeps the rows that ``wanted`` is true of, and ``columns``, as far as they are given."""

    wanted: Filter | None = None
    schemas: SchemaVersions | None = None
    """Of a typed topic; the filter sees rows in the newest."""
    masks: list[bytes] = field(default_factory=list)
    """Filled by a read with a filter: a bit for each row of each record, set for those that are wanted."""
    columns: frozenset[str] | None = None
    packed: bool = False

    def run(self, log: ShardLog) -> ReadResult:
        found = log.read(self.entry, self.bytes_max, packed=self.packed)
        if self.wanted is not None:
            found = self._filter(found, self.wanted)
        if self.columns is None:
            return found
        records = [_chosen(record, self.shard, self.columns, self.schemas) for record in found.records]
        return found._replace(records=records)

    def _filter(self, found: ReadResult, wanted: Filter) -> ReadResult:
        kept: list[StoredRecord] = []
        self.masks.clear()
        room = MASK_BYTES_MAX
        for record in found.records:
            mask = _mask(record, self.shard, wanted, self.schemas)
            if mask is None:
                continue
            room -= len(mask)
            if room < 0 and kept:  # compressed rows can be far more than their bytes
                at = record.header.first_entry
                return ReadResult(kept, at, [(start, min(end, at)) for start, end in found.lost if start < at])
            kept.append(record)
            self.masks.append(mask)
        return ReadResult(kept, found.next_entry, found.lost)


def check_columns(columns: list[str] | None) -> None:
    """Raises unless messages have these columns."""
    for name in columns or ():
        if name not in NAMES:
            raise BadRequest(f"a message has no column {name[:80]!r}", hint=f"There are {', '.join(NAMES)}.")


def check_filter(wanted: Filter, schemas: SchemaVersions | None) -> None:
    """Raises unless a filter fits the messages of a topic."""
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
    columns = _columns(rows, shard, header.first_entry, header.stored_at_us)
    if is_packed(body):
        columns["stored_at"] = stored_times(facts_of(body)).view(_MICROS)
    mask = wanted.mask(columns)
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
        if is_packed(segment):
            less = with_columns(segment, rows.select(kept))
        else:
            less = encode_plain(rows.select(kept), UNFOLDED_BYTES_MAX)
    else:
        less = _typed(rows, columns, schemas, version_of(segment))
        if len(less) >= len(segment):
            return record
    lead = body[:RECORD_HEADER_BYTES]
    bytes_now = frame.encode(FrameType.SEGMENT, lead + less, shard=shard, segment=record.segment)
    return record._replace(parts=[bytes_now])


def _typed(rows: pa.RecordBatch, columns: frozenset[str], schemas: SchemaVersions, version: int) -> bytes:
    """The columns of a typed record are part of its form: those left out are all null."""
    schema = schemas.messages(version)
    whole = fill_messages(rows, schema)
    arrays = [
        column if field.name == ALWAYS or field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field, column in zip(schema, whole.columns, strict=True)
    ]
    return encode_typed_record(pa.RecordBatch.from_arrays(arrays, schema=schema), version)
