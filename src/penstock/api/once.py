"""Messages sent under a key of the caller's: sent again, they are stored once.

The key makes a block (docs/protocol.md): its 16 bytes are a uuid5 of the topic's uuid, the producer's name
and the key, and the messages of the request are segment 0 of it, a segment a shard. So the node's own
admission answers: the same content again is a duplicate, with the entries of the first time; another content
under the same key is a conflict. It does so after a restart too, until the block is forgotten, a day after it
was closed, which it is with the answer. Nothing is remembered here.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import NamedTuple

import pyarrow as pa

from penstock.client.link import Link
from penstock.client.tables import check_state_table
from penstock.model.errors import BadRequest, Conflict, PenstockError, TimedOut, from_code
from penstock.model.identity import Identity
from penstock.model.receipt import Durability, Outcome, Receipt
from penstock.transport.encoder import Encoder, PlainEncoder, TypedEncoder
from penstock.transport.sharder import Sharder
from penstock.wire.columns import table_to_batches
from penstock.wire.control import Ack, AckItem, BlockEnd, TopicInfo
from penstock.wire.frame import SEGMENT_BYTES_MAX, FrameType, encode
from penstock.wire.schema import decode_schema
from penstock.wire.title import Title, encode_title
from penstock.wire.typed_rows import messages_of

KEYS = uuid.UUID("6f6f62a0-36c5-4f0b-9d0e-5b6f1b8f7c11")
"""The namespace of keys."""
KEY_LENGTH_MAX = 255
ANSWER_S_MAX = 30.0


class Piece(NamedTuple):
    shard: int
    rows: int
    places: list[int]
    """Where each row stood in the request."""
    frame: bytes


def check_key(key: str) -> str:
    if not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        raise BadRequest(f"an Idempotency-Key is 1 to {KEY_LENGTH_MAX} printable characters")
    return key


def sent_at_of(key: str) -> int:
    """When a message under this key was sent, in microseconds: the same with every repeat.

    A key that is a uuid of version 7 tells its time; otherwise it is not known, and told as 1970.
    """
    try:
        told = uuid.UUID(key)
    except ValueError:
        return 0
    return (told.int >> 80) * 1000 if told.version == 7 else 0


def block_of(topic_uuid: bytes, producer: str, key: str) -> bytes:
    return uuid.uuid5(KEYS, f"{topic_uuid.hex()}/{producer}/{key}").bytes


class Once:
    """One request's messages on their way; heard by the link as a producer is."""

    def __init__(self, link: Link, info: TopicInfo, producer: str, key: str) -> None:
        self._link = link
        self._info = info
        self._schema = None if info.schema is None else decode_schema(info.schema)
        self._block = block_of(info.uuid, producer, key)
        self._power = info.shards.bit_length() - 1
        self._title = encode(
            FrameType.TITLE,
            encode_title(self._block, self._power, Title(info.topic, info.uuid, producer, 0, info.schema)),
        )
        self._pieces: list[Piece] = []
        self._answers: dict[int, tuple[AckItem, str]] = {}
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, table: pa.Table | pa.RecordBatch, sent_at_us: int) -> list[Receipt]:
        """Returns a receipt a row once the node has answered for all of them."""
        self._cut(table, sent_at_us)
        self._link.add_producer(self)
        self._link.add_block(self._block, self)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._link.wait_up()
                self.on_up()
                await self._done
        except TimeoutError:
            raise TimedOut(f"the messages were not answered for within {ANSWER_S_MAX:g} s") from None
        finally:
            self._link.remove_producer(self)
        if all(item.outcome != "rejected" for item, _ in self._answers.values()):
            self._link.send(BlockEnd(self._block, {piece.shard: 1 for piece in self._pieces}))
        return self._receipts()

    def _cut(self, table: pa.Table | pa.RecordBatch, sent_at_us: int) -> None:
        """A segment a shard. Rows without a key go to the shard that the block stands for."""
        if self._schema is None:
            check_state_table(table, self._info.state)
            batches = table_to_batches(table, sent_at_us, SEGMENT_BYTES_MAX)
        else:
            batches = messages_of(table, self._schema, sent_at_us)
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        sharder = Sharder(self._power, turn=int.from_bytes(self._block[:4], "big"))
        for shard, rows, places in sharder.split(whole):
            encoder: Encoder = (
                PlainEncoder(shard) if self._schema is None else TypedEncoder(self._schema, shard)
            )
            frame, _ = encoder.encode(rows)
            stood = list(range(rows.num_rows)) if places is None else places.to_pylist()
            self._pieces.append(Piece(shard, rows.num_rows, stood, frame))

    def _receipts(self) -> list[Receipt]:
        found: dict[int, Receipt] = {}
        for piece in self._pieces:
            item, durability = self._answers[piece.shard]
            error = _error(item) if item.outcome == "rejected" else None
            for row, place in enumerate(piece.places):
                found[place] = Receipt(
                    Outcome(item.outcome),
                    self._link.destination,
                    self._info.topic,
                    Identity(self._block, piece.shard, 0, row),
                    None if item.first_entry is None else item.first_entry + row,
                    None if error is not None else Durability(durability),
                    error,
                )
        return [found[place] for place in sorted(found)]

    # --- what the link tells ------------------------------------------------------------------------

    def on_up(self) -> None:
        """Sends, and sends again over a new connection: what the node has is a duplicate."""
        if self._link.up and not self._done.done():
            left = [piece.frame for piece in self._pieces if piece.shard not in self._answers]
            self._link.send_segments(self._title, left)

    def on_down(self) -> None:
        if self._link.refusal is not None:
            self.on_error(self._link.refusal)

    def on_writable(self) -> None:
        """One request's frames are few."""

    def on_error(self, error: PenstockError) -> None:
        if not self._done.done():
            self._done.set_exception(error.again())

    def on_ack(self, ack: Ack) -> None:
        for item in ack.items:
            if item.segment == 0:
                self._answers[ack.shard] = (item, ack.durability)
        if len(self._answers) == len(self._pieces) and not self._done.done():
            self._done.set_result(None)


def _error(item: AckItem) -> PenstockError:
    if item.code == Conflict.code:
        return Conflict(
            "this Idempotency-Key was used before, for other messages",
            hint="A repeat has the same messages, byte for byte; take a new key for others.",
        )
    return from_code(item.code, item.message)
