"""Two nodes are killed in turn, while a producer sends to both and a consumer reads both.

``python -m tests.fire.kill_several``. The consumer gets every message with a receipt, and only refused messages
twice; in the end everything is settled at both nodes. With ``--list`` the consumer reads one service of two
addresses instead, and continues at the other node after each kill.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headpond
from headpond.client.connect import Client
from headpond.client.link.dialling import Backoff
from headpond.model.policy import Policy
from tests.fire.real_node import RealNode

TOPIC = "t"
QUICK = Backoff(0.01, 0.1)
QUIET_S = 4.0
"""The run ends if no message arrives for this long after everything is sent."""


@dataclass
class Tally:
    sent: set[str] = field(default_factory=set)
    handed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    copies: int = 0

    @property
    def missing(self) -> int:
        return len(self.sent - self.handed.keys())

    @property
    def repeated(self) -> int:
        return sum(count > 1 + self.refused[identity] for identity, count in self.handed.items())

    def __str__(self) -> str:
        return (
            f"{len(self.sent):,} sent, {len(self.handed):,} handed out, {self.missing} missing, "
            f"{self.repeated} repeated; {self.refused.total():,} refusals, {self.copies:,} copies held, "
            f"{self.kills} kills"
        )


async def produce(nodes: list[RealNode], refill: Path, stop: asyncio.Event, tally: Tally) -> None:
    first, *others = (node.url for node in nodes)
    async with (
        headpond.connect(first, backoff=QUICK, wait=False) as client,
        client.producer(TOPIC, copies=others, refill=refill, spill_after=0.2, close_timeout=60) as producer,
    ):
        while not stop.is_set():
            promises = [producer.post(b"%d" % number) for number in range(50)]
            tally.sent |= {str((await promise).identity) for promise in promises}
            await asyncio.sleep(0.02)
        await producer.reached()


async def kill(
    nodes: list[RealNode], seconds: float, chance: random.Random, stop: asyncio.Event, tally: Tally
) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        await asyncio.sleep(chance.uniform(0.5, 2.0))
        victim = chance.choice(nodes)
        victim.kill()
        tally.kills += 1
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        await asyncio.to_thread(victim.start)
    stop.set()


async def consume(
    client: Client, copies: list[str], work: asyncio.Future[Any], chance: random.Random, tally: Tally
) -> None:
    policy = Policy(backoff=0.05, max_attempts=0)
    async with client.consumer(TOPIC, "s", copies=copies, credit_bytes=20_000, policy=policy) as consumer:
        while True:
            message = await consumer.receive(QUIET_S)
            if message is None:
                if work.done():
                    break
                continue
            identity = str(message.identity)
            tally.handed[identity] += 1
            if chance.random() < 0.02:
                tally.refused[identity] += 1
                await consumer.nack(message)
            else:
                await consumer.ack(message)
        await consumer.flush()
        tally.copies = consumer.copies


async def storm(nodes: list[RealNode], folder: Path, seconds: float, seed: int, *, listed: bool) -> Tally:
    chance, tally, stop = random.Random(seed), Tally(), asyncio.Event()
    urls = [node.url for node in nodes]
    async with headpond.connect(urls if listed else urls[0], backoff=QUICK) as client:
        work = asyncio.gather(
            produce(nodes, folder / "refill", stop, tally), kill(nodes, seconds, chance, stop, tally)
        )
        await consume(client, [] if listed else urls[1:], work, chance, tally)
        await work
    for url in [] if listed else urls:
        async with headpond.connect(url) as client:
            info = await client.admin.show_subscription(TOPIC, "s")
            assert info.unsettled == 0, f"{url} has {info.unsettled} unsettled"
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("headpond").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        nodes = [stack.enter_context(RealNode(folder / each)) for each in ("one", "two")]
        tally = asyncio.run(storm(nodes, folder, asked.seconds, asked.seed, listed=asked.list))
    print(tally)
    assert not tally.missing and not tally.repeated


if __name__ == "__main__":
    main()
