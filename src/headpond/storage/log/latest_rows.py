"""Finds the latest row of every key: takes record batches in any order, returns a set of entries.

It collects rows and merges them with the known keys by Arrow's grouping: Python touches no row. It merges when
as many rows wait as keys are known, so that each row is merged only a few times. Memory is that of the distinct
keys, and the same again for the waiting rows.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.entry_set import EntrySet
from headpond.wire.typed.record import stored_rows
from headpond.wire.typed.versions import SchemaVersions

MERGE_ROWS_MIN = 64 * 1024
BYTES_MAX = 1024 * 1024 * 1024
"""Arrow groups keys with 32-bit offsets, which reach this far, five times as fast as those with 64-bit ones."""


class Latest(NamedTuple):
    entries: EntrySet
    """The last row of every key, deletes included."""
    lonely: EntrySet
    """Those among them whose key has no earlier row."""


class LatestRows:
    def __init__(self) -> None:
        self._known: pa.Table | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        known = self._known.nbytes if self._known is not None else 0
        return int(known) + sum(int(table.nbytes) for table in self._waiting)

    def add(self, keys: pa.Array, entries: pa.Array) -> None:
        """Adds rows with their entries; ignores rows whose key is null."""
        if keys.null_count:
            there = keys.is_valid()
            keys, entries = keys.filter(there), entries.filter(there)
        if len(keys):
            self._waiting.append(pa.table({"key": keys, "last": entries, "first": entries}))
            self._waiting_rows += len(keys)
        known_rows = self._known.num_rows if self._known is not None else 0
        if self._waiting_rows >= max(MERGE_ROWS_MIN, known_rows):
            self.merge()

    def merge(self) -> None:
        if not self._waiting:
            return
        tables = [*([self._known] if self._known is not None else []), *self._waiting]
        groups = pa.concat_tables(tables).group_by("key", use_threads=False)
        found = groups.aggregate([("last", "max"), ("first", "min")])
        self._known = pa.table(
            {"key": found.column("key"), "last": found.column("last_max"), "first": found.column("first_min")}
        )
        self._waiting, self._waiting_rows = [], 0

    def found(self) -> Latest:
        self.merge()
        if self._known is None:
            return Latest(EntrySet(), EntrySet())
        last, first = self._known.column("last"), self._known.column("first")
        alone = pc.equal(last, first)
        return Latest(as_entries(last), as_entries(last.filter(alone)))


def keyless_rows(segment: bytes, first: int, schemas: SchemaVersions | None) -> EntrySet:
    """Entries of rows without a key. A state topic accepts none: compaction has removed these."""
    return _null_rows(stored_rows(segment, schemas), "key", first)


def removed_rows(segment: bytes, first: int, schemas: SchemaVersions | None) -> EntrySet:
    """Entries of rows without key and value. No topic accepts one: compaction has removed these."""
    rows = stored_rows(segment, schemas)
    return _null_rows(rows, "key", first).common(_null_rows(rows, "value", first))


def _null_rows(rows: pa.RecordBatch, name: str, first: int) -> EntrySet:
    if name not in rows.schema.names:
        return EntrySet.of([(first, first + rows.num_rows)])
    column = rows.column(name)
    if not column.null_count:
        return EntrySet()
    return EntrySet.of_entries(first + row for row in pc.indices_nonzero(column.is_null()).to_pylist())


def as_entries(numbers: pa.ChunkedArray | pa.Array) -> EntrySet:
    """A column of entries as a set."""
    found = EntrySet()
    chunks = numbers.chunks if isinstance(numbers, pa.ChunkedArray) else [numbers]
    for chunk in chunks:
        if len(chunk):
            view = memoryview(chunk.buffers()[1]).cast("Q")
            found.include(EntrySet.of_entries(view[chunk.offset : chunk.offset + len(chunk)]))
    return found
