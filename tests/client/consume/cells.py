"""Helpers for tests of all kinds and modes of subscriptions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import ConnectionLost
from tests.client.reading import receive

KINDS = ("unique", "shared", "failover", "key_shared")
MODES = ("resilient", "non_resilient")
CELLS = list(itertools.product(KINDS, MODES))
KEYS = 5
QUICK = headpond.Policy(lease=0.4, backoff=0.02)

each_cell = pytest.mark.parametrize(("kind", "mode"), CELLS)


async def fill(client: headpond.Client, topic: str, count: int, *, rows: int = 16, first: int = 0) -> None:
    """Messages 0, 1, 2, … with a few keys in turn."""
    async with client.producer(topic, batch_rows=rows) as producer:
        for number in range(first, first + count):
            producer.post(b"%d" % number, key=b"k%d" % (number % KEYS))


@asynccontextmanager
async def connected(url: str, count: int) -> AsyncIterator[list[headpond.Client]]:
    """A separate client for each consumer, so that each can die alone."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(headpond.connect(url, backoff=Backoff(0.01, 0.1)))
            for _ in range(count)
        ]


def die(client: headpond.Client) -> None:
    """Cuts the client off, as the death of its process would."""
    client.link._closed = True
    cut(client)


def cut(client: headpond.Client) -> None:
    """The connection is lost, and a new one is made."""
    connection = client.link._connection
    assert connection is not None
    connection.abort(ConnectionLost("cut by the test"))


async def take(consumer: headpond.Consumer, count: int, timeout: float = 20.0) -> list[headpond.Message]:
    """Receives this many messages and acknowledges each."""
    found: list[headpond.Message] = []
    async with asyncio.timeout(timeout):
        while len(found) < count:
            message = await receive(consumer)
            found.append(message)
            await consumer.ack(message)
    return found


async def rest(consumer: headpond.Consumer, idle_s: float = 0.4) -> list[headpond.Message]:
    """Receives and acknowledges messages until none comes for a while."""
    found = []
    while (message := await consumer.receive(idle_s)) is not None:
        found.append(message)
        await consumer.ack(message)
    return found


def numbers(messages: list[headpond.Message]) -> list[int]:
    return [int(message.value) for message in messages]


def in_key_order(found: list[int]) -> bool:
    return all(
        [number for number in found if number % KEYS == key] == sorted(n for n in found if n % KEYS == key)
        for key in range(KEYS)
    )
