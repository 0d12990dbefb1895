"""Work that waits: an operation is a generator that yields what it waits for.

An operation that can answer at once returns its result. One that has to wait yields a ``Wait``; the ``yield``
returns the value that came, or raises the error that came in its place. ``run`` drives such a generator: no
thread and no event loop, so a simulation runs it as well as the server does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from headpond.model.errors import HeadpondError
from headpond.storage.commit_lane import CommitLane
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


def journaled(table: JournalTable, bodies: list[bytes]) -> Wait[None]:
    """Writes records to a table's journal and waits until they are on the disk."""
    wait: Wait[None] = Wait()
    table.change(bodies, wait.ended)
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
