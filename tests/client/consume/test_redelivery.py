"""A refused message comes again after the backlog, and keeps its time over a restart of the node."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import headpond
from headpond.client.options import KindName
from tests.client.consume.cells import fill
from tests.client.reading import receive
from tests.fire.real_node import RealNode

LITTLE = 2000
"""Bytes of credit: a few messages are sent ahead."""


@pytest.mark.parametrize("kind", ["unique", "failover", "shared"])
@pytest.mark.parametrize(("redelivery", "last"), [("after_backlog", True), ("after_backoff", False)])
def test_the_backlog_comes_first_and_then_the_refused_message(
    shared_url: str, topic: str, kind: KindName, redelivery: str, last: bool
) -> None:
    async def scenario() -> list[tuple[int, int]]:
        policy = headpond.Policy(redelivery=redelivery)
        found: list[tuple[int, int]] = []
        async with headpond.connect(shared_url) as client:
            await fill(client, topic, 100, rows=1)
            options = {"kind": kind, "policy": policy, "credit_bytes": LITTLE}
            async with client.consumer(topic, "s", **options) as consumer:  # type: ignore[call-overload]
                assert consumer.policy.redelivery == redelivery
                refused = await receive(consumer)
                await consumer.nack(refused, delay=0.0)
                await consumer.flush()
                await asyncio.sleep(0.1)  # its time has come
                while len(found) < 100:
                    message = await receive(consumer)
                    await consumer.ack(message)
                    found.append((message.entry, message.attempt))
        return found

    found = asyncio.run(scenario())
    assert sorted(found) == [(0, 2), *((entry, 1) for entry in range(1, 100))]
    assert (found[-1] == (0, 2)) is last
    found.remove((0, 2))
    assert found == sorted(found)


def test_a_delay_and_its_attempt_outlive_a_kill_of_the_node(tmp_path: Path) -> None:
    delay_s, long_s = 0.6, 3600.0

    async def refuse(url: str) -> float:
        async with headpond.connect(url) as client:
            await fill(client, "orders", 4, rows=1)
            async with client.consumer("orders", "s") as consumer:
                first, second = await receive(consumer), await receive(consumer)
                refused_at = time.time()
                await consumer.nack(first, delay=delay_s)
                await consumer.nack(second, delay=long_s)
                await consumer.flush()
        return refused_at

    async def read_on(url: str) -> list[tuple[int, int, float]]:
        found: list[tuple[int, int, float]] = []
        async with headpond.connect(url) as client, client.consumer("orders", "s") as consumer:
            while len(found) < 3:
                message = await receive(consumer)
                found.append((message.entry, message.attempt, time.time()))
                await consumer.ack(message)
            await consumer.flush()
            assert (await client.admin.show_subscription("orders", "s")).unacked == 1
        return found

    with RealNode(tmp_path) as node:
        refused_at = asyncio.run(refuse(node.url))
        node.restart()
        found = asyncio.run(read_on(node.url))
    assert [each[:2] for each in found] == [(2, 2), (3, 2), (0, 2)], "the kill flags those that may have come"
    assert found[-1][2] >= refused_at + delay_s, "it waited for the rest of its time"
