"""One pass of compaction over a shard of a state topic: plans which rows to remove, then rewrites files.

A row stays if it

1. is the latest of its key and no delete;
2. is the latest of its key and a delete that is younger than ``tombstone_ttl``, or that has an earlier row of
   its key in the log: without the delete that row would be the latest again. A later pass removes the delete;
3. is owed to a subscription: not settled there, or a dead letter that can be offered again;
4. is in the file that is being written, or in a damaged one.

A new subscription may come to owe rows while a file is rewritten. The pass checks that again before the new
file replaces the old ones; from then on no subscription can. So every subscription has settled all removed
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.storage.disk import Disk
from headpond.storage.log.latest_rows import BYTES_MAX, LatestRows, as_entries
from headpond.storage.log.read import ClosedFile, FileView, StoredRecord, segment_of
from headpond.storage.log.rewrite import Rewrite
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.long_work import ShardPlace
from headpond.wire.typed.record import stored_rows
from headpond.wire.typed.versions import SchemaVersions

STEP_BYTES = 8 * 1024 * 1024
"""How many bytes one step reads, unless a single record is larger."""
PARTS_MAX = 1024
RUN_BYTES_MAX = 128 * 1024 * 1024
"""How many bytes the pass reads for one new file."""
SHARE_MIN = 0.05
"""The share of removable rows from which a pass that no user requested rewrites a run."""
MERGE_FILES = 8
"""This many small neighbouring files become one, whatever is removed."""
_HASH_SHIFT = 32
"""The low bits of a key's hash choose the shard, so all keys of a shard share them."""


class StateScan:
    """Finds the current rows of a state topic's shard: the last row of every key, up to an end.

    A worker thread runs one step at a time. The cost is one read of the shard's log, which compaction keeps in
    proportion to its keys. Memory is what the keys take; if that exceeds ``bytes_max``, the scan divides the
    keys by their hash into parts and reads the log once for each part.
    """

    def __init__(self, log: ShardLog, bytes_max: int, schemas: SchemaVersions | None) -> None:
        self.end = log.entry_durable
        """The scan finds the rows that are current at this entry."""
        self.latest = EntrySet()
        """The last row of every key."""
        self.lonely = EntrySet()
        """The latest rows whose key has no earlier row."""
        self.deletes = EntrySet()
        """All rows without a value."""
        self.keyless = EntrySet()
        """Rows without a key: compaction has removed them, or their sender gave none."""
        self.unread = EntrySet()
        """Entries of unreadable records."""
        self.finished = False
        self._log = log
        self._schemas = schemas
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._part, self._parts = 0, 1
        self._numbers = pa.array(range(1024), pa.int64())
        self._begin()

    @property
    def current(self) -> EntrySet:
        """The entries that hold the value of their key."""
        found = self.latest.copy()
        found.exclude(self.deletes)
        return found

    def _begin(self) -> None:
        self._rows = LatestRows()
        self._at = self._log.entry_first

    def step(self) -> None:
        """Reads one step; an ``OSError`` of the disk goes to the caller."""
        if self._at < self.end:
            run = self._log.read(self._at, STEP_BYTES, packed=True)
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
            mine = pa.array([key is not None and self._part == self._part_of(key) for key in keys.to_pylist()])
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

    def _part_of(self, key: bytes) -> int:
        return (xxh3_64_intdigest(key) >> _HASH_SHIFT) % self._parts

    # --- parts --------------------------------------------------------------------------------------

    def _split(self) -> None:
        """The keys exceed the memory: starts again with twice as many parts."""
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


@dataclass(slots=True)
class CompactionResult:
    """The result of a pass."""

    bytes_before: int = 0
    bytes_after: int = 0
    taken_out: int = 0
    files: int = 0
    """How many files were rewritten."""
    failed: bool = False
    fault: str = ""
    """The error of the disk, if one made it fail."""


Steps = Generator[Callable[[Disk], None], OSError | None, None]
"""Work for a worker thread, step by step; each step comes back with the error of the disk, if any."""


class Compaction:
    """A job: scans the shard, plans, then rewrites and replaces one run of files after the other."""

    def __init__(
        self,
        place: ShardPlace,
        log: ShardLog,
        scan: StateScan,
        *,
        owed: Callable[[int, int], EntrySet | None],
        old_before_us: int,
        thorough: bool,
        counters: Counter[str],
        then: Callable[[CompactionResult], None],
    ) -> None:
        """``owed`` returns the entries of a span that subscriptions still need; None once the topic is gone.

        Deletes from before ``old_before_us`` may be removed. ``thorough`` is for a pass that a user requested.
        """
        self.place = place
        self.result = CompactionResult(log.bytes, log.bytes)
        self._log = log
        self._scan = scan
        self._owed = owed
        self._old_before_us = old_before_us
        self._old_before = 0
        self._thorough = thorough
        self._counters = counters
        self._then = then
        self._going = EntrySet()
        """All entries to remove."""
        self._steps = self._work()
        self._step = next(self._steps)

    def run(self, disk: Disk) -> None:
        self._step(disk)

    def done(self, error: OSError | None) -> bool:
        if self._owed(0, 0) is None:  # the topic is gone
            self._steps.close()
            self.result.failed = True
        else:
            with suppress(StopIteration):
                self._step = self._steps.send(error)
                return True
            self.result.bytes_after = self._log.bytes
        self._then(self.result)
        return False

    def _work(self) -> Steps:
        while not self._scan.finished:
            if (error := (yield self._read)) is not None:
                self._fail(error)
                return
        for run in self._plan():
            if self._log.has_files([each.file for each in run]):  # else retention deleted some
                yield from self._compact(run)
            if self.result.failed:  # what was replaced so far stays; a later pass does the rest
                return

    def _read(self, _disk: Disk) -> None:
        self._scan.step()
        if self._scan.finished:
            self._old_before = self._log.find_time(self._old_before_us)

    def _fail(self, error: OSError) -> None:
        self._counters["compactions_failed"] += 1
        self.result.failed, self.result.fault = True, str(error.strerror or error)

    def _compact(self, run: list[ClosedFile]) -> Steps:
        log, files = self._log, [each.file for each in run]
        first, end = files[0].first, run[-1].end
        going = self._going.within(first, end)
        taken_out = log.compacted.within(first, end)
        taken_out.include(going)
        rewrite = Rewrite(log.place, run, taken_out, log.marks.blocks())
        error: OSError | None = None
        try:
            while not rewrite.finished and error is None:
                error = yield rewrite.run
        finally:
            rewrite.close()
        if rewrite.unsound:
            self._counters["compactions_unsound"] += 1
            if error is not None:
                self._fail(error)
            return
        there = log.has_files(files)
        if error is None and there and not (self._owed(first, end) or EntrySet()).meets(going):
            log.compacted.include(going)  # from now on no subscription comes to owe them
            error = yield rewrite.swap
            if error is None and log.has_files(files):
                self._replace(files, rewrite, len(going))
                yield rewrite.remove_old
                return
            log.compacted.exclude(going)
        if error is not None and there:  # otherwise retention deleted the files meanwhile
            self._fail(error)
        yield rewrite.remove_new

    def _replace(self, files: list[FileView], rewrite: Rewrite, taken_out: int) -> None:
        single = files[0].expires_us if len(files) == 1 else None
        view = FileView(rewrite.first, files[0].floor_us, rewrite.bytes, single, rewrite.id.generation)
        self._log.replace(files, view)
        self.result.taken_out += taken_out
        self.result.files += len(files)
        self._counters["messages_compacted"] += taken_out
        self._counters["files_compacted"] += len(files)
        self._counters["bytes_compacted"] += sum(file.bytes for file in files) - rewrite.bytes

    # --- planning -----------------------------------------------------------------------------------

    def _plan(self) -> list[list[ClosedFile]]:
        """Decides which rows go, and returns the runs of files to rewrite."""
        scan, closed = self._scan, self._log.closed_files()
        closed = [each for each in closed if each.end <= scan.end]
        if not closed:
            return []
        first, end = max(closed[0].file.first, self._log.entry_first), closed[-1].end
        stays = scan.latest.copy()
        needless = scan.latest.common(scan.deletes).common(scan.lonely).within(0, self._old_before)
        stays.exclude(needless)
        stays.include(scan.keyless)
        stays.include(scan.unread)
        stays.include(self._owed(first, end) or EntrySet())
        self._going.add(first, end)
        self._going.exclude(stays)
        self._going.exclude(self._log.compacted)
        return self._choose(closed)

    def _choose(self, closed: list[ClosedFile]) -> list[list[ClosedFile]]:
        """Runs of neighbours whose rest fits into one file, if the pass can remove enough of them."""
        room = self._log.rotate_bytes
        runs: list[list[ClosedFile]] = []
        run: list[ClosedFile] = []
        rest = read = 0
        for each in closed:
            size = self._rest_bytes(each)
            alone = each.file.expires_us is not None  # its expiry name is for this file alone
            if run and (rest + size > room or read + each.file.bytes > RUN_BYTES_MAX or alone):
                runs.append(run)
                run, rest, read = [], 0, 0
            run.append(each)
            rest, read = rest + size, read + each.file.bytes
            if alone:
                runs.append(run)
                run, rest, read = [], 0, 0
        return [each for each in [*runs, run] if each and self._is_worth(each)]

    def _rest_bytes(self, closed: ClosedFile) -> int:
        """About how many bytes of a file will remain."""
        first, end = closed.file.first, closed.end
        before = end - first - self._log.compacted.count(first, end)
        after = before - self._going.count(first, end)
        return closed.file.bytes * after // max(1, before)

    def _is_worth(self, run: list[ClosedFile]) -> bool:
        first, end = run[0].file.first, run[-1].end
        going = self._going.count(first, end)
        rows = end - first - self._log.compacted.count(first, end)
        enough = going > 0 if self._thorough else going >= max(1, SHARE_MIN * rows)
        return enough or len(run) >= MERGE_FILES
