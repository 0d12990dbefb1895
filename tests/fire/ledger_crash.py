"""The ledger before and after a SIGKILL under load: both tables, and whether they balance.

    python -m tests.fire.ledger_crash [--messages N]

Two producers send and two consumers settle (one acknowledges, one refuses some for good) while the node is
killed and started again on the same folder. Exits with 1 if a ledger does not balance, or contradicts the
producers' receipts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import headpond
from headpond.cli.operate.ledger import print_ledger
from headpond.client.connect import Client
from headpond.model.policy import Policy
from headpond.wire.control.ledger import LedgerInfo
from tests.fire.real_node import RealNode

TOPIC = "orders"
PRODUCERS = ("till-1", "till-2")
SUBSCRIPTIONS = ("billing", "audit")


@dataclass
class Outcome:
    before: LedgerInfo
    after: LedgerInfo
    end: LedgerInfo
    stored: dict[str, int] = field(default_factory=dict)
    """Messages by producer whose receipt says that they are safe: stored, or spilled and delivered since."""

    @property
    def faults(self) -> list[str]:
        named = (("before", self.before), ("after the kill", self.after), ("at the end", self.end))
        found = [f"the ledger {when} does not balance" for when, info in named if not info.balanced]
        for account in self.end.producers:
            if account.messages != self.stored[account.producer]:
                told = self.stored[account.producer]
                found.append(
                    f"{account.producer}: {told:,} safe by receipts, {account.messages:,} in the ledger"
                )
        return found


class Writer:
    """A producer that is kept open until everything it sent has arrived."""

    def __init__(self, name: str, messages: int) -> None:
        self.name = name
        self.messages = messages
        self.safe = 0
        self.half = asyncio.Event()
        self.release = asyncio.Event()

    async def run(self, client: Client) -> None:
        async with client.producer(TOPIC, name=self.name) as producer:
            promises = []
            for number in range(self.messages):
                promises.append(producer.post(b"%s %d" % (self.name.encode(), number)))
                if number % 50 == 0:
                    await asyncio.sleep(0)  # the consumers and the node have a turn
                if number == self.messages // 2:
                    await asyncio.gather(*promises[: self.messages // 4])
                    self.half.set()
            self.safe = sum(receipt.safe for receipt in await asyncio.gather(*promises))
            await self.release.wait()  # the producer sends the spilled messages meanwhile


async def consume(client: Client, name: str) -> None:
    """Runs until cancelled; refuses one message in a hundred until it is a dead letter."""
    policy = Policy(max_attempts=2, backoff=0.01)
    async with client.consumer(TOPIC, subscription=name, kind="shared", policy=policy) as consumer:
        async for message in consumer:
            if name == "audit" and message.entry % 100 == 7:
                await consumer.nack(message)
            else:
                await consumer.ack(message)


async def ledger_when(client: Client, total: int) -> LedgerInfo:
    """The ledger after everything is stored and settled."""
    while True:
        info = await client.admin.ledger(TOPIC)
        settled = [one.account.settled for one in info.subscriptions]
        if info.log.messages >= total and min(settled, default=0) >= total:
            return info
        await asyncio.sleep(0.2)


async def scenario(node: RealNode, messages: int) -> Outcome:
    writers = [Writer(name, messages) for name in PRODUCERS]
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(TOPIC, shards=2)
        readers = [asyncio.create_task(consume(client, name)) for name in SUBSCRIPTIONS]
        sending = [asyncio.create_task(writer.run(client)) for writer in writers]
        await asyncio.gather(*(writer.half.wait() for writer in writers))
        before = await client.admin.ledger(TOPIC)
        await asyncio.to_thread(node.restart)
        after = await client.admin.ledger(TOPIC)
        await ledger_when(client, messages * len(PRODUCERS))
        for writer in writers:
            writer.release.set()
        await asyncio.gather(*sending)
        end = await client.admin.ledger(TOPIC)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return Outcome(before, after, end, {writer.name: writer.safe for writer in writers})


def main() -> int:
    parser = argparse.ArgumentParser(description="The ledger before and after a SIGKILL under load.")
    parser.add_argument("--messages", type=int, default=20_000, help="of each producer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RealNode(Path(folder) / "node") as node:
        os.environ["HEADPOND_STATE"] = f"{folder}/state"
        outcome = asyncio.run(scenario(node, arguments.messages))
    for title, info in (
        ("before the kill", outcome.before),
        ("after it", outcome.after),
        ("when all is settled", outcome.end),
    ):
        print(f"\n=== {title}\n")
        print_ledger(info, blocks=False)
    print()
    for fault in outcome.faults:
        print(f"FAULT: {fault}")
    print("faults:", len(outcome.faults))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
