"""Messages of a request brought to the node, with or without a key of the caller's."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from penstock.api.bodies import Rows
from penstock.api.callers import Caller
from penstock.api.once import Once, check_key, sent_at_of
from penstock.model.errors import TopicMismatch, TopicNotFound
from penstock.model.receipt import Outcome, Receipt
from penstock.wire.control import OpenTopic, TopicInfo, read_result
from penstock.wire.schema import decode_schema


async def publish(
    caller: Caller, topic: str, messages: Rows | pa.Table, producer: str, key: str | None
) -> list[Receipt]:
    """A receipt a message."""
    if key is not None:
        return await _publish_once(caller, topic, messages, producer, check_key(key))
    receipts = await _publish(caller, topic, messages, producer)
    if receipts and all(isinstance(each.error, TopicMismatch | TopicNotFound) for each in receipts):
        await caller.drop_producer(topic, producer)  # the topic was deleted: nothing was stored
        receipts = await _publish(caller, topic, messages, producer)
    return receipts


async def _open(caller: Caller, topic: str) -> TopicInfo:
    ask = OpenTopic(topic, create=True)
    return read_result(await caller.client.link.request(ask, retry=True), TopicInfo)


async def _publish_once(
    caller: Caller, topic: str, messages: Rows | pa.Table, producer: str, key: str
) -> list[Receipt]:
    info = await _open(caller, topic)
    schema = None if info.schema is None else decode_schema(info.schema)
    sent_at_us = sent_at_of(key)
    table: Any = messages.to_batch(schema, sent_at_us) if isinstance(messages, Rows) else messages
    return await Once(caller.client.link, info, producer, key).send(table, sent_at_us)


async def _publish(caller: Caller, topic: str, messages: Rows | pa.Table, producer: str) -> list[Receipt]:
    """Through a producer that the caller's requests share, so that many small ones make one segment."""
    sender = await caller.producer(topic, producer)
    if isinstance(messages, Rows):
        schema = None if sender.batcher.typed is None else sender.batcher.typed.schema
        table: Any = messages.to_batch(schema, time.time_ns() // 1000)
    else:
        table = messages
    if isinstance(messages, Rows) and len(messages.values) == 1 and messages.sent_at[0] is None:
        value = table.column("value")[0].as_py()
        headers = messages.headers[0]
        promise = sender.post(value, key=messages.keys[0], id=messages.ids[0], headers=headers)
        try:
            return [await promise]
        except Exception as error:
            receipt: Receipt | None = getattr(error, "receipt", None)
            if receipt is None:
                raise
            return [receipt]
    return (await sender.send_batch(table)).receipts


def counts(receipts: list[Receipt]) -> dict[str, int]:
    words = {outcome.value: 0 for outcome in (Outcome.STORED, Outcome.DUPLICATE, Outcome.REJECTED)}
    for each in receipts:
        words[each.outcome.value] = words.get(each.outcome.value, 0) + 1
    return words
