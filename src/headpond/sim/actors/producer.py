"""A program that sends: it posts in bursts, and waits for receipts now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pyarrow as pa

import headpond
from headpond.model.errors import AccessRefused, HeadpondError
from headpond.model.receipt import Receipt
from headpond.sim.actors.program import Program, Role, short
from headpond.sim.history import Sent
from headpond.sim.plan import ProducerPlan

MESSAGE_BYTES_MAX = 2500
"""The last message that a producer takes may exceed its limit."""
KEYS = (b"a", b"b", b"c", b"d")


class ProducerProgram(Program):
    def __init__(self, role: Role, life: int, plan: ProducerPlan, urls: Sequence[str], typed: bool) -> None:
        """The first URL is that of its node; the others get copies."""
        super().__init__(role, life)
        self.plan = plan
        self.urls = urls
        self.typed = typed
        self._number = 0
        self._token = ""
        self._producer: headpond.Producer | None = None
        self._ousted = False
        """Whether its token was revoked; the next process has another one."""

    def excess(self) -> str:
        producer, limit = self._producer, self.plan.options.get("memory_max", 64 << 20)
        assert isinstance(limit, int)
        if producer is None or producer.stats.memory_bytes <= limit + MESSAGE_BYTES_MAX:
            return ""
        return f"holds {producer.stats.memory_bytes} bytes, and memory_max is {limit}"

    async def run(self) -> None:
        plan = self.plan
        self._token = self.token
        async with self.connect(self.urls[0]) as client:
            producer = self._producer = client.producer(  # type: ignore[call-overload]
                plan.topic,
                plan.name if plan.registered else None,
                copies=self.urls[1:],
                refill="refill" if plan.refill else None,
                access="single" if plan.single else None,
                wait=20.0,
                close_timeout=20.0,
                **plan.options,
            )
            async with producer:
                await self._burst(producer)
                while not self.role.ending and not self._ousted and producer.stopped is None:
                    await self.rest(self.random.random() * plan.pause_s)
                    await self._burst(producer)

    async def _burst(self, producer: headpond.Producer) -> None:
        """Sends some messages, and notes their receipts now or later."""
        rows = [self._next() for _ in range(self.random.randint(1, self.plan.burst))]
        if self.plan.way == "table":
            noting = self._note_table(rows, producer)
        else:
            promises = []
            for row in rows:
                promises.append((row, self._post(row, producer)))
                await asyncio.sleep(self.random.random() * self.plan.spread_s)
            noting = self._note_promises(promises)
        if self.random.random() < 0.5:
            await noting
        else:
            asyncio.get_running_loop().create_task(noting)

    def _post(self, row: Sent, producer: headpond.Producer) -> Awaitable[Receipt] | None:
        try:
            return producer.post({"text": row.value} if self.typed else row.value, key=row.key)
        except HeadpondError as error:
            self._refused(row, error)
            return None

    def _next(self) -> Sent:
        self._number += 1
        plan, chance = self.plan, self.random
        text = f"{self}.{self._number}:"
        value = text.encode() + chance.randbytes(chance.choice([0, 5, 40, 200, 1000])).hex().encode()
        key = chance.choice(KEYS) if plan.keys and chance.random() < plan.keys else None
        sent = Sent(
            plan.topic, plan.node, value, key, self.name, self.life, self._number, self.now_s(), self._token
        )
        self.history.add(sent)
        self.note(f"posts {text} key {sent.key!r}")
        return sent

    async def _note_promises(self, promises: list[tuple[Sent, Awaitable[Receipt] | None]]) -> None:
        for row, promise in promises:
            if promise is not None:
                try:
                    self._answered(row, await promise)
                except HeadpondError as error:
                    self._refused(row, error)

    async def _note_table(self, rows: list[Sent], producer: headpond.Producer) -> None:
        columns = {"value": [row.value for row in rows], "key": [row.key for row in rows]}
        table = pa.table(columns, pa.schema([("value", pa.binary()), ("key", pa.binary())]))
        try:
            receipts = (await producer.send_batch(table)).receipts
        except HeadpondError as error:
            for row in rows:
                self._refused(row, error)
        else:
            for row, receipt in zip(rows, receipts, strict=True):
                self._answered(row, receipt)

    def _answered(self, row: Sent, receipt: Receipt) -> None:
        entry = (receipt.copies[0] if receipt.copies else receipt).entry
        error = receipt.error.code if receipt.error is not None else ""
        outcome = receipt.outcome.value
        self.history.change(row, outcome=outcome, entry=entry, shard=receipt.shard, error=error)
        self.note(f"{short(row.value)} {outcome} at {receipt.shard}/{entry}")

    def _refused(self, row: Sent, error: HeadpondError) -> None:
        self.history.change(row, outcome="refused", error=error.code)
        self._ousted = self._ousted or isinstance(error, AccessRefused)
        self.note(f"{short(row.value)} failed: {error.code}")
