"""Spans by OpenTelemetry, named as its conventions for messaging say (docs/tracing.md).

``HeadpondInstrumentor().instrument()`` turns tracing on for clients that connect afterwards: a span for every
message that a producer sends, and one for every message that a handler of ``headpond.App`` gets. In other
programs ``with span(message)`` makes the latter. The context of a trace travels in the message's headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, TracerProvider

from headpond import __version__
from headpond.app.verdicts import DeadLetter, Skip
from headpond.client import tracing
from headpond.client.consume.batch import Batch
from headpond.client.produce.batcher import Batcher
from headpond.client.produce.promise import BatchReceipt, Promise
from headpond.model.address import Address
from headpond.model.errors import HeadpondError
from headpond.model.message import Message
from headpond.model.names import TopicName
from headpond.model.receipt import Outcome, Receipt
from headpond.wire.control.staging import BatchInfo

LINKS_MAX = 128
"""As many links as OpenTelemetry keeps of a span, unless the program says otherwise."""
ROWS = "messaging.batch.message_count"
ID = "messaging.message.id"
SHARD = "messaging.destination.partition.id"
OWN = "messaging.headpond"
"""Of the attributes that only Headpond has."""

Attributes = dict[str, str | int | list[str]]
Handle = Callable[[Message[Any]], Awaitable[Any]]


class HeadpondInstrumentor:
    """Turns tracing on and off, like those of other libraries; ``opentelemetry-instrument`` finds it."""

    def instrument(self, *, tracer_provider: TracerProvider | None = None, **_: Any) -> None:
        """Clients that connect from now on make spans; without a provider those of the process's provider."""
        tracing.active = Spans(tracer_provider)

    def uninstrument(self, **_: Any) -> None:
        tracing.active = None


def span(what: Message[Any] | Batch, subscription: str = "") -> AbstractContextManager[Span]:
    """``with span(message):`` is the span of its processing; it records an exception that leaves the block.

    It is a child of the span around it, or else of the one that sent the message, and links to the latter.
    ``subscription`` becomes an attribute.
    """
    active = tracing.active
    spans = active if isinstance(active, Spans) else Spans()
    return spans.of_batch(what, subscription) if isinstance(what, Batch) else spans.of(what, subscription)


class Spans:
    """Implements ``Tracing``."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("headpond", __version__, provider)

    def sends(self, topic: str, addresses: Sequence[Address]) -> SendSpans:
        return SendSpans(self._tracer, topic, addresses)

    # --- processing ---------------------------------------------------------------------------------

    def around(self, handle: Handle, subscription: str) -> Handle:
        async def handle_in_span(message: Message[Any]) -> Any:
            # A child of the message's sender: the span in which the application was started may have ended.
            with self.of(message, subscription, Context()) as span:
                try:
                    result = await handle(message)
                except Exception as error:
                    span.set_attribute(f"{OWN}.settlement", _settlement(error))
                    raise
                span.set_attribute(f"{OWN}.settlement", "ack")
                return result

        return handle_in_span

    def unreadable(self, message: Message[Any], subscription: str, error: HeadpondError) -> None:
        with self.of(message, subscription, Context()) as span:
            span.set_attribute(f"{OWN}.settlement", "dead_letter")
            _fail(span, error)

    @contextmanager
    def of(self, message: Message[Any], subscription: str, within: Context | None = None) -> Iterator[Span]:
        """The span of one message; ``within`` is the context that it is in, if not the present one."""
        sent = propagate.extract(message.headers, Context())
        parent = context.get_current() if within is None else within
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = sent
        more: Attributes = {
            ID: str(message.identity),
            SHARD: str(message.shard),
            f"{OWN}.entry": message.entry,
            f"{OWN}.attempt": message.attempt,
        }
        links = _links([trace.get_current_span(sent).get_span_context()])
        with self._process(message.topic, subscription, more, links, parent) as span:
            node = {f"{OWN}.node": message.node}
            span.add_event("stored", node, message.origin.stored_at_us * 1000)
            yield span

    def of_batch(self, batch: Batch, subscription: str) -> AbstractContextManager[Span]:
        headers = batch.column("headers")
        different = {tuple(items) for items in headers.to_pylist() if items} if headers is not None else ()
        links = _links(_sender(dict(items)) for items in different)
        more: Attributes = {ROWS: len(batch), SHARD: str(batch.shard)}
        return self._process(batch.topic, subscription, more, links, context.get_current())

    async def commit(
        self, writer: str, batch: int, topics: Sequence[str], publish: Callable[[], Awaitable[BatchInfo]]
    ) -> BatchInfo:
        name, attributes = _of_topics("send", topics, writer)
        attributes |= {f"{OWN}.writer": writer, f"{OWN}.batch": batch}
        span = self._tracer.start_span(name, None, SpanKind.PRODUCER, attributes)
        try:
            done = await publish()
        except BaseException as error:
            _fail(span, error)
            raise
        else:
            span.set_attributes({f"{OWN}.outcome": done.outcome, ROWS: done.rows})
            return done
        finally:
            span.end()

    def query_batch(
        self, query: str, number: int, topics: Sequence[str], rows: int, began_ms: int, took_ms: int
    ) -> None:
        name, attributes = _of_topics("process", topics, query)
        attributes |= {f"{OWN}.query": query, f"{OWN}.batch": number, ROWS: rows}
        span = self._tracer.start_span(
            name, Context(), SpanKind.CONSUMER, attributes, start_time=began_ms * 1_000_000
        )
        span.end((began_ms + took_ms) * 1_000_000)

    @contextmanager
    def _process(
        self, topic: str, subscription: str, more: Attributes, links: list[Link], parent: Context
    ) -> Iterator[Span]:
        attributes = _attributes("process", topic) | more
        if subscription:
            attributes["messaging.destination.subscription.name"] = subscription
        name = f"process {TopicName.of(topic).short}"
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes, links)
        token = context.attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        except Skip:  # decides, and is no failure
            raise
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            span.end()
            context.detach(token)


class SendSpans:
    """Implements ``SendTracing``: the spans of one producer."""

    def __init__(self, tracer: Tracer, topic: str, addresses: Sequence[Address]) -> None:
        self._tracer = tracer
        self._name = f"send {TopicName.of(topic).short}"
        self._attributes = _attributes("send", topic)
        if len(addresses) == 1:
            self._attributes |= {"server.address": addresses[0].host, "server.port": addresses[0].port}

    def start(self, headers: Mapping[str, str]) -> tuple[Span, dict[str, str]]:
        """A span, and the headers with its context. If they have one, they keep it and the span links to it."""
        carried = dict(headers)
        given = _links([_sender(headers)])
        kind = SpanKind.CLIENT if given else SpanKind.PRODUCER
        span = self._tracer.start_span(self._name, None, kind, self._attributes, given)
        if not given:
            propagate.inject(carried, trace.set_span_in_context(span))
        return span, carried

    def batcher(self, kind: type[Batcher]) -> type[Batcher]:
        return cast(type[Batcher], type(f"Traced{kind.__name__}", (TracedBatcher, kind), {"spans": self}))

    async def table(self, send: Callable[[Mapping[str, str]], Awaitable[BatchReceipt]]) -> BatchReceipt:
        span, headers = self.start({})
        try:
            receipt = await send(headers)
        except BaseException as error:
            _fail(span, error)
            raise
        else:
            span.set_attribute(ROWS, receipt.rows)
            span.set_attributes({f"{OWN}.{outcome}": getattr(receipt, outcome) for outcome in Outcome})
            if receipt.errors:
                _fail(span, receipt.errors[0])
            return receipt
        finally:
            span.end()


class TracedBatcher(Batcher):
    """Makes a span for each message; it ends when the message's fate is known."""

    spans: SendSpans

    def add(self, value: Any, key: Any, id: str | None, headers: Mapping[str, str] | None) -> Promise:
        if headers and not (isinstance(headers, Mapping) and all(isinstance(t, str) for t in headers.values())):
            return super().add(value, key, id, headers)  # which refuses them
        span, carried = self.spans.start(headers or {})
        try:
            promise = super().add(value, key, id, carried or None)
        except Exception as error:
            _fail(span, error)
            span.end()
            raise
        if span.is_recording():
            promise.on_settled(partial(_end_sent, span))
        return promise


def _end_sent(span: Span, receipt: Receipt) -> None:
    span.set_attribute(f"{OWN}.outcome", str(receipt.outcome))
    if receipt.error is not None:
        _fail(span, receipt.error)
    else:
        span.set_attributes({ID: str(receipt.identity), SHARD: str(receipt.shard)})
    if receipt.entry is not None:
        span.set_attribute(f"{OWN}.entry", receipt.entry)
    span.end()


def _attributes(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": "headpond",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_topics(operation: str, topics: Sequence[str], other: str) -> tuple[str, Attributes]:
    """The name and the first attributes of the span of a batch; ``other`` names it unless it has one topic."""
    if len(topics) == 1:
        return f"{operation} {TopicName.of(topics[0]).short}", _attributes(operation, topics[0])
    return f"{operation} {other}", {f"{OWN}.topics": list(topics)} if topics else {}


def _sender(headers: Mapping[str, str]) -> SpanContext:
    """The context in the headers of a message; an invalid one if there is none."""
    return trace.get_current_span(propagate.extract(headers, Context())).get_span_context()


def _links(contexts: Iterable[SpanContext]) -> list[Link]:
    """Links to the valid ones, without repeats."""
    different = {(each.trace_id, each.span_id): Link(each) for each in contexts if each.is_valid}
    return list(different.values())[:LINKS_MAX]


def _settlement(error: Exception) -> str:
    """What the exception of a handler does to its message."""
    return "skip" if isinstance(error, Skip) else "dead_letter" if isinstance(error, DeadLetter) else "nack"


def _fail(span: Span, error: BaseException) -> None:
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    span.record_exception(error)
    span.set_attribute("error.type", error.code if isinstance(error, HeadpondError) else name)
    span.set_status(StatusCode.ERROR, str(error))
