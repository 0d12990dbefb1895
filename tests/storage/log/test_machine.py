"""Any order of appends, commits, failures, drops, restarts and cuts leaves the log equal to a plain list.

So does restoring an old copy of its files. Positions from before that hold only if the log up to them is what
it was, and all that the copy ever gave out hold.
"""

from __future__ import annotations

import errno
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headpond.storage.log.batch import LogBatch, LogOptions
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import Keep, MemoryDisk
from tests.storage.log.logs import LogWriter, Row, admitted, marked, open_log, read_all, readable

OPTIONS = LogOptions(rotate_bytes=1_500, preallocate_bytes=1_024, index_every_bytes=200)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1_000))
    def begin(self, seed: int) -> None:
        self.disk = MemoryDisk(seed)
        self.writer = LogWriter(open_log(self.disk, OPTIONS), random.Random(seed))
        self.write: LogBatch | None = None
        self.in_write: list[Row] = []
        self.kept = 0
        self.drop_highest = 0
        self.doubtful: list[list[Row]] = []
        """Batches whose write failed since the last commit: a restart may find one of them after all."""
        self.positions: dict[tuple[int, int], list[Row]] = {}
        """All that were ever given out, with the rows before them."""
        self.own: set[tuple[int, int]] = set()
        """Those that this log gave out, or the one that it is a copy of before it was copied."""
        self.copies = [(self.disk.copy(), list[Row](), set(self.own))]
        """One after each commit: files, rows and ``own`` as they were."""

    @rule(size=st.sampled_from([0, 1, 30, 200, 900]), count=st.sampled_from([0, 1, 1, 5]))
    def append(self, size: int, count: int) -> None:
        self.writer.append(size=size, count=count)

    @precondition(lambda self: self.write is None)
    @rule()
    def take(self) -> None:
        self.write = self.writer.log.take()
        if self.write is not None:
            self.in_write, self.writer.staged = self.writer.staged, []

    @precondition(lambda self: self.write is not None)
    @rule()
    def commit(self) -> None:
        assert self.write is not None
        self.write.run(self.disk)
        records = self.writer.log.committed(self.write)
        assert len(records) == len(readable(self.in_write))
        self.writer.durable += self.in_write
        self.write, self.in_write, self.doubtful = None, [], []
        self.copies.append((self.disk.copy(), list(self.writer.durable), set(self.own)))

    @precondition(lambda self: self.write is not None)
    @rule(operation=st.sampled_from(["write", "sync", "create", "rename", "sync_folder"]))
    def fail(self, operation: str) -> None:
        assert self.write is not None
        if operation in ("create", "rename", "sync_folder") and not self.write.creates:
            operation = "sync"
        self.disk.fail_next(operation, errno.EIO)  # type: ignore[arg-type]
        try:
            self.write.run(self.disk)
        except OSError:
            self.writer.log.failed(self.write)
        else:
            raise AssertionError("it was to fail")
        self.kept = self.writer.log.entry_first
        self.doubtful.append(self.in_write)
        self.write, self.in_write, self.writer.staged = None, [], []

    @rule(part=st.floats(0, 1))
    def drop(self, part: float) -> None:
        self.kept = self.writer.log.drop_before(int(self.writer.log.entry_durable * part))
        self.drop_highest = max(self.drop_highest, self.kept)

    @precondition(lambda self: self.write is None)
    @rule()
    def restart(self) -> None:
        committed = self.writer.log.appender.staged.bytes > 0
        self.writer.log.close()
        if committed:
            self.writer.durable += self.writer.staged
            self.doubtful = []
        self.reopen()

    @rule(changes=st.integers(0, 6), keep=st.sampled_from(["none", "all", "some"]))
    def cut(self, changes: int, keep: Keep) -> None:
        if self.write is None:
            self.take()
        self.disk.cut_power_after(changes)
        if self.write is not None:
            try:
                self.write.run(self.disk)
            except OSError:
                self.doubtful.append(self.in_write)
            else:
                self.writer.durable += self.in_write
                self.doubtful = []
        self.disk.crash(keep=keep)
        self.reopen()

    @precondition(lambda self: self.write is None)
    @rule(count=st.integers(1, 3))
    def store(self, count: int) -> None:
        self.append(30, count)
        self.take()
        self.commit()

    @rule(which=st.integers(0, 30))
    def restore(self, which: int) -> None:
        disk, durable, own = self.copies[which % len(self.copies)]
        self.disk, self.own = disk.copy(), set(own)
        self.writer.durable, self.doubtful = list(durable), []
        self.reopen()

    def reopen(self) -> None:
        log = open_log(self.disk, OPTIONS)
        assert log.report.damaged == [] and log.report.missing == []
        assert log.entry_first <= self.drop_highest
        self.kept = log.entry_first
        self.writer.durable += self.survivors(log)
        self.writer.log, self.writer.staged = log, []
        self.write, self.in_write, self.doubtful = None, [], []

    def survivors(self, log: ShardLog) -> list[Row]:
        """The beginning of a doubtful batch that the log found; of one batch only, and in its order."""
        rows = read_all(log)[0]
        for batch in [[], *self.doubtful]:
            for size in range(len(batch) + 1):
                everything = self.writer.durable + batch[:size]
                if rows == readable(everything, log.entry_first) and marked(log) == admitted(everything):
                    return batch[:size]
        raise AssertionError("the log is not what was committed, with or without a failed batch")

    @invariant()
    def the_log_is_the_list(self) -> None:
        writer = self.writer
        log, everything = writer.log, writer.durable + self.in_write + writer.staged
        assert read_all(log, bytes_max=700) == (readable(writer.durable, self.kept), [])
        assert marked(log) == admitted(everything)
        assert log.entry_durable == sum(row.count for row in writer.durable)
        assert log.entry_next == sum(row.count for row in everything)
        assert list(log.damaged) == []

    @invariant()
    def a_position_holds_while_the_log_before_it_is_what_it_was(self) -> None:
        log, rows = self.writer.log, readable(self.writer.durable)
        here = (log.incarnation, log.entry_durable)
        self.own.add(here)
        assert self.positions.setdefault(here, rows) == rows
        for position, before in self.positions.items():
            if log.holds(*position):
                assert rows[: len(before)] == before
            else:
                assert position not in self.own


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
