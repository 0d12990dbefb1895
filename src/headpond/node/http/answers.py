"""Memory for answers: they take it until their clients have read them, and a client may never do so.

An answer is sent in pieces, each when the connection has taken most of the one before. So a connection holds
two pieces, and its request holds the rest, which counts: a route takes room before it makes a large answer, and
gives it back when all of it was sent or the connection was cut (``http_limits.unread_s``). If there is no room
for a while, the request is refused (503), and a stream of events ends with that error. Answers of one piece do
not count: there are no more of them than connections.

A request that has changed something is not refused for its answer: it took the room before, or exceeds it.
"""

from __future__ import annotations

import asyncio

from litestar.types import HTTPScope, Message, Receive, Send

from headpond.model.errors import LimitReached
from headpond.node.http.status import refusing

PIECE_BYTES = 64 * 1024
ANSWER = "answer"
"""The key of the answer in the state of a request's scope."""


class AnswerRoom:
    """The room that the answers of all requests share, first come first served."""

    def __init__(self, bytes_max: int, wait_s: float) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._wait_s = wait_s
        self._turn = asyncio.Lock()
        """Held by the answer that waits for room; the others wait for their turn, in the order they came."""
        self._given = asyncio.Event()

    async def take(self, size: int) -> None:
        """Waits until there is room; an answer that is larger than all of it waits to be the only one."""
        try:
            async with asyncio.timeout(self._wait_s), self._turn:
                while self.bytes and self.bytes + size > self._bytes_max:
                    self._given.clear()
                    await self._given.wait()
                self.bytes += size
        except TimeoutError:
            raise LimitReached(
                f"clients have not read {self.bytes:,} bytes of answers (http_limits.answers_bytes)",
                hint="Read answers to their end, or ask for less at a time (count, bytes_max).",
            ) from None

    def give(self, size: int) -> None:
        self.bytes -= size
        self._given.set()


class Answer:
    """The answer to one request, and the room that it has."""

    def __init__(self, room: AnswerRoom, scope: HTTPScope, receive: Receive, send: Send) -> None:
        self._room = room
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        """The status and the headers, until the body may follow."""
        self.started = False
        """Whether the application has begun to answer."""
        self.bytes = 0
        """Its room."""

    async def expect(self, size: int) -> None:
        """Takes room for an answer before it is made; ``LimitReached`` if there is none for a while."""
        if size > max(self.bytes, PIECE_BYTES):
            await self._room.take(size - self.bytes)
            self.bytes = size

    def resize(self, size: int) -> None:
        """The answer turned out to have this size."""
        self._room.give(self.bytes - size)
        self.bytes = size

    def close(self) -> None:
        if self.bytes:
            self.resize(0)

    async def send(self, message: Message) -> None:
        """Sends what the application sends, in pieces."""
        if message["type"] != "http.response.body":
            self.started = True
            self._start = message
            return
        body = message["body"]
        if self._start is not None:
            large = len(body) > PIECE_BYTES or self.bytes
            if large and not message["more_body"] and not await self._admit(len(body)):
                return
            await self._send(self._start)
            self._start = None
        for at in range(0, max(len(body), 1), PIECE_BYTES):
            more = message["more_body"] or at + PIECE_BYTES < len(body)
            piece = body[at : at + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _admit(self, size: int) -> bool:
        """Whether there is room for a complete answer; if not, the error is sent instead."""
        try:
            await self.expect(size)
        except LimitReached as error:
            if self._scope["method"] in ("GET", "HEAD"):
                self._start = None
                await refusing(error)(self._scope, self._receive, self._send)
                return False
        self.resize(size if size > PIECE_BYTES else 0)
        return True
