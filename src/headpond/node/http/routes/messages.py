"""Messages of a topic: publish them, and read them by position without a subscription."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from litestar import MediaType, Response, get, post
from litestar.params import FromQuery, HeaderParameter, QueryParameter

from headpond.client.consume.batch import Batch
from headpond.client.reader import Part, Reader
from headpond.model.bounds import ENTRY_MAX, SHARDS_MAX
from headpond.model.errors import BadRequest
from headpond.model.receipt import Outcome, Receipt
from headpond.node.http.bodies import ARROW, JSON, RawMessage, aside, read_body, trace_of
from headpond.node.http.openapi import PublishOperation
from headpond.node.http.publish import publish
from headpond.node.http.request import (
    FromCaller,
    HttpRequest,
    TopicPath,
    Wait,
    answer_of,
    first_entries,
    state_of,
    topic_name,
    wait_of,
    while_connected,
)
from headpond.node.http.status import body_of, headers_of, status_of
from headpond.shapes.convert import ErrorShape, error_object
from headpond.shapes.message import Row, batch_rows
from headpond.wire.expiry import TTL_S_MAX
from headpond.wire.frame import SEGMENT_BYTES_MAX

FETCH_BYTES = 1024 * 1024
RECEIPT_BYTES = 256
"""A receipt in an answer, roughly."""
NODE_WAIT_S = 20.0
ADDED = pa.schema([("entry", pa.int64()), ("stored_at", pa.timestamp("us", tz="UTC")), ("node", pa.string())])
"""The columns that the node adds to messages in an Arrow answer."""


class ReceiptShape(msgspec.Struct):
    outcome: str
    """stored, duplicate or rejected"""
    shard: int
    entry: int | None
    """Its entry; of a duplicate: that of the first copy, if it is still known."""
    identity: str
    durability: str | None
    error: ErrorShape | None = None


class Published(msgspec.Struct):
    topic: str
    stored: int
    duplicate: int
    rejected: int
    receipts: list[ReceiptShape]


class LostShape(msgspec.Struct):
    shard: int
    first: int
    end: int
    reason: str


class Fetched(msgspec.Struct):
    topic: str
    uuid: str
    shard: int
    incarnation: int
    """Of `entry_next`: the position to read on from is both."""
    messages: list[Row]
    lost: list[LostShape]
    entry_next: int
    """Where to read on."""
    entry_end: int
    """One past the last durable entry of the shard."""


class EndShape(msgspec.Struct):
    shard: int
    incarnation: int
    entry_first: int
    entry_next: int


class EndsShape(msgspec.Struct):
    topic: str
    uuid: str
    shards: list[EndShape]


@post("/topics/{topic:str}/messages", status_code=200, operation_class=PublishOperation, tags=["messages"])
async def publish_messages(
    request: HttpRequest,
    caller: FromCaller,
    topic: TopicPath,
    idempotency_key: Annotated[str | None, HeaderParameter(name="Idempotency-Key")] = None,
    traceparent: Annotated[
        str | None, HeaderParameter(name="traceparent", description="Continues in messages without one.")
    ] = None,
    tracestate: Annotated[str | None, HeaderParameter(name="tracestate")] = None,
    producer: FromQuery[str] = "",
    key: Annotated[str | None, QueryParameter(description="Of a raw body: the message's key.")] = None,
    id: Annotated[str | None, QueryParameter(description="Of a raw body: the message's id.")] = None,
    ttl: Annotated[
        float | None, QueryParameter(ge=0, le=TTL_S_MAX, description="Of a raw body: seconds to live.")
    ] = None,
) -> Response[Published]:
    """Store messages; the answer has a receipt for each. With an Idempotency-Key a repeat stores nothing."""
    name = topic_name(topic)
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    raw = RawMessage(key, id, ttl)
    body = await request.body()
    # A repeat under a key has the same bytes, and perhaps another trace.
    trace = {} if idempotency_key is not None else trace_of(traceparent, tracestate)
    messages = await aside(len(body), read_body, media, body, raw, request.headers, trace)
    await answer_of(request).expect(RECEIPT_BYTES * len(messages))
    receipts = await publish(caller, name, messages, producer, idempotency_key)
    counts = Counter(each.outcome for each in receipts)
    made = Published(
        name,
        counts[Outcome.STORED],
        counts[Outcome.DUPLICATE],
        counts[Outcome.REJECTED],
        [_receipt(each) for each in receipts],
    )
    error = next((each.error for each in receipts if each.error is not None), None)
    if error is None:
        return Response(made)
    status = status_of(error)
    answer: Any = {**body_of(error), **msgspec.to_builtins(made)}
    return Response(answer, status_code=status, headers=headers_of(error, status))


def _receipt(receipt: Receipt) -> ReceiptShape:
    error = None if receipt.error is None else error_object(receipt.error)
    identity = receipt.identity
    return ReceiptShape(
        receipt.outcome, identity.shard, receipt.entry, str(identity), receipt.durability, error
    )


@get("/topics/{topic:str}/messages", tags=["messages"])
async def fetch_messages(
    request: HttpRequest,
    caller: FromCaller,
    topic: TopicPath,
    shard: Annotated[int, QueryParameter(ge=0, lt=SHARDS_MAX)] = 0,
    entry: Annotated[int | None, QueryParameter(ge=0, le=ENTRY_MAX, description="The first entry.")] = None,
    start: Annotated[
        str, QueryParameter(description="Without `entry`: earliest, latest or a time.")
    ] = "earliest",
    end: Annotated[
        int | None, QueryParameter(ge=0, le=ENTRY_MAX, description="One past the last entry.")
    ] = None,
    incarnation: Annotated[
        int | None,
        QueryParameter(ge=0, le=ENTRY_MAX, description="Of `end`, or of `entry`: another log is refused."),
    ] = None,
    count: Annotated[int, QueryParameter(ge=1, le=10_000)] = 1000,
    bytes_max: Annotated[int, QueryParameter(ge=1, le=8 * 1024 * 1024)] = FETCH_BYTES,
    filter: Annotated[str, QueryParameter(description="What is to be true of a message.")] = "",
    wait: Wait = 0.0,
) -> Response[Fetched]:
    """Read by position, without a subscription; nothing is settled. `Accept` chooses JSON or Arrow."""
    arrow = ARROW in request.headers.get("accept", "")
    wait_s = wait_of(request, wait)
    async with Reader(caller.link, topic_name(topic)) as reader:
        if shard >= reader.shards:
            raise BadRequest(f"the topic has no shard {shard}; it has {reader.shards}")
        at = (await first_entries(reader, start))[shard] if entry is None else entry
        if wait_s:
            await while_connected(request, _until_more(reader, shard, at, wait_s))
        answer = answer_of(request)
        await answer.expect(2 * max(bytes_max, SEGMENT_BYTES_MAX))  # at least one record and its messages
        part = await reader.fetch(
            shard,
            at,
            end,
            incarnation=incarnation,
            bytes_max=bytes_max,
            filter=filter,
            rows_bytes_max=bytes_max,
        )
        answer.resize(2 * part.nbytes)
        if arrow:
            return _arrow(part, count)
        answer_bytes = state_of(request).callers.limits.answer_bytes
        made: Any = await aside(part.nbytes, _json, reader, shard, part, count, answer_bytes)
        return Response(made, media_type=MediaType.JSON)


async def _until_more(reader: Reader, shard: int, entry: int, wait_s: float) -> None:
    """Returns when the shard has the entry, or the time is over; one request to the node waits for less."""
    known = [entry if each == shard else 2**62 for each in range(reader.shards)]
    until = monotonic() + wait_s
    while (left_s := until - monotonic()) > 0:
        if (await reader.ends(known, min(left_s, NODE_WAIT_S)))[shard].entry_next > entry:
            return


def _first_rows(part: Part, count: int) -> tuple[list[tuple[Batch, int]], int]:
    """The batches with the number of rows to take of each, and the entry to continue at."""
    found: list[tuple[Batch, int]] = []
    left = count
    for batch in part.batches:
        rows = min(len(batch), left)
        found.append((batch, rows))
        left -= rows
        if rows < len(batch) or (not left and batch is not part.batches[-1]):
            return found, batch.entries[rows - 1].as_py() + 1 if rows else batch.entries[0].as_py()
    return found, part.entry_next


def _json(reader: Reader, shard: int, part: Part, count: int, bytes_max: int) -> bytes:
    """The first messages, up to ``count`` of them and ``bytes_max``, and at least one."""
    batches, entry_next = _first_rows(part, count)
    rows: list[Any] = []
    size = 0
    for row in (row for batch, wanted in batches for row in batch_rows(batch, wanted)):
        text = msgspec.json.encode(row, enc_hook=str)
        size += len(text)
        if rows and size > bytes_max:
            entry_next = row.entry
            break
        rows.append(msgspec.Raw(text))
    lost = [LostShape(*each) for each in part.lost if each.start < entry_next]
    where = (reader.topic, reader.uuid.hex(), shard, part.incarnation)
    return msgspec.json.encode(Fetched(*where, rows, lost, entry_next, part.entry_end))


def _arrow(part: Part, count: int) -> Response[Any]:
    """The columns value, key, id, headers and sent_at, and before them entry, stored_at and node."""
    sink = pa.BufferOutputStream()
    writer = None
    batches, entry_next = _first_rows(part, count)
    for batch, wanted in batches:
        rows = batch.arrow
        added = [batch.entries, batch.stored_at, pa.repeat(batch.node, len(batch))]
        table = pa.RecordBatch.from_arrays([*added, *rows.columns], names=[*ADDED.names, *rows.schema.names])
        writer = writer or pa.ipc.new_stream(sink, table.schema)
        writer.write_batch(table.slice(0, wanted))
    if writer is None:
        writer = pa.ipc.new_stream(sink, ADDED)
    writer.close()
    headers = {
        "Headpond-Entry-Next": str(entry_next),
        "Headpond-Entry-End": str(part.entry_end),
        "Headpond-Incarnation": str(part.incarnation),
    }
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW, headers=headers)


@get("/topics/{topic:str}/ends", tags=["messages"])
async def topic_ends(caller: FromCaller, topic: TopicPath) -> EndsShape:
    """How far each shard reaches."""
    name = topic_name(topic)
    async with Reader(caller.link, name) as reader:
        ends = await reader.ends()
        shards = [
            EndShape(number, each.incarnation, each.entry_first, each.entry_next)
            for number, each in enumerate(ends)
        ]
        return EndsShape(name, reader.uuid.hex(), shards)
