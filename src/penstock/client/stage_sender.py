"""One stage on its way to the node, over lost connections and refusals that pass.

Chunks are numbered and kept until the node has them on its disk, which is asked for now and then so that little
is kept. After a loss the stage is opened again; the node says which chunk it wants next, and sending goes on
there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from penstock.client.link import Link
from penstock.model.errors import PenstockError
from penstock.wire.control import FinishStage, OpenStage, StageOpened, read_result
from penstock.wire.staging import chunk_parts

WINDOW_BYTES = 16 * 1024 * 1024
"""What is sent and not confirmed, before a confirmation is waited for."""


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
        await self._write(parts)
        if self._kept_bytes >= WINDOW_BYTES:
            await self._confirm(last=False)

    async def finish(self) -> None:
        await self._confirm(last=True)

    async def _write(self, parts: list[bytes]) -> None:
        """Writes when there is room; on another connection than the stage's, confirming sees to it."""
        while self._link.up and not self._link.writable:
            self._flowing.clear()
            await self._flowing.wait()
        if self._link.reconnects == self._reconnects:
            self._link.send_frames(parts)

    async def _confirm(self, *, last: bool) -> None:
        """Returns when the node has all chunks on its disk; what can pass is tried again for a while."""
        deadline = time.monotonic() + self._timeout_s
        ask = FinishStage(self.stage, self._chunks, last)
        attempt = 0
        again = self._link.reconnects != self._reconnects
        while True:
            try:
                if again:
                    await self._send_again()
                left_s = max(deadline - time.monotonic(), 0.001)
                await self._link.request(ask, timeout_s=left_s)
            except PenstockError as error:
                if not error.retryable or time.monotonic() >= deadline:
                    raise
                again = True
            else:
                self._kept.clear()
                self._kept_bytes = 0
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
