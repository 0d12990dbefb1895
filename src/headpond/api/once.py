"""Messages sent under a key of the caller's: sent again, they are stored once.

The key makes a block (docs/protocol.md): its 16 bytes are a uuid5 of the topic's uuid, who sends and the
key, and the messages of the request are segment 0 of it, a segment a shard. So the node's own admission
answers: the same content again is a duplicate, with the entries of the first time; another content under the
same key is a conflict. It does so after a restart too, until the block is forgotten, a day after it was closed,
which it is with the answer. Nothing is remembered here: a message that does not say when it was sent is sent
without a time, the same with every repeat, and readers see when the node stored it.

Who sends is the producer's name, or without one the token's: two programs that both count their keys from 1
are told apart, and a new token of the same name goes on with the old one's keys. Shards answer each for itself:
another content is found out where it comes to a shard that has the key.
"""

from __future__ import annotations

import uuid

import pyarrow as pa

from headpond.api.flight import Block, Flight
from headpond.client.link import Link
from headpond.model.errors import BadRequest
from headpond.model.receipt import Receipt
from headpond.wire.columns import SENT_AT_US_UNKNOWN
from headpond.wire.control import TopicInfo

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


async def send_once(
    link: Link,
    info: TopicInfo,
    producer: str,
    owner: str,
    key: str,
    table: pa.Table | pa.RecordBatch,
) -> list[Receipt]:
    """A receipt a row. Rows without a key go to the shard that the block stands for."""
    name = block_of(info.uuid, producer, owner, key)
    block = Block(info, producer, name, turn=int.from_bytes(name[:4], "big"))
    receipts = await Flight(link, block, block.cut(block.rows(table, SENT_AT_US_UNKNOWN))).send()
    if all(receipt.stored for receipt in receipts):
        block.end(link)
    return receipts
