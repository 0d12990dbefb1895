"""Every operation has a handler and a rule; steps that wait continue with a value or an error."""

from __future__ import annotations

from typing import get_args

import pytest

from headpond.broker.steps import Steps, Wait, gathered, run
from headpond.model.errors import BadRequest, HeadpondError, LimitReached
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.codec import Operation
from headpond.wire.control.operation import UNDECLARED
from tests.fire.core_shell import CoreShell


def test_every_operation_has_a_handler_and_a_rule() -> None:
    operations = set(get_args(Operation))
    assert set(CoreShell(MemoryDisk(), seed=1).core.operations.handlers) == operations
    assert not [each for each in operations if each.rule is UNDECLARED]


class Reply:
    """The result of an operation."""

    def __init__(self, steps: Steps[object]) -> None:
        self.result: object = None
        self.error: HeadpondError | None = None
        run(steps, self._answer, self._refuse)

    def _answer(self, result: object) -> None:
        self.result = result

    def _refuse(self, error: HeadpondError) -> None:
        self.error = error


def waiting(*waits: Wait[int]) -> Steps[object]:
    total = 0
    for wait in waits:
        try:
            total += yield wait
        except BadRequest:
            total += 1000
    return total


def test_steps_continue_with_each_value_as_it_arrives() -> None:
    first, second = Wait[int](), Wait[int]()
    reply = Reply(waiting(first, second))
    assert reply.result is None
    first.done(1)
    assert reply.result is None
    second.done(2)
    assert reply.result == 3


def test_a_value_that_is_there_already_is_not_waited_for() -> None:
    waits = [Wait[int]() for _ in range(5000)]  # far more than the stack could hold if each resumed the last
    for wait in waits:
        wait.done(1)
    assert Reply(waiting(*waits)).result == 5000


def test_an_error_is_raised_where_the_steps_wait() -> None:
    handled, unhandled = Wait[int](), Wait[int]()
    reply = Reply(waiting(handled, unhandled))
    handled.failed(BadRequest("no"))
    unhandled.failed(LimitReached("full"))
    assert isinstance(reply.error, LimitReached)


def test_an_answer_that_cannot_be_sent_is_refused() -> None:
    def answer(result: object) -> None:
        raise LimitReached("too long")

    refused: list[HeadpondError] = []
    run(waiting(), answer, refused.append)
    assert [error.code for error in refused] == [LimitReached.code]


def value_of(wait: Wait[list[object]]) -> Steps[object]:
    return (yield wait)


def test_operations_side_by_side_give_their_results_in_order() -> None:
    slow, failing = Wait[int](), Wait[int]()

    def fail() -> Steps[object]:
        yield failing
        raise LimitReached("full")

    together = gathered([waiting(slow), fail()])
    failing.done(0)
    results = Reply(value_of(together))
    slow.done(7)
    assert isinstance(results.result, list)
    first, second = results.result
    assert first == 7
    assert isinstance(second, LimitReached)


def test_a_value_comes_once() -> None:
    wait = Wait[int]()
    wait.done(1)
    with pytest.raises(AssertionError):
        wait.done(2)
