"""Work that waits: an operation is a generator that yields its waits.

An operation that can answer at once returns its result. One that has to wait yields a ``Wait``; the ``yield``
returns the value that came, or raises the error that came in its place. ``run`` drives such a generator: no
thread and no event loop, so a simulation runs it as well as the server does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headpond.broker.context import Context
from headpond.broker.effects import Commit
from headpond.model.errors import HeadpondError, StorageFailed
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk
from headpond.storage.journal import JournalTable

T = TypeVar("T")


class Wait(Generic[T]):
    """One value that comes later, or the error that comes in its place; one caller waits for it."""

    __slots__ = ("_resume", "error", "over", "value")

    def __init__(self) -> None:
        self.over = False
        self.value: T | None = None
        self.error: HeadpondError | None = None
        self._resume: Callable[[Wait[T]], None] | None = None

    def done(self, value: T) -> None:
        self.value = value
        self._end()

    def failed(self, error: HeadpondError) -> None:
        self.error = error
        self._end()

    def ended(self, error: HeadpondError | None) -> None:
        """The form that a lane calls: an error, or None when everything is on the disk."""
        self.error = error
        self._end()

    def then(self, resume: Callable[[Wait[T]], None]) -> None:
        """Calls ``resume`` once the value or the error is there."""
        assert not self.over and self._resume is None
        self._resume = resume

    def _end(self) -> None:
        assert not self.over, "it came already"
        self.over = True
        if self._resume is not None:
            self._resume(self)


Steps = Generator[Wait[Any], Any, T]
"""An operation that waits; it returns its result."""


Handler = Callable[[Any, Any], Any]
"""Carries out an operation for a session: returns the result, a ``Reply``, or ``Steps`` that return one."""


class Reply(NamedTuple):
    """A result, and what the node does once it has answered with it."""

    result: Any
    afterwards: Callable[[], None]


def on_disk(lane: CommitLane) -> Wait[None]:
    """Waits until everything that is staged in a lane now is on the disk."""
    wait: Wait[None] = Wait()
    lane.wait(wait.ended)
    return wait


def journaled(table: JournalTable, *changes: msgspec.Struct) -> Wait[None]:
    """Writes changes to a table's journal and waits until they are on the disk."""
    table.stage(*changes)
    return on_disk(table.lane)


def all_on_disk(lanes: Sequence[CommitLane]) -> Wait[None]:
    """Waits until everything that is staged in several lanes is on the disk; an error comes when all ended."""
    wait: Wait[None] = Wait()
    left, fault = len(lanes), None

    def ended(error: HeadpondError | None) -> None:
        nonlocal left, fault
        left, fault = left - 1, fault or error
        if left == 0:
            wait.ended(fault)

    for lane in lanes:
        lane.wait(ended)
    if not lanes:
        wait.ended(None)
    return wait


class Errand(Generic[T]):
    """Work for a worker thread that belongs to no lane, such as a read. The shell runs it like a write."""

    def __init__(self, name: str, work: Callable[[Disk], T], wait: Wait[T]) -> None:
        self.name = name
        self._work = work
        self._wait = wait
        self._result: T
        self._error: HeadpondError | None = None

    def take(self) -> Errand[T]:
        return self

    def run(self, disk: Disk) -> None:
        try:
            self._result = self._work(disk)
        except HeadpondError as error:
            self._error = error

    def ended(self, error: OSError | None) -> None:
        """Called in the owning thread after ``run``."""
        fault = self._error if error is None else StorageFailed(str(error))
        if fault is None:
            self._wait.done(self._result)
        else:
            self._wait.failed(fault)


def in_worker(context: Context, name: str, work: Callable[[Disk], T]) -> Wait[T]:
    """Runs work in a worker thread, and waits for its result or error. The shell names it in its log."""
    wait: Wait[T] = Wait()
    context.add_effect(Commit(Errand(name, work, wait)))
    return wait


def run(steps: Steps[T], answer: Callable[[T], object], refuse: Callable[[HeadpondError], object]) -> None:
    """Drives an operation to its end; calls ``answer`` or ``refuse``, now or later.

    An error that ``answer`` raises is refused too: a result can turn out to be too long for a frame.
    """

    def proceed(wait: Wait[Any] | None) -> None:
        try:
            while wait is None or wait.over:
                if wait is None:
                    wait = next(steps)
                elif wait.error is not None:
                    wait = steps.throw(wait.error)
                else:
                    wait = steps.send(wait.value)
        except StopIteration as end:
            try:
                answer(end.value)
            except HeadpondError as error:
                refuse(error)
        except HeadpondError as error:
            refuse(error)
        else:
            wait.then(proceed)

    proceed(None)


class SingleFlight(Generic[T]):
    """Runs one piece of work per key at a time; those who want the same meanwhile wait for its result."""

    def __init__(self) -> None:
        self._waiting: dict[Any, list[Wait[T]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._waiting)

    def __contains__(self, key: Any) -> bool:
        return key in self._waiting

    def join(self, key: Any) -> Wait[T]:
        """Waits for the work that is under way."""
        self._waiting[key].append(Wait())
        return self._waiting[key][-1]

    def run(self, key: Any, work: Steps[T]) -> Steps[T]:
        assert key not in self._waiting
        self._waiting[key] = []
        try:
            result = yield from work
        except Exception as error:
            fault = error if isinstance(error, HeadpondError) else HeadpondError("the node failed internally")
            for other in self._waiting.pop(key):
                other.failed(fault)
            raise
        for other in self._waiting.pop(key):
            other.done(result)
        return result


def gathered(works: Sequence[Steps[T]]) -> Wait[list[T | HeadpondError]]:
    """Runs several operations side by side; the value is each one's result or error, in their order."""
    wait: Wait[list[T | HeadpondError]] = Wait()
    results: dict[int, T | HeadpondError] = {}

    def ended(number: int, result: T | HeadpondError) -> None:
        results[number] = result
        if len(results) == len(works):
            wait.done([results[each] for each in range(len(works))])

    for number, work in enumerate(works):
        run(work, partial(ended, number), partial(ended, number))
    return wait
