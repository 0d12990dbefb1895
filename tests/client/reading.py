"""Reads messages."""

from __future__ import annotations

import random
from typing import TypeVar

import headpond

Item = TypeVar("Item")


async def receive(consumer: headpond.Consumer[Item], timeout: float = 20.0) -> headpond.Message[Item]:
    """The next message, which has to come."""
    message = await consumer.receive(timeout)
    assert message is not None, "no message came"
    return message


async def read_all(client: headpond.Client, topic: str, count: int) -> list[headpond.Message]:
    """The first ``count`` messages of a topic, read by a new subscription."""
    async with client.consumer(topic, f"check-{random.randrange(10**9)}") as consumer:
        messages: list[headpond.Message] = []
        while len(messages) < count:
            message = await consumer.receive(20)
            assert message is not None, f"only {len(messages)} of {count} came"
            messages.append(message)
        return messages


async def values_at(url: str, topic: str, token: str | None = None) -> list[bytes]:
    """All values of a topic at a node, shard by shard."""
    async with headpond.connect(url, token) as client:
        info = await client.admin.show_topic(topic)
        count = sum(shard.entry_next for shard in info.shard_list)
        messages = await read_all(client, topic, count)
        return [message.value for message in sorted(messages, key=lambda each: (each.shard, each.entry))]
