"""A lane: one journal and those who wait for its sync.

Group commit falls out of it: while one write is under way everything that arrives is staged; when it is done,
all of that goes in the next, with one sync. Whoever waits is called once what they staged is durable, or with
the error that kept it from being so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headpond.model.errors import DiskFull, HeadpondError, StorageFailed
from headpond.storage.disk import Disk, is_disk_full

Waiter = Callable[[HeadpondError | None], None]


class Write(Protocol):
    """Everything that was staged, to be written and synced by a worker thread."""

    def run(self, disk: Disk) -> None: ...


class Committer(Protocol):
    """Whoever has something to write now; the shell takes it, runs it and reports."""

    @property
    def name(self) -> str: ...

    def take(self) -> Write: ...


class Sharing(Protocol):
    """A log, as far as it matters for whether its write can share a sync with others."""

    @property
    def creates(self) -> str | None:
        """The file that the next write makes, if it makes one."""

    @property
    def shared_bytes(self) -> int | None:
        """How much is staged; None where the write needs its own syncs, or none."""


class LaneStage(Protocol):
    """What a log and a journal have in common for a lane."""

    @property
    def staged_bytes(self) -> int: ...

    def take(self) -> Any: ...


def as_error(error: OSError, what: str) -> HeadpondError:
    """The catalogue's name for a failed write or sync."""
    if is_disk_full(error):
        return DiskFull(f"no room on the node's disk for {what}: {error.strerror}")
    return StorageFailed(f"the node could not write {what}: {error.strerror or error}")


class Lane:
    """``on_done(write, error)`` moves the journal's own state; waiters are called after it."""

    def __init__(
        self,
        name: str,
        stage: LaneStage,
        on_done: Callable[[Any, OSError | None], bool],
        dirty: dict[Lane, None],
        sharing: Sharing | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        """``on_done`` returns whether what was staged behind a failed write is lost with it.

        ``dirty`` collects the lanes that have something to write, in the order they got it. A ``lazy`` one
        writes when somebody is in a hurry for it.
        """
        self.name = name
        self.stage = stage
        self.sharing = sharing
        """The log, where this is a log's lane."""
        self.resume_us = 0
        """No write before this time: after a failure the disk is given a moment."""
        self.writes = 0
        """How many were begun."""
        self._on_done = on_done
        self._dirty = dirty
        self._lazy = lazy
        self._hurried = False
        """Whether somebody is in a hurry for what is staged."""
        self._staged: list[Waiter] = []
        self._under_way: list[Waiter] | None = None
        self.mark()  # opening may have staged a repair

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._under_way is not None

    @property
    def due(self) -> bool:
        """Whether there is something to write and nothing under way."""
        return self._under_way is None and self.stage.staged_bytes > 0

    def mark(self) -> None:
        """Something was staged that nobody waits for."""
        if self.stage.staged_bytes > 0:
            self._hurried = True
            if self._under_way is None:
                self._dirty[self] = None

    def wait(self, waiter: Waiter, *, staged: bool = True, hurry: bool = True) -> None:
        """Calls ``waiter`` when what is staged now is durable; with ``staged=False``, what is under way.

        In a lazy lane those without ``hurry`` wait until somebody with it comes.
        """
        if hurry or not self._lazy:
            self.mark()
        if not staged and self._under_way is not None:
            self._under_way.append(waiter)
        elif self.stage.staged_bytes > 0:
            self._staged.append(waiter)
        elif self._under_way is not None:
            self._under_way.append(waiter)
        else:
            waiter(None)

    def take(self) -> Write:
        """What is to be written now."""
        assert self.due, "nothing to write, or a write is under way"
        self._dirty.pop(self, None)
        write: Write = self.stage.take()
        self.writes += 1
        self._hurried = False
        self._under_way, self._staged = self._staged, []
        return write

    def done(self, write: Write, error: OSError | None) -> None:
        """The write ended: moves the journal's state, then tells those who waited."""
        assert self._under_way is not None
        waiters, self._under_way = self._under_way, None
        dropped = self._on_done(write, error)
        if self.stage.staged_bytes > 0 and (self._hurried or not self._lazy or error is not None):
            self._dirty[self] = None
        else:
            self._dirty.pop(self, None)
        if error is None:
            _call(waiters, None)
        elif dropped:
            waiters, self._staged = waiters + self._staged, []
            _call(waiters, as_error(error, self.name))
        else:  # kept by the journal and written again: everyone goes on waiting
            self._staged = waiters + self._staged

    def abandon(self, error: HeadpondError) -> None:
        """What is staged will not be written: its topic is gone."""
        self._dirty.pop(self, None)
        waiters, self._staged = self._staged, []
        _call(waiters, error)


def _call(waiters: list[Waiter], error: HeadpondError | None) -> None:
    """Tells everyone; a fault in one of them must not keep the others waiting for ever."""
    faults: list[Exception] = []
    for waiter in waiters:
        try:
            waiter(error)
        except Exception as fault:  # noqa: BLE001  (raised below)
            faults.append(fault)
    if faults:
        raise ExceptionGroup("telling those who waited for a sync", faults)
