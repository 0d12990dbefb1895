"""Subscriptions of every kind and mode, read while their node is killed again and again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import headpond
from headpond.client.link.dialling import Backoff
from tests.client.consume.cells import CELLS, fill, in_key_order
from tests.fire.real_node import RealNode

COUNT = 400
KILLS = 3
POLICY = headpond.Policy(lease=1.0, backoff=0.01, max_attempts=0)


async def read(client: headpond.Client, topic: str, kind: str, mode: str, done: asyncio.Event) -> None:
    """Settles everything, refuses some messages once, and checks each against the confirmed settlements."""
    confirmed: set[int] = set()
    handled: list[int] = []
    async with client.consumer(topic, f"{kind}.{mode}", kind=kind, mode=mode, policy=POLICY) as consumer:
        fresh: list[int] = []
        while len(confirmed) < COUNT:
            message = await consumer.receive(0.2)
            if message is not None:
                assert message.entry not in confirmed, "it came again after its ack was confirmed"
                if message.entry % 37 == 5 and message.attempt == 1:
                    await consumer.nack(message)
                    continue
                handled.append(int(message.value))
                await consumer.ack(message)
                fresh.append(message.entry)
                await asyncio.sleep(0.001)  # so that kills meet it in the middle
            if message is None or len(fresh) == 50:
                await consumer.flush()
                confirmed.update(fresh)
                fresh.clear()
    assert set(handled) == set(range(COUNT)), "nothing unsettled is forgotten"
    first_time = list(dict.fromkeys(handled))
    if mode == "resilient" and kind in ("unique", "failover"):
        assert handled == sorted(handled), "in order, over every kill"
    if mode == "resilient" and kind == "shared":
        assert first_time == sorted(first_time), "one after the other, over every kill"
    if mode == "resilient":
        assert in_key_order(first_time)
    done.set()


def test_subscriptions_of_every_kind_and_mode_continue_over_kills_of_the_node(tmp_path: Path) -> None:
    async def scenario(node: RealNode) -> None:
        async with headpond.connect(node.url, backoff=Backoff(0.02, 0.2)) as client:
            await fill(client, "orders", COUNT, rows=20)
            ends = [asyncio.Event() for _ in CELLS]
            async with asyncio.TaskGroup() as readers:
                for (kind, mode), done in zip(CELLS, ends, strict=True):
                    readers.create_task(read(client, "orders", kind, mode, done))
                for _ in range(KILLS):
                    await asyncio.sleep(0.3)
                    node.kill()
                    await asyncio.to_thread(node.start)
                    await client.admin.list_topics()
            assert all(done.is_set() for done in ends)
            for info in await client.admin.list_subscriptions("orders"):
                assert (info.unsettled, info.dead, info.positions) == (0, 0, [COUNT])

    with RealNode(tmp_path) as node:
        asyncio.run(scenario(node))
