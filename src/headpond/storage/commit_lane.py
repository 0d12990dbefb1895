"""A lane: one log or journal, and the waiters for its sync.

This gives group commit: while one write is under way, everything that arrives is staged; the next write takes
all of it, with one sync. The lane calls each waiter once its records are durable, or with the error that
prevented it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headpond.model.errors import DiskFull, HeadpondError, StorageFailed
from headpond.storage.append import Appender
from headpond.storage.disk import Disk, is_disk_full

Waiter = Callable[[HeadpondError | None], None]


class Write(Protocol):
    """Staged bytes, which a worker thread writes and syncs."""

    def run(self, disk: Disk) -> None: ...


class Committer(Protocol):
    """Has something to write now; the shell takes the write, runs it and reports its end."""

    @property
    def name(self) -> str: ...

    def take(self) -> Write: ...


def as_error(error: OSError, what: str) -> HeadpondError:
    """The error of the catalogue for a failed write or sync."""
    if is_disk_full(error):
        return DiskFull(f"no room on the node's disk for {what}: {error.strerror}")
    return StorageFailed(f"the node could not write {what}: {error.strerror or error}")


class CommitLane:
    """``on_done(write, error)`` moves the state of the log or journal; the lane then calls the waiters."""

    def __init__(
        self,
        name: str,
        appender: Appender[Any],
        on_done: Callable[[Any, OSError | None], bool],
        dirty: dict[CommitLane, None],
        *,
        shares: bool = False,
        lazy: bool = False,
    ) -> None:
        """``on_done`` returns whether a failed write also undoes everything that was staged after it.

        ``dirty`` collects the lanes that have something to write, in that order. The writes of a lane that
        ``shares`` can share a sync (commit_rounds.py). A ``lazy`` lane writes when a waiter hurries.
        """
        self.name = name
        self.appender = appender
        self.shares = shares
        self.resume_us = 0
        """No write before this time: after a failure the lane pauses."""
        self.writes = 0
        """How many writes have begun."""
        self._on_done = on_done
        self._dirty = dirty
        self._lazy = lazy
        self._hurried = False
        """Whether a waiter for the staged bytes hurries."""
        self._staged: list[Waiter] = []
        self._under_way: list[Waiter] | None = None
        self.mark()  # opening may have staged a repair

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._under_way is not None

    @property
    def due(self) -> bool:
        """Whether something is staged and no write is under way."""
        return self._under_way is None and self.appender.staged.bytes > 0

    def mark(self) -> None:
        """Something was staged without a waiter."""
        if self.appender.staged.bytes:
            self._hurried = True
            if self._under_way is None:
                self._dirty[self] = None

    def wait(self, waiter: Waiter, *, staged: bool = True, hurry: bool = True) -> None:
        """Calls ``waiter`` when everything staged now is durable; with ``staged=False``, the write under way.

        In a lazy lane a waiter without ``hurry`` waits until another one hurries.
        """
        pending, under_way = self.appender.staged.bytes > 0, self._under_way
        if pending and (hurry or not self._lazy):
            self._hurried = True
            if under_way is None:
                self._dirty[self] = None
        if under_way is not None and not (staged and pending):
            under_way.append(waiter)
        elif pending:
            self._staged.append(waiter)
        else:
            waiter(None)

    def take(self) -> Write:
        """The write to run now."""
        assert self._under_way is None, "a write is under way"
        write: Write | None = self.appender.take()
        assert write is not None, "nothing to write"
        self._dirty.pop(self, None)
        self.writes += 1
        self._hurried = False
        self._under_way, self._staged = self._staged, []
        return write

    def done(self, write: Write, error: OSError | None) -> None:
        """The write ended: moves the state of the log or journal, then calls the waiters."""
        assert self._under_way is not None
        waiters, self._under_way = self._under_way, None
        dropped = self._on_done(write, error)
        if self.appender.staged.bytes and (self._hurried or not self._lazy or error is not None):
            self._dirty[self] = None
        else:
            self._dirty.pop(self, None)
        if error is None:
            _call(waiters, None)
        elif dropped:
            waiters, self._staged = waiters + self._staged, []
            _call(waiters, as_error(error, self.name))
        else:  # the journal writes it again: the waiters keep waiting
            self._staged = waiters + self._staged

    def abandon(self, error: HeadpondError) -> None:
        """Fails the waiters for staged bytes that will not be written: the topic is gone."""
        self._dirty.pop(self, None)
        waiters, self._staged = self._staged, []
        _call(waiters, error)


def _call(waiters: list[Waiter], error: HeadpondError | None) -> None:
    """Calls all waiters; an exception in one must not leave the others waiting."""
    faults: list[Exception] = []
    for waiter in waiters:
        try:
            waiter(error)
        except Exception as fault:  # noqa: BLE001  (raised below)
            faults.append(fault)
    if faults:
        raise ExceptionGroup("calling the waiters for a sync", faults)
