"""A producer or a consumer: ``python -m tests.torture.program sender|taker FOLDER JSON URL... LIFE``.

It runs until it is killed, or until SIGTERM ends it in good order. It works in its own folder, which has its
refill. Files in ``FOLDER`` give orders: while ``pause.TOPIC`` exists, its producers send nothing; once ``calm``
exists, consumers refuse nothing; once ``moved`` exists, a consumer that moves reads at its second node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import headpond
from headpond.client.link.dialling import Backoff
from headpond.client.produce.promise import BatchReceipt
from headpond.model.errors import HeadpondError, SubscriptionBusy
from headpond.model.receipt import Receipt
from headpond.sim.history import Delivered, Sent, Settled
from tests.torture.cast import Sender, Taker
from tests.torture.journal import Journal

KEYS = 7
IDLE_S = 0.3
"""How long a consumer that has messages in hand waits for another one."""
CLOSE_S = 20.0
BURSTS_MAX = {"send": 1, "post": 20, "table": 20}
"""How many bursts may be unanswered."""


class Program(ABC):
    def __init__(self, folder: Path, name: str, urls: Sequence[str], life: int) -> None:
        self.folder = folder
        self.name = name
        self.urls = list(urls)
        self.life = life
        self.random = random.Random(f"{name} {life}")
        self.journal = Journal(folder / "journals" / f"{name}.{life}.jsonl")
        self.ending = asyncio.Event()

    def connect(self, urls: str | list[str]) -> headpond.Client:
        return headpond.connect(
            urls,
            wait=False,
            connect_timeout=2.0,
            ping_after=1.0,
            dead_after=3.0,
            request_timeout=10.0,
            backoff=Backoff(0.02, 0.5),
        )

    async def rest(self, seconds: float) -> None:
        """Sleeps, but not past its end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), seconds)

    @abstractmethod
    async def run(self) -> None: ...

    def ordered(self, order: str) -> bool:
        return (self.folder / order).exists()


class Producing(Program):
    def __init__(self, sender: Sender, *place: Any) -> None:
        super().__init__(*place)
        self.sender = sender
        self._count = 0
        self._bursts: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        sender = self.sender
        async with (
            self.connect(self.urls[0]) as client,
            client.producer(
                sender.topic,
                sender.name,
                copies=self.urls[1:],
                refill="refill" if sender.refill else None,
                batch_rows=64,
                spill_after=0.5 if sender.refill else 120.0,
                wait=CLOSE_S,
                close_timeout=CLOSE_S,
            ) as producer,
        ):
            while not self.ending.is_set():
                if self.ordered(f"pause.{sender.topic}"):
                    await self._answers()
                    (self.folder / f"{self.name}.paused").touch()
                elif len(self._bursts) < BURSTS_MAX[sender.way]:
                    burst = asyncio.create_task(self._burst(producer, self.random.randint(1, sender.burst)))
                    self._bursts.add(burst)
                    burst.add_done_callback(self._bursts.discard)
                await self.rest(self.random.random() * sender.pause_s)
            await self._answers()

    async def _answers(self) -> None:
        if self._bursts:
            await asyncio.gather(*self._bursts)

    async def _burst(self, producer: headpond.Producer, count: int) -> None:
        """Sends some messages and notes their receipts."""
        rows = [self._next() for _ in range(count)]
        answers: list[Awaitable[Receipt]]
        if self.sender.way == "table":
            _, values, keys = zip(*rows, strict=True)
            table = pa.table({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())})
            batch = asyncio.ensure_future(producer.send_batch(table))
            answers = [_receipt(batch, row) for row in range(count)]
        elif self.sender.way == "send":  # each is sent when the one before is answered
            answers = [producer.send(value, key=key) for _, value, key in rows]
        else:
            answers = [producer.post(value, key=key) for _, value, key in rows]
        for (note, _, _), answer in zip(rows, answers, strict=True):
            try:
                receipt = await answer
            except HeadpondError as error:
                self.journal.change(note, outcome="refused", error=error.code)
            else:
                first = receipt.copies[0] if receipt.copies else receipt
                self.journal.change(note, outcome=receipt.outcome, entry=first.entry, shard=receipt.shard)

    def _next(self) -> tuple[int, bytes, bytes | None]:
        """Notes the next message: the number of the note, the value, the key."""
        self._count += 1
        chance, sender = self.random, self.sender
        text = f"{self.name}#{self.life}.{self._count}:{chance.randbytes(chance.choice([0, 5, 50])).hex()}"
        value, key = text.encode(), b"key %d" % chance.randrange(KEYS) if sender.keys else None
        note = self.journal.add(
            Sent,
            topic=sender.topic,
            node=sender.nodes[0],
            value=value,
            key=key,
            producer=self.name,
            life=self.life,
            number=self._count,
            at_s=time.monotonic(),
        )
        return note, value, key


async def _receipt(batch: Awaitable[BatchReceipt], row: int) -> Receipt:
    return (await batch).receipts[row]


class Consuming(Program):
    def __init__(self, taker: Taker, *place: Any) -> None:
        super().__init__(*place)
        self.taker = taker
        self._hands: list[tuple[int, headpond.Message]] = []
        """Deliveries, by the number of their note."""
        self._unconfirmed: list[int] = []

    async def run(self) -> None:
        plan, reads = self.taker.plan, self.taker.reads
        moved = reads == "moves" and self.ordered("moved")
        self._node = self.taker.nodes[1] if moved else self.taker.nodes[0]
        urls = self.urls if reads == "any" else [self.urls[1 if moved else 0]]
        async with self.connect(urls) as client:
            consumer = client.consumer(
                plan.topic,
                plan.name,
                kind=plan.kind,
                mode=plan.mode,
                name=f"{self.name}#{self.life}",
                policy=plan.policy,
                credit_bytes=plan.credit_bytes,
                close_timeout=CLOSE_S,
                copies=self.urls[1:] if reads == "all" else (),
            )
            try:
                await consumer.open()
            except SubscriptionBusy:
                await self.rest(1.0)
                return
            try:
                await self._work(consumer)
            finally:
                await consumer.close()
            self._confirm(self._unconfirmed)

    async def _work(self, consumer: headpond.Consumer) -> None:
        plan, chance = self.taker.plan, self.random
        while True:
            message = await consumer.receive(IDLE_S)
            if message is not None:
                self._hands.append((self._delivered(message), message))
            elif self.ending.is_set() and not self._hands:
                return
            if self._hands and (message is None or len(self._hands) >= plan.hold):
                await asyncio.sleep(chance.random() * plan.think_s)
                await self._settle(consumer)

    def _delivered(self, message: headpond.Message) -> int:
        return self.journal.add(
            Delivered,
            topic=self.taker.plan.topic,
            subscription=self.taker.plan.name,
            node=self._node,
            consumer=self.name,
            life=self.life,
            shard=message.shard,
            entry=message.entry,
            value=message.value,
            key=message.key,
            attempt=message.attempt,
            at_s=time.monotonic(),
            node_starts=0,
        )

    async def _settle(self, consumer: headpond.Consumer) -> None:
        chance = self.random
        number, message = self._hands.pop(0 if chance.random() < 0.8 else chance.randrange(len(self._hands)))
        refuse = 0.0 if self.ordered("calm") else self.taker.plan.refuse
        how = "nack" if chance.random() < refuse else chance.choice(["ack"] * 9 + ["skip"])
        self._unconfirmed.append(self.journal.add(Settled, delivery=number, how=how, at_s=time.monotonic()))
        await getattr(consumer, how)(message)
        if chance.random() < 0.1:
            before = list(self._unconfirmed)
            await consumer.flush()
            self._confirm(before)

    def _confirm(self, settled: list[int]) -> None:
        for number in list(settled):
            self.journal.change(number, confirmed_s=time.monotonic())
            self._unconfirmed.remove(number)


async def main(kind: str, folder: Path, spec: str, *rest: str) -> int:
    *urls, life = rest
    program: Program
    if kind == "sender":
        sender = msgspec.json.decode(spec, type=Sender)
        program = Producing(sender, folder, sender.name, urls, int(life))
    else:
        taker = msgspec.json.decode(spec, type=Taker)
        program = Consuming(taker, folder, taker.name, urls, int(life))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, program.ending.set)
    try:
        await program.run()
    except HeadpondError as error:
        print(f"life {life} ends: {error.code}: {error.message}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what the client logs under faults is no news
    sys.exit(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
