"""A program that sends: it posts in bursts, and waits for receipts now and then."""

from __future__ import annotations

import asyncio
from typing import Any

import headpond
from headpond.model.errors import HeadpondError
from headpond.model.receipt import Receipt
from headpond.sim.actors.actor import Actor, Program, short
from headpond.sim.history import Sent
from headpond.sim.plan import ProducerPlan
from headpond.sim.process import Process

MESSAGE_BYTES_MAX = 1000
"""The last message that a producer takes may exceed its limit."""
KEYS = (b"a", b"b", b"c", b"d")


class ProducerProgram(Program):
    def __init__(
        self, actor: Actor, process: Process, life: int, plan: ProducerPlan, url: str, typed: bool
    ) -> None:
        super().__init__(actor, process, life)
        self.plan = plan
        self.url = url
        self.typed = typed
        self._number = 0
        self._token = ""
        self._producer: headpond.Producer | None = None

    def excess(self) -> str:
        producer, limit = self._producer, self.plan.options.get("memory_max", 64 << 20)
        assert isinstance(limit, int)
        if producer is None or producer.stats.memory_bytes <= limit + MESSAGE_BYTES_MAX:
            return ""
        return f"holds {producer.stats.memory_bytes} bytes, and memory_max is {limit}"

    async def run(self) -> None:
        plan = self.plan
        self._token = self.token
        async with self.connect(self.url) as client:
            producer = self._producer = client.producer(
                plan.topic,
                plan.name if plan.registered else None,
                refill="refill" if plan.refill else None,
                access="single" if plan.single else None,
                wait=20.0,
                close_timeout=20.0,
                **plan.options,  # type: ignore[arg-type]
            )
            async with producer:
                while not self.actor.ending:
                    await self._burst(producer)
                    await self.rest(self.random.random() * plan.pause_s)

    async def _burst(self, producer: headpond.Producer) -> None:
        promises = []
        for _ in range(self.random.randint(1, self.plan.burst)):
            sent = self._next()
            try:
                value: Any = {"text": sent.value} if self.typed else sent.value
                promises.append((sent, producer.post(value, key=sent.key)))
            except HeadpondError as error:
                sent.outcome, sent.error = "refused", error.code
                if error.code != "buffer-full":
                    raise
        if self.random.random() < 0.5:
            await self._receipts(promises)
        else:
            asyncio.get_running_loop().create_task(self._receipts(promises))

    def _next(self) -> Sent:
        self._number += 1
        plan, chance = self.plan, self.random
        text = f"{self.process}.{self._number}:"
        value = text.encode() + chance.randbytes(chance.choice([0, 5, 40, 200])).hex().encode()
        key = chance.choice(KEYS) if plan.keys and chance.random() < plan.keys else None
        sent = Sent(
            plan.topic, plan.node, value, key, self.name, self.life, self._number, self.now_s(), self._token
        )
        self.history.add(sent)
        self.note(f"posts {text} key {sent.key!r}")
        return sent

    async def _receipts(self, promises: list[tuple[Sent, Any]]) -> None:
        for sent, promise in promises:
            try:
                receipt: Receipt = await promise
            except HeadpondError as error:
                sent.outcome, sent.error = "refused", error.code
                self.note(f"{short(sent.value)} failed: {error.code}")
                continue
            sent.outcome = receipt.outcome.value
            sent.entry, sent.shard = receipt.entry, receipt.shard
            self.note(f"{short(sent.value)} {sent.outcome} at {sent.shard}/{sent.entry}")
