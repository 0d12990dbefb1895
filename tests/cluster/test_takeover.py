"""Real nodes over real servers: whatever is killed or stopped, nothing acknowledged is lost or stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import headpond
from tests.cluster.group import GROUP, RealGroup
from tests.cluster.nats import NatsCluster

TOPIC = "orders"
ROUND_S = 3.0
"""How long programs work before a failure, and after it."""


class Traffic:
    """A producer and a consumer that work through everything."""

    def __init__(self, group: RealGroup) -> None:
        self._group = group
        self.acknowledged: list[bytes] = []
        self.received: dict[bytes, list[int]] = {}
        """The attempts of each value."""
        self._ending = False

    async def run(self, failures: Callable[[], Awaitable[None]]) -> None:
        async with headpond.connect(self._group.url, wait=False) as client:
            await client.admin.create_topic(TOPIC, shards=1)
            producing = asyncio.create_task(self._produce(client))
            consuming = asyncio.create_task(self._consume(client))
            try:
                await failures()
            finally:
                self._ending = True
            await asyncio.wait_for(asyncio.gather(producing, consuming), 120)

    async def _produce(self, client: headpond.Client) -> None:
        async with client.producer(TOPIC, name="till", refill=None) as producer:
            while not self._ending:
                value = b"%d" % len(self.acknowledged)
                receipt = await producer.send(value)
                assert receipt.outcome in ("stored", "duplicate"), receipt
                self.acknowledged.append(value)
                await asyncio.sleep(0.01)

    async def _consume(self, client: headpond.Client) -> None:
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            while not self._ending or len(self.received) < len(self.acknowledged):
                message = await consumer.receive(timeout=1.0)
                if message is not None:
                    self.received.setdefault(bytes(message.value), []).append(message.attempt)
                    await consumer.ack(message)

    async def check(self) -> None:
        """Every acknowledged value is stored once and in order, and no repeat came as a first attempt."""
        stored: list[bytes] = []
        async with headpond.connect(self._group.url, wait=False) as client, client.reader(TOPIC) as reader:
            (ends,) = await reader.ends()
            async for part in reader.read(0, 0, ends.entry_next):
                stored += [bytes(message.value) for batch in part.batches for message in batch.messages()]
        assert stored == self.acknowledged
        assert set(self.received) == set(stored)
        assert [value for value, attempts in self.received.items() if attempts.count(1) > 1] == []


@pytest.mark.timeout(300)
def test_takeovers_lose_nothing_and_store_nothing_twice(tmp_path: Path) -> None:
    async def play() -> None:
        async with NatsCluster(tmp_path / "nats") as nats, RealGroup(tmp_path / "nodes", nats) as group:
            traffic = Traffic(group)

            async def failures() -> None:
                await asyncio.sleep(ROUND_S)
                killed = await group.active()
                group.kill(killed)
                assert await group.active() != killed
                group.start(killed)
                await asyncio.sleep(ROUND_S)

                zombie = await group.active()  # it wakes up and finds that it was replaced
                group.stop(zombie)
                while await group.active() == zombie:
                    pass
                await asyncio.sleep(ROUND_S)
                group.resume(zombie)
                await asyncio.sleep(ROUND_S)

                leader = await asyncio.to_thread(nats.leader_of, f"HEADPOND-{GROUP}")
                group.kill(both := await group.active())
                nats.kill(leader)
                await group.active()
                nats.start(leader)
                group.start(both)
                await asyncio.sleep(ROUND_S)

                left = await group.active()
                assert group.end(left) == 0
                assert await group.active() != left
                group.lose_folder(left)
                group.start(left)
                await asyncio.sleep(ROUND_S)

            await traffic.run(failures)
            await traffic.check()
            await group.all_alike()
            assert len(traffic.acknowledged) > 100

    asyncio.run(play())
