"""What a client asks: judged, carried out, and answered or refused, each question for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.catalog.topics import Topic
from headpond.broker.reading.fetch import answer_parts
from headpond.broker.requests import Requests
from headpond.broker.session import Session
from headpond.broker.subscriptions.consume import Consuming
from headpond.model.errors import HeadpondError, ProtocolError
from headpond.wire.control.codec import Misfit, Request, encode_refusal
from headpond.wire.control.consuming import Settle, Subscribe

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore


REQUEST_COST_BYTES = 64 * 1024
"""An unanswered request counts as so much of its connection's window, whatever it asks for: a client that asks
faster than the node answers is not read from until the node has caught up."""


class Asking:
    def __init__(
        self,
        node: NodeCore,
        requests: Requests,
        consuming: Consuming,
        send: Callable[[int, list[bytes]], None],
    ) -> None:
        self._node = node
        self._requests = requests
        self._consuming = consuming
        self._send = send

    def on_request(self, session: Session, request: Request) -> None:
        session.unacked_bytes += REQUEST_COST_BYTES
        cost_bytes = REQUEST_COST_BYTES

        def answered() -> None:
            nonlocal cost_bytes
            session.unacked_bytes -= cost_bytes
            cost_bytes = 0  # an answer that turns out too long is refused after all

        def answer(result: Any) -> None:
            answered()
            self._send(session.connection, answer_parts(request.number, result))

        def refuse(error: HeadpondError) -> None:
            answered()
            self._send(session.connection, [encode_refusal(error, request=request.number)])

        guard, operation = self._node.guard, request.operation
        answer_fit, refuse_fit = guard.replies(session, operation, answer, refuse)
        try:
            self._node.check_running()
            guard.check(session, operation)
            self._requests.on_request(session, operation, answer_fit, refuse_fit)
        except HeadpondError as error:
            refuse_fit(error)

    def on_misfit(self, session: Session, misfit: Misfit) -> None:
        """What is beyond the bounds of its fields is refused like anything else that is asked for wrongly."""
        if misfit.kind is Request:
            self._send(session.connection, [encode_refusal(misfit.error, request=misfit.number)])
            return
        if misfit.kind is Settle:  # nothing of it took effect: its consumer must not go on as if it had
            self._consuming.expel(session, misfit.number)
        self._refuse_consumer(session, misfit.number, misfit.error)

    def on_subscribe(self, session: Session, ask: Subscribe) -> None:
        """Topic and records may have to be read first; whoever leaves meanwhile is not attached."""
        if ask.consumer in session.subscribing:
            error = ProtocolError(f"consumer {ask.consumer} is being opened already on this connection")
            self._refuse_consumer(session, ask.consumer, error)
            return
        session.subscribing[ask.consumer] = ask
        self._refer(session, ask, lambda: self._subscribe(session, ask))

    def _subscribe(self, session: Session, ask: Subscribe) -> None:
        self._node.check_running()
        self._node.guard.check(session, ask)

        def found(topic: Topic) -> None:
            if session.subscribing.get(ask.consumer) is ask:
                self._refer(session, ask, lambda: self._attach(session, ask, topic, refuse))

        def refuse(error: HeadpondError) -> None:
            self._refuse_asking(session, ask, error)

        self._requests.open_topic(session, ask.topic, ask.create_topic, found, refuse)

    def _attach(
        self, session: Session, ask: Subscribe, topic: Topic, refuse: Callable[[HeadpondError], None]
    ) -> None:
        if (crowded := self._node.quotas.enter(session, topic)) is not None:
            raise crowded
        self._consuming.on_subscribe(session, ask, topic, refuse)

    def on_settle(self, session: Session, ask: Settle) -> None:
        try:
            self._consuming.on_settle(session, ask)
        except HeadpondError as error:  # nothing of it took effect: its consumer must not go on as if it had
            self._consuming.expel(session, ask.consumer)
            self._refuse_consumer(session, ask.consumer, error)

    def _refer(self, session: Session, ask: Subscribe, act: Callable[[], None]) -> None:
        """An error in ``act`` concerns this consumer alone; the connection goes on."""
        try:
            act()
        except HeadpondError as error:
            self._refuse_asking(session, ask, error)

    def _refuse_asking(self, session: Session, ask: Subscribe, error: HeadpondError) -> None:
        if session.subscribing.get(ask.consumer) is ask:
            del session.subscribing[ask.consumer]
            self._refuse_consumer(session, ask.consumer, error)

    def _refuse_consumer(self, session: Session, consumer: int, error: HeadpondError) -> None:
        self._node.counters[f"consumers_refused_{error.code}"] += 1
        self._send(session.connection, [encode_refusal(error, consumer=consumer)])
