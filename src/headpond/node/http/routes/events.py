"""Messages as server-sent events: ``text/event-stream``, as ``curl -N`` and browsers read it.

Without a subscription a stream (GET) reads by position and settles nothing. An event's id holds the position
of every shard (``UUID/INCARNATION.ENTRY,…``), so that ``Last-Event-ID`` continues exactly there. If the topic
was replaced, lost entries or is an old copy since, the request is refused.

With a subscription (POST, because it changes what other consumers get) the ids are positions, and the stream
is a consumer like those of ``fetch``. A client settles messages by ``ack`` with the same consumer's name; with
``ack=sent`` a message is settled once the connection has it, so a message that a lost connection held does not
come again. ``Last-Event-ID`` acknowledges what this consumer delivered up to that event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, QueryParameter
from litestar.response import Stream

from headpond.client.reader import Reader
from headpond.model.errors import BadRequest, HeadpondError, TopicMismatch
from headpond.node.http.answers import PIECE_BYTES, Answer
from headpond.node.http.callers import Caller, Callers
from headpond.node.http.held import HeldConsumer, position_of
from headpond.node.http.request import (
    FromCaller,
    HttpRequest,
    TopicPath,
    answer_of,
    first_entries,
    state_of,
    topic_name,
)
from headpond.node.http.routes.consuming import ConsumerName, Kind, Mode, delivered_message
from headpond.node.http.routes.subscriptions import SUBSCRIPTION
from headpond.node.http.status import body_of
from headpond.shapes.message import Row, batch_rows
from headpond.shapes.top import sample, top_object
from headpond.wire.control.status import ShowTop, TopInfo
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.typed.values import value_json

HEARTBEAT_S = 15.0
"""How often a stream sends a comment, so that a lost connection is noticed."""
FETCH_BYTES = 256 * 1024
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
SHARDS_MAX = 256
"""Every event has an id, and the id names every shard."""
LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID")]


def event(name: str, data: bytes, id: str | None = None) -> bytes:
    """One event; JSON contains no line ends."""
    prefix = b"" if id is None else b"id: " + id.encode() + b"\n"
    return prefix + b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


@dataclass(slots=True)
class StreamPosition:
    """The next entry of each shard, as the id of an event has it."""

    uuid: bytes
    incarnations: list[int]
    entries: list[int]

    def __str__(self) -> str:
        pairs = zip(self.incarnations, self.entries, strict=True)
        return f"{self.uuid.hex()}/" + ",".join(f"{run}.{entry}" for run, entry in pairs)

    @classmethod
    def parse(cls, text: str) -> StreamPosition:
        uuid, slash, rest = text.partition("/")
        try:
            pairs = [tuple(map(int, each.split("."))) for each in rest.split(",")]
            if not slash or any(len(pair) != 2 or min(pair) < 0 or max(pair) > 2**62 for pair in pairs):
                raise ValueError(text)
            return cls(bytes.fromhex(uuid), [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        except ValueError:
            raise BadRequest(f"Last-Event-ID {text[:80]!r} is not an id of this stream") from None


@get("/topics/{topic:str}/events", tags=["events"], media_type="text/event-stream")
async def topic_events(
    request: HttpRequest,
    caller: FromCaller,
    topic: TopicPath,
    start: Annotated[
        str, QueryParameter(description="earliest, latest or a time; Last-Event-ID wins.")
    ] = "latest",
    filter: FromQuery[str] = "",
    last_event_id: LastEventId = None,
) -> Stream:
    """Messages as they are stored, read by position; nothing is settled."""
    reader = await Reader(caller.link, topic_name(topic)).open()
    if reader.shards > SHARDS_MAX:
        raise BadRequest(f"the topic has {reader.shards} shards; a stream of events takes at most {SHARDS_MAX}")
    position = await _start_position(reader, start, last_event_id)
    answer = answer_of(request)
    events = _read_on(reader, position, filter, answer)
    stream = _counted(caller, events, answer, state_of(request).stopping)
    return Stream(stream, media_type="text/event-stream", headers=STREAM_HEADERS)


async def _start_position(reader: Reader, start: str, last: str | None) -> StreamPosition:
    ends = await reader.ends()
    runs = [each.incarnation for each in ends]
    if last is not None:
        before = StreamPosition.parse(last)
        if before.uuid != reader.uuid or len(before.entries) != reader.shards:
            raise TopicMismatch(f"topic {reader.topic} was deleted and created again since this stream read it")
        for shard, (run, entry) in enumerate(zip(before.incarnations, before.entries, strict=True)):
            if run != runs[shard] or entry > ends[shard].entry_next:
                await reader.fetch(
                    shard, entry, entry, incarnation=run
                )  # refused if other entries precede it now
        return before
    pairs = zip(await first_entries(reader, start), ends, strict=True)
    entries = [min(entry, end.entry_next) for entry, end in pairs]
    return StreamPosition(reader.uuid, runs, entries)


async def _read_on(
    reader: Reader, position: StreamPosition, filter: str, answer: Answer
) -> AsyncIterator[bytes]:
    while True:
        ends = await reader.ends(position.entries, HEARTBEAT_S)
        nothing = True
        for shard, end in enumerate(ends):
            while position.entries[shard] < end.entry_next:
                nothing = False
                await answer.expect(2 * SEGMENT_BYTES_MAX)  # at least one record and its messages
                async for piece in _read_part(reader, position, shard, filter, answer):
                    yield piece
                answer.resize(0)
        if nothing:
            yield b": still here\n\n"


def _encoded(row: Row) -> tuple[int, bytes]:
    return row.entry, msgspec.json.encode(row, enc_hook=str)


async def _read_part(
    reader: Reader, position: StreamPosition, shard: int, filter: str, answer: Answer
) -> AsyncIterator[bytes]:
    """The events of one fetch, in pieces."""
    at = position.entries[shard]
    part = await reader.fetch(
        shard,
        at,
        incarnation=position.incarnations[shard],
        bytes_max=FETCH_BYTES,
        filter=filter,
        rows_bytes_max=FETCH_BYTES,
    )
    answer.resize(2 * part.nbytes)
    position.incarnations[shard] = part.incarnation
    for lost in part.lost:
        yield event("lost", value_json(lost._asdict()))
    events: list[bytes] = []
    size = 0
    for batch in part.batches:
        for entry, text in map(_encoded, batch_rows(batch)):  # a row is released with its text
            position.entries[shard] = entry + 1
            events.append(event("message", text, str(position)))
            size += len(text)
            if size >= PIECE_BYTES:
                yield b"".join(events)
                events, size = [], 0
    if events:
        yield b"".join(events)
    position.entries[shard] = max(part.entry_next, at + 1)


@get("/top/events", tags=["events"], media_type="text/event-stream")
async def top_events(
    request: HttpRequest,
    caller: FromCaller,
    topic: Annotated[
        str, QueryParameter(max_length=600, description="Topics of this form alone (* and ?).")
    ] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50,
    interval: Annotated[float, QueryParameter(ge=0.5, le=60, description="Seconds between two events.")] = 2.0,
) -> Stream:
    """Rates and lag as `GET /v1/top` has them, again and again; the first event has no rates yet."""
    ask = ShowTop(topic, limit)
    readings = _read_again(caller, ask, await caller.ask(ask), interval)
    stream = _counted(caller, readings, answer_of(request), state_of(request).stopping)
    return Stream(stream, media_type="text/event-stream", headers=STREAM_HEADERS)


async def _read_again(caller: Caller, ask: ShowTop, first: TopInfo, interval_s: float) -> AsyncIterator[bytes]:
    before = now = first
    while True:
        yield event("top", msgspec.json.encode(top_object(sample(before, now))))
        await asyncio.sleep(interval_s)
        before, now = now, await caller.ask(ask)


@post(SUBSCRIPTION + "/events", status_code=200, tags=["events"], media_type="text/event-stream")
async def subscription_events(
    request: HttpRequest,
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    consumer: ConsumerName = "",
    kind: Kind = None,
    mode: Mode = None,
    start: FromQuery[str] = "earliest",
    ack: Annotated[
        str, QueryParameter(pattern="^(none|sent)$", description="`sent`: settled as it is sent.")
    ] = "none",
    last_event_id: LastEventId = None,
) -> Stream:
    """Messages as the subscription delivers them; settled by `ack` (same consumer), or as they are sent."""
    name = topic_name(topic)
    state = state_of(request)
    held = await state.callers.hold(caller, (name, subscription, consumer), kind, mode, start)
    if last_event_id is not None:
        await held.ack_upto(last_event_id)
    events = _hand_on(caller, held, state.callers, sent=ack == "sent")
    stream = _counted(caller, events, answer_of(request), state.stopping)
    return Stream(stream, media_type="text/event-stream", headers=STREAM_HEADERS)


async def _hand_on(caller: Caller, held: HeldConsumer, callers: Callers, *, sent: bool) -> AsyncIterator[bytes]:
    while not held.over:
        callers.check_held(caller, held)
        messages = await held.fetch(100, HEARTBEAT_S)
        if not messages:
            yield b": still here\n\n"
        unsent = list(messages)
        try:
            while unsent:
                row = delivered_message(unsent[0])
                yield event("message", msgspec.json.encode(row, enc_hook=str), row.position)
                message = unsent.pop(0)
                if sent:
                    await held.settle([position_of(message)], held.consumer.ack, flush=False)
        finally:
            held.put_back(unsent)  # the client has hung up


async def _counted(
    caller: FromCaller, events: AsyncIterator[bytes], answer: Answer, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    """The events until the node stops or one fails; the last event is the error."""
    caller.streams += 1
    ended = asyncio.ensure_future(stopping.wait())
    try:
        yield b": connected\n\n"
        while True:
            coming = asyncio.ensure_future(anext(events))
            try:
                await asyncio.wait([coming, ended], return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                piece, held = coming.result(), answer.bytes
                if len(piece) > PIECE_BYTES:  # beside the rows it was made of
                    await answer.expect(held + len(piece))
                yield piece
                answer.resize(held)
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
    except StopAsyncIteration:
        return
    except HeadpondError as error:
        yield event("error", msgspec.json.encode(body_of(error)))
    finally:
        ended.cancel()
        caller.streams -= 1
        await events.aclose()  # type: ignore[attr-defined]  # they are generators
