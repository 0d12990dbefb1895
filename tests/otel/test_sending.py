"""A producer that is traced: a span for each message or table, whose context the messages carry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

import headpond
from headpond import testing
from headpond.errors import BadRequest, BatchDiffers, SegmentTooLarge, TopicNotFound
from tests.otel.finished import (
    GIVEN,
    SENDER,
    TRACE,
    FinishedSpans,
    attributes,
    carried,
    failure,
    links,
    own,
    parent,
)

SEND = "send orders"
OUTCOME = "messaging.headpond.outcome"


async def stored(client: headpond.Client, topic: str = "orders") -> list[headpond.Message]:
    async with client.consumer(topic, "look") as consumer:
        found: list[headpond.Message] = []
        while (message := await consumer.receive(timeout=0.2)) is not None:
            found.append(message)
        return found


def test_a_span_of_each_send_ends_with_its_receipt_and_the_message_carries_its_context(
    spans: FinishedSpans, provider: TracerProvider
) -> None:
    async def scenario() -> tuple[headpond.Message, headpond.Receipt]:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                with provider.get_tracer("shop").start_as_current_span("take order"):
                    receipt = await producer.send(b"tea", key=b"k", headers={"till": "1"}, ttl=60)
            (message,) = await stored(client)
            return message, receipt

    message, receipt = asyncio.run(scenario())
    span = spans.one(SEND)
    assert span.kind is SpanKind.PRODUCER
    assert parent(span) == own(spans.one("take order"))
    assert carried(message.headers) == own(span)
    assert message.headers["till"] == "1" and "headpond-ttl" in message.headers
    names = ("messaging.system", "messaging.operation.name", "messaging.operation.type")
    assert attributes(span, names) == ["headpond", "send", "send"]
    names = ("messaging.destination.name", "messaging.destination.partition.id", "messaging.message.id")
    assert attributes(span, names) == ["default/default/default/orders", "0", str(receipt.identity)]
    assert attributes(span, (OUTCOME, "messaging.headpond.entry", "server.port")) == ["stored", 0, 7411]
    assert failure(span) == (None, None)


async def test_each_posted_message_has_its_own_span_and_only_that_of_an_answered_one_has_ended(
    spans: FinishedSpans,
) -> None:
    async with testing.node() as node, node.connect() as client, client.producer("orders") as producer:
        promises = [producer.post(b"%d" % number) for number in range(3)]
        assert spans.named(SEND) == []
        for promise in promises:
            await promise
        assert len(spans.named(SEND)) == 3
        messages = await stored(client)
        assert [carried(message.headers) for message in messages] == list(map(own, spans.named(SEND)))


def test_a_message_with_a_context_keeps_it_and_the_span_links_to_it(spans: FinishedSpans) -> None:
    async def scenario() -> list[headpond.Message]:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                await producer.send(b"tea", headers=GIVEN)
                await producer.send(b"tea", headers={"traceparent": "x" * 500})  # which is none
            return await stored(client)

    kept, replaced = asyncio.run(scenario())
    first, second = spans.named(SEND)
    assert (kept.headers, first.kind, links(first)) == (
        GIVEN,
        SpanKind.CLIENT,
        [(int(TRACE, 16), int(SENDER, 16))],
    )
    assert (carried(replaced.headers), second.kind, links(second)) == (own(second), SpanKind.PRODUCER, [])


async def test_the_span_of_a_refused_message_has_the_error_and_flush_still_raises_it(
    spans: FinishedSpans,
) -> None:
    async with testing.node() as node, node.connect() as client, client.producer("orders") as producer:
        await producer.send(b"tea")
        await client.admin.delete_topic("orders")
        producer.post(b"tea")
        with pytest.raises(TopicNotFound):
            await producer.flush()
        with pytest.raises(SegmentTooLarge):
            producer.post(bytes(9 * 1024 * 1024))
    _, refused, too_large = spans.named(SEND)
    assert attributes(refused, ("error.type", OUTCOME)) == ["topic-not-found", "rejected"]
    assert [event.name for event in refused.events] == ["exception"]
    assert failure(too_large)[0] == "segment-too-large"


@pytest.mark.parametrize("headers", ["text", {"traceparent": 3}, {"a": b"b"}, [("a", "b")]])
async def test_wrong_headers_are_refused_as_without_tracing(spans: FinishedSpans, headers: Any) -> None:
    async with testing.node() as node, node.connect() as client, client.producer("orders") as producer:
        with pytest.raises(BadRequest):
            await producer.send(b"tea", headers=headers)
    assert spans.named(SEND) == []


async def test_the_span_of_a_spilled_message_says_so(spans: FinishedSpans, tmp_path: Path) -> None:
    async with testing.node() as node, node.connect() as client:
        producer = await client.producer("orders", spill_after=0.0, refill=tmp_path).open()
        node.kill()
        assert (await producer.send(b"tea")).outcome == "spilled"
        await node.restart()
    assert attributes(spans.one(SEND), (OUTCOME,)) == ["spilled"]


def test_a_table_is_one_span_that_all_rows_without_a_context_carry(spans: FinishedSpans) -> None:
    headers = pa.array([None, list(GIVEN.items()), [("till", "1")]], pa.map_(pa.string(), pa.string()))
    tables = [pa.table({"value": [b"1", b"2"]}), pa.table({"value": [b"3", b"4", b"5"], "headers": headers})]

    async def scenario() -> list[headpond.Message]:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                for table in tables:
                    assert (await producer.send_batch(table)).stored == table.num_rows
            return await stored(client)

    messages = asyncio.run(scenario())
    one, two = spans.named(SEND)
    given = (int(TRACE, 16), int(SENDER, 16))
    assert [carried(message.headers) for message in messages] == [own(one), own(one), own(two), given, own(two)]
    assert messages[4].headers["till"] == "1"
    assert attributes(one, ("messaging.batch.message_count", "messaging.headpond.stored")) == [2, 2]
    assert (one.kind, failure(one)) == (SpanKind.PRODUCER, (None, None))


def test_rows_of_a_typed_topic_carry_the_context_too(spans: FinishedSpans) -> None:
    schema = pa.schema([pa.field("item", pa.string())])

    async def scenario() -> list[headpond.Message]:
        async with testing.node() as node, node.connect() as client:
            await client.admin.create_topic("orders", schema=schema)
            async with client.producer("orders") as producer:
                await producer.send({"item": "tea"})
                await producer.send_batch(pa.table({"item": ["milk"]}))
            return await stored(client)

    messages = asyncio.run(scenario())
    assert [carried(message.headers) for message in messages] == list(map(own, spans.named(SEND)))


async def test_rows_that_outgrow_a_segment_by_their_context_are_sent_in_more_of_them(
    spans: FinishedSpans,
) -> None:
    rows = 120_000
    async with testing.node() as node, node.connect() as client:
        producer = await client.producer("orders", batch_bytes=8 * 1024 * 1024).open()
        receipt = await producer.send_batch(pa.table({"value": pa.repeat(b"x", rows)}))
        assert (receipt.stored, len(receipt.parcels)) == (rows, 2)


async def test_a_table_at_fault_leaves_a_failed_span(spans: FinishedSpans) -> None:
    async with testing.node() as node, node.connect() as client, client.producer("orders") as producer:
        with pytest.raises(headpond.HeadpondError):
            await producer.send_batch(pa.table({"other": [1]}))
    assert failure(spans.one(SEND))[0] == "schema-mismatch"


def test_the_blocking_client_makes_the_same_spans(spans: FinishedSpans, provider: TracerProvider) -> None:
    with testing.blocking_node() as node, node.connect() as client:
        with client.producer("orders", value=str) as producer:
            with provider.get_tracer("shop").start_as_current_span("take order"):
                sent = [producer.send(str(number)) for number in range(4)]
                promise = producer.post("4")
                batch = producer.send_batch(pa.table({"value": [b"5"]}))
            sent.append(promise.result(timeout=20))
        with client.consumer("orders", "s", value=str) as consumer:
            messages = [consumer.receive(timeout=20) for _ in range(6)]
    assert batch.stored == 1
    made = spans.named(SEND)
    assert {parent(span) for span in made} == {own(spans.one("take order"))}
    ids = {str(receipt.identity) for receipt in sent}
    assert {found for span in made for found in attributes(span, ("messaging.message.id",))} == ids | {None}
    assert {carried(message.headers) for message in messages if message is not None} == set(map(own, made))
    assert len(made) == 6


def test_a_commit_of_staged_rows_is_one_span_and_the_rows_stay_as_they_were(spans: FinishedSpans) -> None:
    async def scenario() -> list[headpond.Message]:
        async with testing.node() as node, node.connect() as client:
            async with client.writer("copy") as writer:
                for _ in range(2):  # the second one is a repeat, which must have the same headers
                    await writer.commit(1, [await writer.stage("orders", pa.table({"value": [b"a", b"b"]}))])
                both = [await writer.stage(topic, pa.table({"value": [b"c"]})) for topic in ("orders", "bills")]
                await writer.commit(2, both)
                with pytest.raises(BatchDiffers):
                    await writer.commit(2, [await writer.stage("orders", pa.table({"value": [b"d"]}))])
            return await stored(client)

    messages = asyncio.run(scenario())
    assert [message.headers for message in messages] == [{}, {}, {}]
    names = ("messaging.headpond.writer", "messaging.headpond.batch", OUTCOME, "messaging.batch.message_count")
    first, again, other = spans.named(SEND)
    assert first.kind is SpanKind.PRODUCER
    assert attributes(first, names) == ["copy", 1, "committed", 2]
    assert attributes(again, names) == ["copy", 1, "duplicate", 0]
    assert failure(other)[0] == "batch-differs"
    both = spans.one("send copy")
    topics = ("default/default/default/bills", "default/default/default/orders")
    assert attributes(both, (*names, "messaging.headpond.topics")) == ["copy", 2, "committed", 2, topics]
