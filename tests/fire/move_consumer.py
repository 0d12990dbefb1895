"""A consumer moves from a node that dies to one that follows it: counts sent, settled, repeated, lost.

    python -m tests.fire.move_consumer [--messages N]

Node B follows node A with its subscriptions. Two producers send to A while a consumer at A settles. A is killed
with SIGKILL in the middle; the subscription is promoted at B, and a consumer continues there. A comes back and
sends the messages that only it had, and its producers send theirs. Exits with 1 if a message is lost, or
repeated with attempt 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import headpond
from headpond.client.connect import Client
from headpond.client.link.dialling import Backoff
from headpond.model.message import Message
from headpond.wire.control.consuming import SubscriptionInfo
from tests.fire.real_node import RealNode

TOPIC, NAME = "orders", "billing"
QUICK = Backoff(0.01, 0.1)
STEP_S = 0.05


@dataclass
class Outcome:
    sent: set[bytes] = field(default_factory=set)
    """Messages with a receipt."""
    at_a: set[bytes] = field(default_factory=set)
    """Handed to the consumer at A."""
    settled_at_a: set[bytes] = field(default_factory=set)
    """Those whose settlement A confirmed."""
    at_b: Counter[bytes] = field(default_factory=Counter)
    marked: set[bytes] = field(default_factory=set)
    """Delivered at B with an attempt above 1."""
    copy: SubscriptionInfo | None = None
    """The state at B before the promotion."""
    end_a: SubscriptionInfo | None = None
    end_b: SubscriptionInfo | None = None

    @property
    def lost(self) -> set[bytes]:
        return self.sent - self.settled_at_a - self.at_b.keys()

    @property
    def repeated(self) -> set[bytes]:
        return self.at_a & self.at_b.keys()

    @property
    def faults(self) -> list[str]:
        found = []
        if self.lost:
            found.append(f"{len(self.lost):,} messages are lost")
        if unmarked := self.repeated - self.marked:
            found.append(f"{len(unmarked):,} messages came again without a mark")
        if max(self.at_b.values(), default=1) > 1:
            found.append("a message came twice at B")
        return found


async def produce(url: str, name: str, messages: int, outcome: Outcome) -> None:
    async with (
        headpond.connect(url, backoff=QUICK) as client,
        client.producer(TOPIC, name, batch_rows=20) as producer,
    ):
        values = [f"{name} {number}".encode() for number in range(messages)]
        promises = []
        for number, value in enumerate(values):
            promises.append(producer.post(value, key=b"k%d" % (number % 50)))
            if number % 100 == 99:
                await asyncio.sleep(0.01)
        receipts = await asyncio.gather(*promises)
        outcome.sent |= {value for value, receipt in zip(values, receipts, strict=True) if receipt.safe}


async def consume_at_a(url: str, enough: int, reached: asyncio.Event, outcome: Outcome) -> None:
    """Settles messages, and flushes now and then, until the node is killed."""
    waiting: list[Message] = []
    async with (
        headpond.connect(url, backoff=QUICK) as client,
        client.consumer(TOPIC, subscription=NAME, kind="shared") as consumer,
    ):
        async for message in consumer:
            outcome.at_a.add(message.value)
            await consumer.ack(message)
            waiting.append(message)
            if len(waiting) == 100:
                await consumer.flush()
                outcome.settled_at_a |= {each.value for each in waiting}
                waiting.clear()
            if len(outcome.at_a) >= enough:
                reached.set()


async def consume_at_b(url: str, outcome: Outcome) -> None:
    async with (
        headpond.connect(url) as client,
        client.consumer(TOPIC, subscription=NAME, kind="shared") as consumer,
    ):
        async for message in consumer:
            outcome.at_b[message.value] += 1
            if message.attempt > 1:
                outcome.marked.add(message.value)
            await consumer.ack(message)


async def copied(client: Client) -> None:
    """Returns when the node has a copy of the subscription."""
    found: list[SubscriptionInfo] = []
    while not found:
        await asyncio.sleep(STEP_S)
        found = await client.admin.list_subscriptions()


async def settled(client: Client) -> None:
    """Returns when the copy has some of the source's settlements."""
    count = 0
    while not count:
        await asyncio.sleep(STEP_S)
        count = (await client.admin.show_subscription(TOPIC, NAME)).settled


async def scenario(a: RealNode, b: RealNode, messages: int) -> Outcome:
    outcome, reached = Outcome(), asyncio.Event()
    async with headpond.connect(a.url) as at_a, headpond.connect(b.url) as at_b:
        await at_a.admin.create_topic(TOPIC, shards=2)
        await at_a.admin.create_subscription(TOPIC, NAME, kind="shared")
        await at_b.admin.add_peer(a.url, [TOPIC], name="west", subscriptions=["*"])
        await copied(at_b)
        sending = [
            asyncio.create_task(produce(a.url, name, messages, outcome)) for name in ("till-1", "till-2")
        ]
        reading = asyncio.create_task(consume_at_a(a.url, messages // 2, reached, outcome))
        await reached.wait()
        await settled(at_b)
        await asyncio.to_thread(a.kill)
        reading.cancel()
        outcome.copy = await at_b.admin.show_subscription(TOPIC, NAME)
        await at_b.admin.promote(TOPIC, NAME)
        moved = asyncio.create_task(consume_at_b(b.url, outcome))
        await asyncio.sleep(1.0)  # for a while there is B alone
        await asyncio.to_thread(a.start)
        await asyncio.gather(*sending)
        while outcome.lost or not (outcome.end_a is not None and outcome.end_a.elsewhere):
            outcome.end_a = await at_a.admin.show_subscription(TOPIC, NAME)
            await asyncio.sleep(STEP_S)
            if moved.done():
                moved.result()
        moved.cancel()
        await asyncio.gather(moved, reading, return_exceptions=True)
        outcome.end_b = await at_b.admin.show_subscription(TOPIC, NAME)
    return outcome


def tell(outcome: Outcome) -> None:
    assert outcome.copy is not None and outcome.end_a is not None and outcome.end_b is not None
    lines = [
        ("sent, and safe by their receipts", len(outcome.sent)),
        ("handed to the consumer at A", len(outcome.at_a)),
        ("settled there, and confirmed", len(outcome.settled_at_a)),
        ("A was killed; settled in the copy at B by then", outcome.copy.settled),
        ("handed to the consumer at B after the promotion", len(outcome.at_b)),
        ("of those, repeated", len(outcome.repeated)),
        ("repeated without an attempt above 1", len(outcome.repeated - outcome.marked)),
        ("lost", len(outcome.lost)),
    ]
    for text, count in lines:
        print(f"{count:>9,}  {text}")
    print(f"A is back, and says that {NAME} is active on node {outcome.end_a.elsewhere[:12]} too.")


def main() -> int:
    parser = argparse.ArgumentParser(description="A consumer moves from a node that dies to its follower.")
    parser.add_argument("--messages", type=int, default=20_000, help="of each of two producers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HEADPOND_STATE"] = f"{folder}/state"
        with RealNode(Path(folder) / "a") as a, RealNode(Path(folder) / "b") as b:
            outcome = asyncio.run(asyncio.wait_for(scenario(a, b, arguments.messages), 300))
    tell(outcome)
    for fault in outcome.faults:
        print(f"FAULT: {fault}")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
