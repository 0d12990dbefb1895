"""Handlers and loops that are traced: a span for each message, in the trace of what sent it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

import headpond
from headpond import testing
from headpond.otel import HeadpondInstrumentor, span
from tests.client.reading import receive
from tests.otel.finished import GIVEN, FinishedSpans, attributes, carried, failure, links, own, parent

WAIT_S = 20
SETTLEMENT = "messaging.headpond.settlement"


class TeaSpilled(Exception):
    """What a handler raises that fails."""


async def handled(app: headpond.App, *values: bytes, **options: Any) -> None:
    """Sends messages to orders, and returns when the application has settled all of them."""
    async with testing.node(listen=True) as node, node.connect() as client:
        async with client.producer("orders") as producer:
            for value in values:
                await producer.send(value, **options)
        app.url = node.url
        async with app, asyncio.timeout(WAIT_S):
            settled = 0
            while settled < len(values):
                info = await client.admin.show_subscription("orders", "s")
                settled = info.acked + info.skipped + info.dead
                await asyncio.sleep(0.02)


def test_one_trace_leads_from_the_producer_over_the_node_through_a_handler_to_what_it_publishes(
    spans: FinishedSpans,
) -> None:
    app = headpond.App()
    names = ("messaging.destination.subscription.name", "messaging.headpond.attempt", SETTLEMENT)

    @app.subscriber("orders", subscription="s")
    async def bill(value: bytes) -> None:
        await app.publish("bills", value)

    asyncio.run(handled(app, b"tea", b"milk"))
    sends, processed = spans.named("send orders"), spans.named("process orders")
    assert [parent(each) for each in processed] == [own(each) for each in sends]
    assert [links(each) for each in processed] == [[own(each)] for each in sends]
    assert [parent(each) for each in spans.named("send bills")] == [own(each) for each in processed]
    assert len({own(each)[0] for each in spans.get_finished_spans()}) == 2, "two messages, two traces"
    assert all(each.kind is SpanKind.CONSUMER and failure(each) == (None, None) for each in processed)
    assert attributes(processed[0], names) == ["s", 1, "ack"]
    ids = [attributes(each, ("messaging.message.id",)) for each in (sends[0], processed[0])]
    assert ids[0] == ids[1]


async def test_the_span_of_a_handler_says_what_became_of_its_message(spans: FinishedSpans) -> None:
    app = headpond.App()
    raised: dict[str, Exception] = {
        "unwanted": headpond.Skip(),
        "hopeless": headpond.DeadLetter("no such customer"),
        "later": headpond.Retry("the bank is closed", delay=0.0),
        "broken": TeaSpilled("tea"),
    }

    @app.subscriber("orders", subscription="s", policy=headpond.Policy(max_attempts=2, backoff=0.0))
    async def decide(word: str) -> None:
        if word in raised:
            raise raised[word]

    await handled(app, b"good", *(word.encode() for word in raised), b"\xff")
    sends = {
        own(each): word for each, word in zip(spans.named("send orders"), ["good", *raised, ""], strict=True)
    }
    found: dict[str, list[tuple[Any, ...]]] = {}
    for each in spans.named("process orders"):
        sent = parent(each)
        assert sent is not None
        found.setdefault(sends[sent], []).append((*attributes(each, (SETTLEMENT,)), *failure(each)))
    mine = f"{TeaSpilled.__module__}.TeaSpilled"
    assert found == {
        "good": [("ack", None, None)],
        "unwanted": [("skip", None, None)],
        "hopeless": [("dead_letter", "headpond.DeadLetter", "no such customer")],
        "later": [("nack", "headpond.Retry", "the bank is closed")] * 2,
        "broken": [("nack", mine, "tea")] * 2,
        "": [("dead_letter", "bad-value", found[""][0][2])],
    }
    assert "cannot be read as text" in str(found[""][0][2])
    (failed, again) = [each for each in spans.named("process orders") if failure(each)[0] == mine]
    assert [event.name for event in failed.events] == ["stored", "exception"]
    assert [attributes(each, ("messaging.headpond.attempt",)) for each in (failed, again)] == [[1], [2]]


async def test_a_plain_function_and_middleware_run_inside_the_span(
    spans: FinishedSpans, provider: TracerProvider
) -> None:
    app = headpond.App()
    tracer = provider.get_tracer("shop")

    @app.middleware
    async def outer(message: headpond.Message[Any], handle: Any) -> Any:
        with tracer.start_as_current_span("outer"):
            return await handle(message)

    @app.subscriber("orders", subscription="s")
    def inner(value: bytes) -> None:
        assert threading.current_thread() is not threading.main_thread()
        tracer.start_span("inner").end()
        assert baggage.get_baggage("till") == "7"

    with tracer.start_as_current_span("start of the program"):
        await handled(app, b"tea", headers=GIVEN | {"baggage": "till=7"})
    process, outer_span = spans.one("process orders"), spans.one("outer")
    assert (parent(outer_span), parent(spans.one("inner"))) == (own(process), own(outer_span))
    assert parent(process) == carried(GIVEN), "not a child of the span in which the application was started"
    assert failure(process) == (None, None)


def one_message(**options: Any) -> headpond.Message:
    async def scenario() -> headpond.Message:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                await producer.send(b"tea", **options)
            async with client.consumer("orders", "s") as consumer:
                return await receive(consumer)

    return asyncio.run(scenario())


def test_a_loop_puts_a_message_into_the_trace_of_its_sender_or_into_the_span_around_it(
    spans: FinishedSpans, provider: TracerProvider
) -> None:
    message = one_message()
    with pytest.raises(TeaSpilled), span(message, "billing") as current:
        assert trace.get_current_span() is current
        raise TeaSpilled("tea")
    with provider.get_tracer("shop").start_as_current_span("loop"), span(message):
        pass
    assert not trace.get_current_span().get_span_context().is_valid
    sent, loop = spans.one("send orders"), spans.one("loop")
    first, second = spans.named("process orders")
    assert (parent(first), links(first)) == (own(sent), [own(sent)])
    assert (parent(second), links(second)) == (own(loop), [own(sent)])
    assert failure(first) == (f"{TeaSpilled.__module__}.TeaSpilled", "tea")
    assert attributes(first, ("messaging.destination.subscription.name",)) == ["billing"]
    assert failure(second) == (None, None)


def test_the_time_of_storage_is_an_event_of_the_span(spans: FinishedSpans) -> None:
    message = one_message()
    with span(message):
        pass
    sent, processed = spans.one("send orders"), spans.one("process orders")
    (stored,) = processed.events
    assert (stored.name, stored.timestamp) == ("stored", message.origin.stored_at_us * 1000)
    assert stored.attributes == {"messaging.headpond.node": message.node}
    assert sent.start_time is not None and sent.start_time // 1000 <= stored.timestamp // 1000


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {"traceparent": ""},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"traceparent": "☕" * 99},
    ],
)
def test_a_message_without_a_valid_context_begins_a_trace(headers: dict[str, str] | None) -> None:
    message = one_message(headers=headers)  # sent without tracing
    provider = TracerProvider()
    finished = FinishedSpans()
    provider.add_span_processor(SimpleSpanProcessor(finished))
    HeadpondInstrumentor().instrument(tracer_provider=provider)
    with span(message):
        pass
    HeadpondInstrumentor().uninstrument()
    made = finished.one("process orders")
    assert (parent(made), links(made)) == (None, [])


async def test_the_span_of_a_batch_links_to_each_context_in_it_once(spans: FinishedSpans) -> None:
    async with testing.node() as node, node.connect() as client:
        async with client.producer("orders") as producer:
            await producer.send_batch(pa.table({"value": [b"%d" % number for number in range(1000)]}))
            for number in range(3):
                await producer.send(b"", headers=GIVEN if number == 1 else None)
        async with client.consumer("orders", "s") as consumer:
            rows = 0
            async for batch in consumer.batches():
                with span(batch, "s"):
                    rows += len(batch)
                if rows == 1003:
                    break
    table, one, _, three = spans.named("send orders")
    processed = spans.named("process orders")
    count = "messaging.batch.message_count"
    assert sum(attributes(each, (count,))[0] for each in processed) == 1003
    linked = [links(each) for each in processed]
    assert {link for each in linked for link in each} == {own(table), own(one), carried(GIVEN), own(three)}
    assert all(len(each) == len(set(each)) for each in linked)
    assert all(parent(each) is None for each in processed)


def test_links_of_a_batch_are_bounded(spans: FinishedSpans) -> None:
    async def scenario() -> headpond.Batch:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                for _ in range(200):
                    producer.post(b"")
            async with client.consumer("orders", "s") as consumer:
                return await anext(consumer.batches())

    batch = asyncio.run(scenario())
    with span(batch):
        pass
    assert (len(batch), len(links(spans.one("process orders")))) == (200, 128)


def test_a_blocking_loop_is_traced_the_same(spans: FinishedSpans) -> None:
    with testing.blocking_node() as node, node.connect() as client:
        with client.producer("orders") as producer:
            producer.send(b"tea")
        with client.consumer("orders", "s") as consumer:
            message = consumer.receive(WAIT_S)
            assert message is not None
            with span(message), client.producer("bills") as bills:
                bills.send(b"bill")
                consumer.ack(message)
    sent, processed, bill = map(spans.one, ("send orders", "process orders", "send bills"))
    assert (parent(processed), parent(bill)) == (own(sent), own(processed))
    assert context.get_current() == {}
