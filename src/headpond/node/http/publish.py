"""Messages of a request on their way to the node: once under a key, through a lane, or under a producer's name.

An ``Idempotency-Key`` makes a block (docs/protocol.md): its 16 bytes are a uuid5 of the topic's uuid, the
sender and the key, and the messages of the request are segment 0 of it, one segment per shard. So the node's
own admission answers: the same content again is a duplicate, with the entries of the first time; another
content under the same key is a conflict. It does so after a restart too, until it forgets the block, a day
after it was closed, which happens with the answer. HTTP keeps no record of keys: a message that does not say
when it was sent is sent without a time, the same with every repeat, and readers see when the node stored it.

The sender is the producer's name, or else the token's: two programs that both count their keys from 1 are
different senders, and a new token of the same name continues with the old one's keys. Shards answer
separately: another content is found where it comes to a shard that has the key.
"""

from __future__ import annotations

import time
import uuid
from functools import partial

import pyarrow as pa

from headpond.client.produce.tables import check_state_table
from headpond.model.bounds import NAME_LENGTH_MAX
from headpond.model.errors import BadRequest, ProducerNotFound, TopicMismatch, TopicNotFound
from headpond.model.receipt import Receipt
from headpond.node.http.bodies import Rows, aside
from headpond.node.http.callers import Caller
from headpond.node.http.lane import FLIGHT_BYTES_MAX, Block
from headpond.wire.control.producing import ShowProducer
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.plain.columns import SENT_AT_US_UNKNOWN, table_to_batches
from headpond.wire.plain.segment import encode_plain

KEYS = uuid.UUID("6f6f62a0-36c5-4f0b-9d0e-5b6f1b8f7c11")
"""The namespace of keys."""
KEY_LENGTH_MAX = 255


def check_key(key: str) -> str:
    if not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        raise BadRequest(f"an Idempotency-Key is 1 to {KEY_LENGTH_MAX} printable characters")
    return key


def block_of(topic_uuid: bytes, producer: str, owner: str, key: str) -> bytes:
    """Names hold no zero bytes, so the parts cannot run into each other."""
    return uuid.uuid5(KEYS, f"{topic_uuid.hex()}\0{producer}\0{owner}\0{key}").bytes


async def publish(
    caller: Caller, topic: str, messages: Rows | pa.Table, producer: str, key: str | None
) -> list[Receipt]:
    """A receipt per message. A topic is created for them only if they could be stored in it."""
    if len(producer) > NAME_LENGTH_MAX:
        raise BadRequest(f"a producer's name is at most {NAME_LENGTH_MAX} characters long")
    if key is not None:
        return await _publish_once(caller, topic, messages, producer, check_key(key))
    send = _publish_named if producer else _publish
    receipts = await send(caller, topic, messages, producer)
    if receipts[0].error is not None and all(
        isinstance(each.error, TopicMismatch | TopicNotFound) for each in receipts
    ):
        await caller.forget_topic(topic, producer)  # the topic was deleted: nothing was stored
        receipts = await send(caller, topic, messages, producer)
    return receipts


async def _publish(caller: Caller, topic: str, messages: Rows | pa.Table, producer: str) -> list[Receipt]:
    lane = caller.lanes.get(topic) or await caller.open_lane(
        topic, partial(_check_plain, messages, in_one=True)
    )
    return await lane.send(await _rows(lane.block, messages, time.time_ns() // 1000))


async def _publish_once(
    caller: Caller, topic: str, messages: Rows | pa.Table, producer: str, key: str
) -> list[Receipt]:
    """Rows without a key go to the shard that the block stands for."""
    info = await caller.topic(topic, partial(_check_plain, messages, in_one=True))
    if producer:
        await _check_no_lease(caller, topic, producer)
    owner = "" if producer else await caller.name()
    name = block_of(info.uuid, producer, owner, key)
    block = Block(caller.link, info, producer, name, turn=int.from_bytes(name[:4], "big"))
    receipts = await block.send(await _rows(block, messages, SENT_AT_US_UNKNOWN))
    if all(receipt.stored for receipt in receipts):
        block.end()
    return receipts


async def _publish_named(caller: Caller, topic: str, messages: Rows | pa.Table, producer: str) -> list[Receipt]:
    """Through a producer of that name, which may have to hold a lease."""
    sender = await caller.producer(topic, producer, partial(_check_plain, messages, in_one=False))
    schema = None if sender.batcher.typed is None else sender.batcher.typed.schema
    if isinstance(messages, Rows):
        messages = await aside(messages.size, messages.to_batch, schema, time.time_ns() // 1000)
    return (await sender.send_batch(messages)).receipts


async def _rows(block: Block, messages: Rows | pa.Table, sent_at_us: int) -> pa.RecordBatch:
    """The messages as rows of the block's topic."""
    if not isinstance(messages, Rows):
        return block.rows(messages, sent_at_us)
    batch = await aside(messages.size, messages.to_batch, block.schema, sent_at_us)
    if block.schema is None and not messages.timed and messages.size < FLIGHT_BYTES_MAX:
        check_state_table(batch, block.state)  # its columns are those of a plain topic already
        return batch
    return block.rows(batch, sent_at_us)


async def _check_plain(messages: Rows | pa.Table, *, in_one: bool) -> None:
    """Raises what a plain topic created now would refuse; ``in_one``: the rows of a shard are one segment."""

    def check() -> None:
        table = messages.to_batch(None, 0) if isinstance(messages, Rows) else messages
        check_state_table(table, state=False)
        batches = table_to_batches(table, 0, SEGMENT_BYTES_MAX)
        if (
            in_one and len(batches) > 1 and "key" not in table.schema.names
        ):  # with keys it depends on the shards
            encode_plain(pa.concat_batches(batches))

    await aside(messages.size if isinstance(messages, Rows) else messages.nbytes, check)


async def _check_no_lease(caller: Caller, topic: str, producer: str) -> None:
    """A message with a key is sent without the producer's lease, so it would bypass the holder."""
    try:
        access = (await caller.ask(ShowProducer(topic, producer))).access
    except ProducerNotFound:
        return
    if access == "single":
        raise BadRequest(
            f"producer {producer!r} has single access, and an Idempotency-Key is sent without its lease",
            hint="Send without a key under this name, or with a key under another.",
        )
