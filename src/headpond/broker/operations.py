"""Operations: a client's request, checked against its token, carried out, logged and answered.

An operation is declared in ``wire/control``, with the right that it needs. Its handler is the method of a part
of the broker that has the operation's tag as a name; it returns the result, or steps that wait (``steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, NamedTuple, get_args

from headpond.broker.access.admin_log import AdminLogger
from headpond.broker.access.guard import Guard
from headpond.broker.context import Context
from headpond.broker.reading.fetch import answer_parts
from headpond.broker.session import Session
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Handler, Reply, Steps, run
from headpond.model.errors import HeadpondError, NodeStopping
from headpond.wire.control.codec import Misfit, Operation, Request, encode_refusal

REQUEST_COST_BYTES = 64 * 1024
"""An unanswered request counts as this much of its connection's window: the node stops reading from a client
that asks faster than the node answers."""


class LocalRequest(NamedTuple):
    """A request of a client in the node's process, which takes the answer as an object."""

    operation: Operation
    answer: Callable[[Any], object]
    refuse: Callable[[HeadpondError], object]


class Operations:
    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        guard: Guard,
        log: AdminLogger,
        parts: Sequence[object],
    ) -> None:
        """``parts`` have the handlers: that of ``CreateTopic`` is the method with its tag, ``create_topic``."""
        self._context = context
        self._sessions = sessions
        self._guard = guard
        self._log = log
        self.handlers: dict[type[Operation], Handler] = {}
        for operation in get_args(Operation):
            tag = operation.__struct_config__.tag
            (self.handlers[operation],) = [getattr(part, tag) for part in parts if hasattr(part, tag)]

    def on_request(self, session: Session, request: Request) -> None:
        def answer(result: Any) -> None:
            self._sessions.send(session.connection, answer_parts(request.number, result))

        def refuse(error: HeadpondError) -> None:
            self._sessions.send(session.connection, [encode_refusal(error, request=request.number)])

        self.carry_out(session, request.operation, answer, refuse)

    def on_misfit(self, session: Session, misfit: Misfit) -> None:
        """A request has an invalid field."""
        self._sessions.send(session.connection, [encode_refusal(misfit.error, request=misfit.number)])

    def carry_out(
        self,
        session: Session,
        operation: Operation,
        answer: Callable[[Any], object],
        refuse: Callable[[HeadpondError], object],
    ) -> None:
        """Carries out an operation for a client; calls ``answer`` or ``refuse``, now or later."""
        session.unacked_bytes += REQUEST_COST_BYTES
        cost_bytes = REQUEST_COST_BYTES

        def answered() -> None:
            nonlocal cost_bytes
            session.unacked_bytes -= cost_bytes
            cost_bytes = 0  # an answer that turns out too long is refused after all

        def replied(result: Any) -> None:
            answered()
            if isinstance(result, Reply):
                answer(result.result)
                result.afterwards()
            else:
                answer(result)

        def refused(error: HeadpondError) -> None:
            answered()
            refuse(error)

        work = self._logged if operation.rule.logged else self._allowed
        run(work(session, operation), replied, refused)

    def steps(self, session: Session | None, operation: Operation) -> Steps[Any]:
        """Carries out an operation for the node itself: no token, no log."""
        self._context.counters["requests"] += 1
        result = self.handlers[type(operation)](session, operation)
        if isinstance(result, GeneratorType):
            result = yield from result
        return result

    def _allowed(self, session: Session, operation: Operation) -> Steps[Any]:
        if self._context.stopping:
            raise NodeStopping("the node is shutting down")
        self._guard.check(session, operation)
        result = yield from self.steps(session, operation)
        return self._guard.visible(session, operation, result)

    def _logged(self, session: Session, operation: Operation) -> Steps[Any]:
        """The log of administration has the outcome before the client has."""
        try:
            result = yield from self._allowed(session, operation)
        except HeadpondError as error:
            yield self._log.write(session, operation, error)
            raise
        yield self._log.write(session, operation, None, result.result if isinstance(result, Reply) else result)
        return result
