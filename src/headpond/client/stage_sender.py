"""One stage on its way to the node, over lost connections and refusals that pass.

Chunks are numbered and kept until the node has them on its disk, which is asked for now and then so that little
is kept; sending goes on while the answer is on its way. After a loss the stage is opened again; the node says
which chunk it wants next, and sending goes on there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from headpond.client.link import Link
from headpond.model.errors import HeadpondError
from headpond.wire.control import FinishStage, OpenStage, StageOpened, read_result
from headpond.wire.staging import chunk_parts

WINDOW_BYTES = 16 * 1024 * 1024
"""What is sent and not confirmed, before a confirmation is waited for."""
ASK_BYTES = WINDOW_BYTES // 4
"""After so much the node is asked, unless it has not answered yet."""


class StageSender:
    def __init__(
        self,
        link: Link,
        stage: bytes,
        writer: str,
        topic: str,
        *,
        create: bool,
        timeout_s: float,
        flowing: asyncio.Event,
    ) -> None:
        """``flowing`` is set whenever the link may have become writable."""
        self.stage = stage
        self._link = link
        self._ask = OpenStage(stage, writer, topic, create)
        self._timeout_s = timeout_s
        self._flowing = flowing
        self._chunks = 0
        self._kept: deque[list[bytes]] = deque()
        """The frames of the last chunks, in pieces."""
        self._kept_bytes = 0
        self._reconnects = link.reconnects
        self._asked: asyncio.Task[Any] | None = None
        self._asked_chunks = 0
        self._unasked_bytes = 0

    async def open(self) -> StageOpened:
        self._reconnects = self._link.reconnects
        answer = await self._link.request(self._ask, retry=True, timeout_s=self._timeout_s)
        return read_result(answer, StageOpened)

    async def send(self, shard: int, segment: bytes) -> None:
        """The next chunk. Returns when it is written to the connection, or kept for the next one."""
        parts = chunk_parts(self.stage, shard, self._chunks, segment)
        self._chunks += 1
        self._kept.append(parts)
        self._kept_bytes += len(segment)
        self._unasked_bytes += len(segment)
        await self._write(parts)
        if self._asked is not None:
            if self._asked.done() or self._kept_bytes >= WINDOW_BYTES:
                await self._hear()
        elif self._unasked_bytes >= ASK_BYTES:
            if self._link.reconnects == self._reconnects:
                self._ask_for(self._chunks)
            else:
                await self._confirm(last=False)

    async def finish(self) -> None:
        if self._asked is not None:
            await self._hear()
        await self._confirm(last=True)

    def _ask_for(self, chunks: int) -> None:
        """Asks for a confirmation without waiting for it."""
        ask = FinishStage(self.stage, chunks, last=False)
        self._asked = asyncio.ensure_future(self._link.request(ask, timeout_s=self._timeout_s))
        self._asked.add_done_callback(_heed)
        self._asked_chunks, self._unasked_bytes = chunks, 0

    async def _hear(self) -> None:
        """Waits for the answer; one that can pass is asked for again, which also mends the connection."""
        assert self._asked is not None
        asked, self._asked = self._asked, None
        try:
            await asked
        except HeadpondError as error:
            if not error.retryable and self._link.reconnects == self._reconnects:
                raise
            await self._confirm(last=False, again=True)
        else:
            for _ in range(self._asked_chunks - (self._chunks - len(self._kept))):
                self._kept_bytes -= len(self._kept.popleft()[1])

    async def _write(self, parts: list[bytes]) -> None:
        """Writes when there is room; on another connection than the stage's, confirming sees to it."""
        while self._link.up and not self._link.writable:
            self._flowing.clear()
            await self._flowing.wait()
        if self._link.reconnects == self._reconnects:
            self._link.send_frames(parts)

    async def _confirm(self, *, last: bool, again: bool = False) -> None:
        """Returns when the node has all chunks on its disk; what can pass is tried again for a while.

        ``again``: the connection is not the stage's any more, or about to be another.
        """
        deadline = time.monotonic() + self._timeout_s
        ask = FinishStage(self.stage, self._chunks, last)
        attempt = 0
        again = again or self._link.reconnects != self._reconnects
        while True:
            try:
                if again:
                    await self._send_again()
                left_s = max(deadline - time.monotonic(), 0.001)
                await self._link.request(ask, timeout_s=left_s)
            except HeadpondError as error:
                # On a connection that is not the stage's the node does not know it: it is to be opened there.
                moved = self._link.reconnects != self._reconnects
                if not (error.retryable or moved) or time.monotonic() >= deadline:
                    raise
                again = True
            else:
                self._kept.clear()
                self._kept_bytes = self._unasked_bytes = 0
                return
            await asyncio.sleep(self._link.backoff.delay_s(attempt))
            attempt += 1

    async def _send_again(self) -> None:
        """Opens the stage once more and goes on with the chunk that the node wants next."""
        opened = await self.open()
        first_kept = self._chunks - len(self._kept)
        for number, parts in enumerate(list(self._kept), first_kept):
            if number >= opened.chunks:
                await self._write(parts)


def _heed(asked: asyncio.Task[Any]) -> None:
    """A stage may be given up while an answer is on its way; what that says is then nobody's concern."""
    if not asked.cancelled():
        asked.exception()
