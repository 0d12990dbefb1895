"""Reading a state topic's shard for what is current: the last row of every key, up to an end.

A step reads so many bytes and is run by a worker thread; between two steps others have their turn. The cost is
one read of the shard's log, which compaction keeps in proportion to its keys. Memory is what the keys take;
where that is more than ``bytes_max``, the keys are done in parts, by their hash, with one read of the log for
each part.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.node.core.latest_rows import BYTES_MAX, LatestRows, as_entries
from headpond.node.core.log import ShardLog, StoredRecord
from headpond.node.core.log_reader import segment_of
from headpond.wire.schema_versions import SchemaVersions
from headpond.wire.typed_record import stored_rows

STEP_BYTES = 8 * 1024 * 1024
"""Read in one step, unless a single record is larger."""
PARTS_MAX = 1024
_HASH_SHIFT = 32
"""The low bits of a key's hash chose the shard: they are the same for all keys of it."""


class StateScan:
    def __init__(self, log: ShardLog, bytes_max: int, schemas: SchemaVersions | None) -> None:
        self.end = log.entry_durable
        """What is found is what was current here."""
        self.latest = EntrySet()
        """The last row of every key."""
        self.lonely = EntrySet()
        """Of these, the ones whose key has no earlier row."""
        self.deletes = EntrySet()
        """All rows without a value."""
        self.keyless = EntrySet()
        """Rows without a key: compaction took them out, or nobody said which key they are of."""
        self.unread = EntrySet()
        """Entries of records that cannot be read."""
        self.finished = False
        self._log = log
        self._schemas = schemas
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._part, self._parts = 0, 1
        self._numbers = pa.array(range(1024), pa.int64())
        self._begin()

    @property
    def current(self) -> EntrySet:
        """The entries that are the value of their key."""
        found = self.latest.copy()
        found.exclude(self.deletes)
        return found

    def _begin(self) -> None:
        self._rows = LatestRows()
        self._at = self._log.entry_first

    def step(self) -> None:
        """Reads some more; an ``OSError`` of the disk goes to the caller."""
        if self._at < self.end:
            run = self._log.read(self._at, STEP_BYTES)
            for record in run.records:
                if record.header.first_entry < self.end:
                    self._take(record)
            self._at = run.next_entry
            if self._rows.bytes > self._bytes_max:
                self._rows.merge()
            if self._rows.bytes > self._bytes_max and self._parts < PARTS_MAX:
                self._split()
                return
        if self._at >= self.end:
            self._end_part()

    def _take(self, record: StoredRecord) -> None:
        first, count = record.header.first_entry, record.header.count
        try:
            batch = stored_rows(segment_of(record), self._schemas)
        except HeadpondError:
            self.unread.add(first, first + count)
            return
        if "key" not in batch.schema.names:
            self.keyless.add(first, first + count)
            return
        entries = self._entries(first, count)
        keys = batch.column("key")
        if self._part == 0:
            self._note_deletes(batch, entries)
            if keys.null_count:
                self.keyless.include(as_entries(entries.filter(keys.is_null())))
        if self._parts > 1:
            mine = pa.array([key is not None and self._is_mine(key) for key in keys.to_pylist()])
            keys, entries = keys.filter(mine), entries.filter(mine)
        self._rows.add(keys, entries)

    def _note_deletes(self, batch: pa.RecordBatch, entries: pa.Array) -> None:
        if "value" not in batch.schema.names:
            self.deletes.include(as_entries(entries))
        elif (values := batch.column("value")).null_count:
            self.deletes.include(as_entries(entries.filter(values.is_null())))

    def _entries(self, first: int, count: int) -> pa.Array:
        if count > len(self._numbers):
            self._numbers = pa.array(range(2 * count), pa.int64())
        return pc.add(self._numbers.slice(0, count), pa.scalar(first, pa.int64()))

    def _is_mine(self, key: bytes) -> bool:
        return (xxh3_64_intdigest(key) >> _HASH_SHIFT) % self._parts == self._part

    # --- parts --------------------------------------------------------------------------------------

    def _split(self) -> None:
        """There are too many keys for one go: it begins anew, with fewer of them at a time."""
        self._parts *= 2
        self._part = 0
        for found in (self.latest, self.lonely, self.deletes, self.keyless, self.unread):
            found.clear()
        self._begin()

    def _end_part(self) -> None:
        latest, lonely = self._rows.found()
        self.latest.include(latest)
        self.lonely.include(lonely)
        self._part += 1
        if self._part == self._parts:
            self.finished = True
        else:
            self._begin()
