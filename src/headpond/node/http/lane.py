"""Segments of a block, and lanes: requests of one caller to one topic share segments.

While segments of a lane are on their way, requests gather and go together in the next ones. A lane has one
block, so that a day of requests is one run of a producer. Any refusal ends the block, and so does a fault: the
next request begins another. Nothing is sent again: every request hears of a refusal at once, and decides.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Collection
from time import monotonic
from typing import NamedTuple

import pyarrow as pa

from headpond.client.produce.tables import check_state_table
from headpond.model.errors import Conflict, HeadpondError, TimedOut, from_code
from headpond.model.identity import BLOCK_BYTES, Identity
from headpond.model.receipt import Durability, Outcome, Receipt
from headpond.node.http.local_link import LocalLink
from headpond.producer.encoder import Sharder
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.producing import AckItem, BlockEnd
from headpond.wire.frame import SEGMENT_BYTES_MAX, Frame, FrameType, frame_of
from headpond.wire.plain.columns import table_to_batches
from headpond.wire.plain.segment import encode_plain
from headpond.wire.title import Title, encode_title
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.rows import messages_of, row_schema, to_rows
from headpond.wire.typed.schema import decode_schema

logger = logging.getLogger("headpond.http")

ANSWER_S_MAX = 30.0
FLIGHT_BYTES_MAX = 4 * 1024 * 1024
"""Requests share a segment up to this size; a larger one goes alone."""


class Block:
    """A block under way: numbers and encodes its segments."""

    def __init__(self, link: LocalLink, info: TopicInfo, producer: str, block: bytes, turn: int) -> None:
        self._link = link
        self._topic = info.topic
        self.state = info.state
        self.block = block
        self.schema = None if info.schema is None else decode_schema(info.schema)
        power = info.shards.bit_length() - 1
        title = Title(info.topic, info.uuid, producer, 0, info.schema)
        self._title = frame_of(FrameType.TITLE, encode_title(block, power, title))
        self._sharder = Sharder(power, turn=turn)
        self._segments_next: dict[int, int] = {}
        self._encoders: dict[int, RowEncoder] = {}

    def rows(self, table: pa.Table | pa.RecordBatch, sent_at_us: int) -> pa.RecordBatch:
        """A caller's table as rows of the topic; an error says what is wrong with it."""
        if self.schema is None:
            check_state_table(table, self.state)
            batches = table_to_batches(table, sent_at_us, SEGMENT_BYTES_MAX)
        else:
            batches = messages_of(table, self.schema, sent_at_us, state=bool(self.state))
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    async def send(self, rows: pa.RecordBatch) -> list[Receipt]:
        """Sends rows as one segment per shard; returns a receipt per row. Rows without a key stay together."""
        parts = self._sharder.split(rows) if self._sharder.mask else [(0, rows, None)]
        segments = []
        for shard, part, _ in parts:
            segments.append(self._encode(shard, part))
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answers = await self._link.publish(self._title, self.block, segments)
        except TimeoutError:
            raise TimedOut(
                f"the node did not answer for the messages within {ANSWER_S_MAX:g} s",
                hint="They may have been stored all the same; with an Idempotency-Key a repeat is harmless.",
            ) from None
        receipts: dict[int, Receipt] = {}
        for segment, (_, part, places) in zip(segments, parts, strict=True):
            numbers = range(part.num_rows) if places is None else places.to_pylist()
            item, durability = answers[segment.shard, segment.segment]
            for row, place in enumerate(numbers):
                receipts[place] = self._receipt(segment, row, item, durability)
        return list(receipts.values()) if len(parts) == 1 else [receipts[place] for place in sorted(receipts)]

    def _encode(self, shard: int, rows: pa.RecordBatch) -> Frame:
        number = self._segments_next.get(shard, 0)
        if self.schema is None:
            body = encode_plain(rows)
        else:
            encoder = self._encoders.get(shard)
            if encoder is None:
                encoder = self._encoders[shard] = RowEncoder(row_schema(self.schema), shard)
            body = encoder.encode(to_rows(rows, self.schema))[0].body
        self._segments_next[shard] = number + 1
        return frame_of(FrameType.SEGMENT, body, shard=shard, segment=number)

    def _receipt(self, segment: Frame, row: int, item: AckItem, durability: str) -> Receipt:
        rejected = item.outcome == Outcome.REJECTED
        return Receipt(
            Outcome(item.outcome),
            "",
            self._topic,
            Identity(self.block, segment.shard, segment.segment, row),
            None if item.first_entry is None else item.first_entry + row,
            None if rejected else Durability(durability),
            _error(item) if rejected else None,
        )

    def end(self, refused: Collection[int] = ()) -> None:
        """No segment follows: the node forgets the block in a day. ``refused`` shards lack their last one."""
        ends = {shard: number - (shard in refused) for shard, number in self._segments_next.items()}
        self._link.take(BlockEnd(self.block, ends))


def _error(item: AckItem) -> HeadpondError:
    if item.code == Conflict.code:
        return Conflict(
            "this Idempotency-Key was used before, for other messages",
            hint="A repeat has the same messages, byte for byte; take a new key for others.",
        )
    return from_code(item.code, item.message)


class WaitingRows(NamedTuple):
    rows: pa.RecordBatch
    answer: asyncio.Future[list[Receipt]]


class Lane:
    def __init__(self, link: LocalLink, info: TopicInfo) -> None:
        self.used_at = monotonic()
        self.info = info
        self._link = link
        self.block = self._new_block()
        self._waiting: deque[WaitingRows] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def send(self, rows: pa.RecordBatch) -> list[Receipt]:
        """Sends rows of the topic; returns a receipt per row."""
        self.used_at = monotonic()
        answer: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingRows(rows, answer))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())
        return await asyncio.shield(answer)

    @property
    def idle(self) -> bool:
        return self._sending is None

    def close(self) -> None:
        """Ends its block; only an idle lane is closed."""
        self.block.end()

    def _new_block(self) -> Block:
        turn = secrets.randbelow(self.info.shards)
        return Block(self._link, self.info, "", secrets.token_bytes(BLOCK_BYTES), turn)

    async def _send(self) -> None:
        """Sends what waits, until nothing does."""
        try:
            while self._waiting:
                await self._send_some(self._take())
        finally:
            self._sending = None

    async def _send_some(self, together: list[WaitingRows]) -> None:
        try:
            rows = together[0].rows
            if len(together) > 1:
                rows = pa.concat_batches([each.rows for each in together])
            self._answer(together, await self.block.send(rows))
        except HeadpondError as error:
            self._fail(together, error)
        except Exception:
            logger.exception("sending to %s failed", self.info.topic)
            self._fail(together, HeadpondError("the request failed; the node's log has the reason"))

    def _take(self) -> list[WaitingRows]:
        together = [self._waiting.popleft()]
        size = together[0].rows.nbytes
        schema = together[0].rows.schema
        while self._waiting and self._waiting[0].rows.schema == schema:
            size += self._waiting[0].rows.nbytes
            if size > FLIGHT_BYTES_MAX:
                break
            together.append(self._waiting.popleft())
        return together

    def _answer(self, together: list[WaitingRows], receipts: list[Receipt]) -> None:
        refused = [each for each in receipts if each.error is not None]
        if refused:
            passing = {each.shard for each in refused if each.error is not None and each.error.retryable}
            self.block.end(refused=passing)
            self.block = self._new_block()
        at = 0
        for each in together:
            if not each.answer.done():
                each.answer.set_result(receipts[at : at + each.rows.num_rows])
            at += each.rows.num_rows

    def _fail(self, together: list[WaitingRows], error: HeadpondError) -> None:
        self.block = self._new_block()
        for each in (*together, *self._waiting):
            if not each.answer.done():
                each.answer.set_exception(error.again())
                each.answer.exception()  # its request may have ended
        self._waiting.clear()
