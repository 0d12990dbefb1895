"""A scripted node: real sockets, the node's half of the connection machine, and answers that a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from headpond.model.bounds import Span
from headpond.wire.connection import ConnectionFault, Event, NodeSide
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.codec import Request, Response, encode_control
from headpond.wire.control.consuming import Deliver, Subscribe, Subscribed
from headpond.wire.control.greeting import Error, Hello, Ping, Pong
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import decode_plain, encode_plain
from headpond.wire.record import RecordHeader
from headpond.wire.title import decode_title

Kind = TypeVar("Kind")

TOPIC_UUID = b"u" * 16


class Conversation:
    """One connection of a client. ``next`` returns its messages of a kind, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer) -> None:
        self.block: bytes | None = None
        self.titles = 0
        self.said: asyncio.Queue[Event | None] = asyncio.Queue()
        self._reader = reader
        self._writer = writer
        self._peer = peer
        self._shards = peer.shards
        self._side = NodeSide(node="peer-1", software="peer", window_bytes_max=16 * 1024 * 1024)

    async def listen(self) -> None:
        while data := await self._reader.read(65536):
            for event in self._side.receive(data):
                if isinstance(event, ConnectionFault):
                    self.abort()
                    return
                self._hear(event)
            self._writer.writelines(self._side.data_to_send())

    def _hear(self, event: Event) -> None:
        if isinstance(event, Ping):
            self.say(Pong(event.number))
        elif isinstance(event, Frame) and event.type == FrameType.TITLE:
            self.block = decode_title(event.body)[0]
            self.titles += 1
        elif isinstance(event, Request) and isinstance(event.operation, OpenTopic):
            if self._peer.hindrance:
                self.say(Error(self._peer.hindrance, "for the test", "", retryable=True, request=event.number))
                return
            info = TopicInfo(event.operation.topic, TOPIC_UUID, self._shards, 0, "sync")
            self.say(Response(event.number, msgspec.to_builtins(info, builtin_types=(bytes,))))
        elif not isinstance(event, Hello):
            self.said.put_nowait(event)

    async def next(self, kind: type[Kind]) -> Kind:
        """The client's next message of a kind; skips others."""
        while True:
            event = await self.said.get()
            if isinstance(event, kind):
                return event
            assert event is not None, "the connection ended"

    async def values(self) -> tuple[Frame, list[Any]]:
        """The next segment, and the values of its rows."""
        frame = await self.next(Frame)
        return frame, decode_plain(frame.body).column("value").to_pylist()

    def say(self, *messages: Control) -> None:
        self._writer.writelines([b"", *map(encode_control, messages)])

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def abort(self) -> None:
        self._writer.transport.abort()

    # --- producing ----------------------------------------------------------------------------------

    def answer(self, frame: Frame, outcome: str = "stored", **fields: Any) -> None:
        assert self.block is not None
        if outcome == "stored":
            fields.setdefault("first_entry", 100 * frame.segment)
        self.say(Ack(self.block, frame.shard, "sync", [AckItem(frame.segment, outcome, **fields)]))

    def reject(self, frame: Frame, code: str, expected: int | None = None) -> None:
        self.answer(frame, "rejected", code=code, message=f"for the test: {code}", expected=expected)

    # --- consuming ----------------------------------------------------------------------------------

    async def subscribed(self) -> Subscribe:
        ask = await self.next(Subscribe)
        self.say(Subscribed(ask.consumer, ask.topic, TOPIC_UUID, self._shards, ask.kind, ask.mode, [0]))
        return ask

    def deliver(
        self, consumer: int, *records: bytes, spans: list[Span], shard: int = 0, attempt: int = 1
    ) -> None:
        self.write(encode_control(Deliver(consumer, shard, len(records), attempt, spans)) + b"".join(records))

    def refuse(self, consumer: int, code: str, *, retryable: bool = False) -> None:
        self.say(Error(code, "for the test", "", retryable, consumer=consumer))


class Peer:
    def __init__(self, shards: int = 1) -> None:
        self.url = ""
        self.port = 0
        self.shards = shards
        self.hindrance = ""
        """The error code of ``open_topic``, if set."""
        self._arrived: asyncio.Queue[Conversation] = asyncio.Queue()
        self._open: dict[Conversation, asyncio.Task[None] | None] = {}

    async def conversation(self) -> Conversation:
        """The next connection that a client opens."""
        return await self._arrived.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation(reader, writer, self)
        self._open[conversation] = asyncio.current_task()
        self._arrived.put_nowait(conversation)
        try:
            await conversation.listen()
        except ConnectionError:
            pass
        finally:
            conversation.said.put_nowait(None)
            self._open.pop(conversation, None)
            writer.close()


@asynccontextmanager
async def serving(shards: int = 1, port: int = 0) -> AsyncIterator[Peer]:
    """A scripted node on a free port."""
    peer = Peer(shards)
    server = await asyncio.start_server(peer._serve, "127.0.0.1", port)
    peer.port = server.sockets[0].getsockname()[1]
    peer.url = f"headpond://127.0.0.1:{peer.port}"
    try:
        yield peer
    finally:
        server.close()
        tasks = [task for task in peer._open.values() if task is not None]
        for conversation in list(peer._open):
            conversation.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@asynccontextmanager
async def listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]],
) -> AsyncIterator[str]:
    """A server that runs ``handle`` for each connection, then waits for its end; returns its URL."""
    tasks: set[asyncio.Task[Any] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            await handle(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"headpond://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        running = [task for task in tasks if task is not None and not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)


def record(values: list[bytes], first_entry: int, *, segment: int = 0, block: bytes = b"b" * 16) -> bytes:
    """The frame of a stored segment, as a node delivers it."""
    body = encode_plain(rows_to_batch(list(values), None, None, None, [1_000_000] * len(values)))
    header = RecordHeader(first_entry, len(values), block, 2_000_000, 0)
    return encode(FrameType.SEGMENT, header.encode() + body, segment=segment)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until ``condition()`` holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0.001)
