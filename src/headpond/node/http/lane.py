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
from collections.abc import Collection, Sequence
from time import monotonic
from typing import NamedTuple

import pyarrow as pa

from headpond.client.link.link import Link
from headpond.client.produce.tables import check_state_table
from headpond.model.errors import Conflict, HeadpondError, TimedOut, from_code
from headpond.model.identity import BLOCK_BYTES, Identity
from headpond.model.receipt import Durability, Outcome, Receipt
from headpond.producer.encoder import Encoder, PlainEncoder, TypedEncoder
from headpond.producer.sharder import Sharder
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.producing import Ack, AckItem, BlockEnd
from headpond.wire.frame import SEGMENT_BYTES_MAX, FrameType, encode
from headpond.wire.plain.columns import table_to_batches
from headpond.wire.title import Title, encode_title
from headpond.wire.typed.rows import messages_of
from headpond.wire.typed.schema import decode_schema

# Segments of one block on their way to the node, until each is answered.
#
# A flight is not tried again after a refusal, whatever the reason: whoever asked is told, and decides. After
# a lost connection what is not answered is sent again, as a producer does: what the node has is a duplicate.

ANSWER_S_MAX = 30.0


class Piece(NamedTuple):
    shard: int
    segment: int
    places: list[int]
    """Where each row stood among those that were sent together."""
    frame: bytes


class Block:
    """A block that is sent to: its title, and an encoder a shard that numbers segments."""

    def __init__(self, info: TopicInfo, producer: str, block: bytes, turn: int) -> None:
        self.info = info
        self.block = block
        self.schema = None if info.schema is None else decode_schema(info.schema)
        power = info.shards.bit_length() - 1
        title = Title(info.topic, info.uuid, producer, 0, info.schema)
        self.title = encode(FrameType.TITLE, encode_title(block, power, title))
        self._sharder = Sharder(power, turn=turn)
        self._encoders: dict[int, Encoder] = {}

    def rows(self, table: pa.Table | pa.RecordBatch, sent_at_us: int) -> pa.RecordBatch:
        """A table as the topic's rows; what is wrong with it is told here."""
        if self.schema is None:
            check_state_table(table, self.info.state)
            batches = table_to_batches(table, sent_at_us, SEGMENT_BYTES_MAX)
        else:
            batches = messages_of(table, self.schema, sent_at_us, state=bool(self.info.state))
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def cut(self, rows: pa.RecordBatch) -> list[Piece]:
        """A segment a shard. Rows without a key stay together."""
        pieces = []
        for shard, part, places in self._sharder.split(rows):
            encoder = self._encoders.get(shard) or self._encoder(shard)
            frame, _ = encoder.encode(part)
            stood = list(range(part.num_rows)) if places is None else places.to_pylist()
            pieces.append(Piece(shard, encoder.last_segment, stood, frame))
        return pieces

    def _encoder(self, shard: int) -> Encoder:
        made: Encoder = PlainEncoder(shard) if self.schema is None else TypedEncoder(self.schema, shard)
        self._encoders[shard] = made
        return made

    def end(self, link: Link, refused: Collection[int] = ()) -> None:
        """Nothing follows: it is forgotten in a day. The last segment of ``refused`` shards does not count."""
        ends = {shard: each.last_segment + (shard not in refused) for shard, each in self._encoders.items()}
        link.send(BlockEnd(self.block, ends))


class Flight:
    """Heard by the link as a producer is."""

    def __init__(self, link: Link, block: Block, pieces: Sequence[Piece]) -> None:
        self._link = link
        self._block = block
        self._pieces = {(piece.shard, piece.segment): piece for piece in pieces}
        self._answers: dict[tuple[int, int], tuple[AckItem, str]] = {}
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self) -> list[Receipt]:
        """A receipt a row, once the node has answered for all of them."""
        self._link.add_producer(self)
        self._link.add_block(self._block.block, self)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._link.wait_up()
                self.on_up()
                await self._done
        except TimeoutError:
            raise TimedOut(
                f"the messages were not answered for within {ANSWER_S_MAX:g} s",
                hint="They may have been stored all the same; with an Idempotency-Key a repeat is harmless.",
            ) from None
        finally:
            self._link.remove_producer(self)
        return self._receipts()

    def _receipts(self) -> list[Receipt]:
        found: dict[int, Receipt] = {}
        for key, piece in self._pieces.items():
            item, durability = self._answers[key]
            error = _error(item) if item.outcome == "rejected" else None
            for row, place in enumerate(piece.places):
                found[place] = Receipt(
                    Outcome(item.outcome),
                    self._link.destination,
                    self._block.info.topic,
                    Identity(self._block.block, piece.shard, piece.segment, row),
                    None if item.first_entry is None else item.first_entry + row,
                    None if error is not None else Durability(durability),
                    error,
                )
        return [found[place] for place in sorted(found)]

    # --- what the link tells ------------------------------------------------------------------------

    def on_up(self) -> None:
        if self._link.up and not self._done.done():
            left = [piece.frame for key, piece in self._pieces.items() if key not in self._answers]
            self._link.send_segments(self._block.title, left)

    def on_down(self) -> None:
        if self._link.refusal is not None:
            self.on_error(self._link.refusal)

    def on_writable(self) -> None:
        """One flight's frames are few."""

    def on_error(self, error: HeadpondError) -> None:
        if not self._done.done():
            self._done.set_exception(error.again())

    def on_ack(self, ack: Ack) -> None:
        for item in ack.items:
            if (ack.shard, item.segment) in self._pieces:
                self._answers[ack.shard, item.segment] = (item, ack.durability)
        if len(self._answers) == len(self._pieces) and not self._done.done():
            self._done.set_result(None)


def _error(item: AckItem) -> HeadpondError:
    if item.code == Conflict.code:
        return Conflict(
            "this Idempotency-Key was used before, for other messages",
            hint="A repeat has the same messages, byte for byte; take a new key for others.",
        )
    return from_code(item.code, item.message)


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
