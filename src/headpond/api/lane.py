"""A caller's way into a topic, without a key: requests that come together share a segment.

While one flight is under way the requests behind it gather, and go together in the next. A lane has one
block, so that a day of requests is one run of a producer, not one each. A refusal ends the
block, and so does a fault: what comes next begins another, and whoever was refused is told at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from time import monotonic
from typing import NamedTuple

import pyarrow as pa

from headpond.api.flight import Block, Flight
from headpond.client.link import Link
from headpond.model.errors import HeadpondError
from headpond.model.identity import BLOCK_BYTES
from headpond.model.receipt import Receipt
from headpond.wire.control import TopicInfo

logger = logging.getLogger("headpond.http")

FLIGHT_BYTES_MAX = 4 * 1024 * 1024
"""Requests share a segment up to this size; a larger one goes alone."""


class Waiting(NamedTuple):
    rows: pa.RecordBatch
    answer: asyncio.Future[list[Receipt]]


class Lane:
    def __init__(self, link: Link, info: TopicInfo) -> None:
        self.used_at = monotonic()
        self.info = info
        self._link = link
        self._block = self._new_block()
        self._waiting: deque[Waiting] = deque()
        self._flying: asyncio.Task[None] | None = None

    async def send(self, table: pa.Table | pa.RecordBatch) -> list[Receipt]:
        """A receipt a row."""
        self.used_at = monotonic()
        rows = self._block.rows(table, time.time_ns() // 1000)
        answer: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(rows, answer))
        if self.idle:
            self._flying = asyncio.ensure_future(self._fly())
        return await asyncio.shield(answer)

    @property
    def idle(self) -> bool:
        return self._flying is None or self._flying.done()

    def close(self) -> None:
        """Ends its block. Nothing is under way then: a lane is closed when it is idle."""
        self._block.end(self._link)

    def _new_block(self) -> Block:
        turn = secrets.randbelow(self.info.shards)
        return Block(self.info, "", secrets.token_bytes(BLOCK_BYTES), turn)

    async def _fly(self) -> None:
        while self._waiting:
            together = self._take()
            try:
                await self._send(together)
            except HeadpondError as error:
                self._fail(together, error)
            except Exception:
                logger.exception("sending to %s failed", self.info.topic)
                self._fail(together, HeadpondError("the node failed to do this; its log says why"))

    def _fail(self, together: list[Waiting], error: HeadpondError) -> None:
        self._block = self._new_block()
        for each in (*together, *self._waiting):
            if not each.answer.done():
                each.answer.set_exception(error.again())
                each.answer.exception()  # whoever asked may have gone
        self._waiting.clear()

    def _take(self) -> list[Waiting]:
        together = [self._waiting.popleft()]
        size = together[0].rows.nbytes
        schema = together[0].rows.schema
        while self._waiting and self._waiting[0].rows.schema == schema:
            size += self._waiting[0].rows.nbytes
            if size > FLIGHT_BYTES_MAX:
                break
            together.append(self._waiting.popleft())
        return together

    async def _send(self, together: list[Waiting]) -> None:
        batches = [each.rows for each in together]
        rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        receipts = await Flight(self._link, self._block, self._block.cut(rows)).send()
        if not all(receipt.stored for receipt in receipts):
            passing = {each.shard for each in receipts if each.error is not None and each.error.retryable}
            self._block.end(self._link, refused=passing)
            self._block = self._new_block()
        at = 0
        for each in together:
            if not each.answer.done():
                each.answer.set_result(receipts[at : at + each.rows.num_rows])
            at += each.rows.num_rows
