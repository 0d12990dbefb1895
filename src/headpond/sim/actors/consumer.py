"""A program that consumes: it takes messages, works on them, and acknowledges, skips or refuses them."""

from __future__ import annotations

import asyncio
from typing import Any

import headpond
from headpond.model.errors import SubscriptionBusy
from headpond.sim.actors.actor import Actor, Program, short, value_of
from headpond.sim.history import Delivered, Settled
from headpond.sim.node import SimNode
from headpond.sim.plan import SubscriptionPlan
from headpond.sim.process import Process

IDLE_S = 0.5
"""How long a program that has messages in hand waits for another one."""


class ConsumerProgram(Program):
    def __init__(
        self, actor: Actor, process: Process, life: int, plan: SubscriptionPlan, node: SimNode
    ) -> None:
        super().__init__(actor, process, life)
        self.plan = plan
        self.node = node
        self._hands: list[tuple[Delivered, Any]] = []
        self._unconfirmed: list[Settled] = []

    async def run(self) -> None:
        plan = self.plan
        async with self.connect(self.node.url) as client:
            consumer = client.consumer(
                plan.topic,
                plan.name,
                kind=plan.kind,
                mode=plan.mode,
                name=str(self.process),
                policy=plan.policy,
                credit_bytes=plan.credit_bytes,
                close_timeout=10.0,
            )
            try:
                await consumer.open()
            except SubscriptionBusy:
                await asyncio.sleep(1.0)
                return
            try:
                await self._work(consumer)
            finally:
                await consumer.close()
            self._confirm(self._unconfirmed)

    async def _work(self, consumer: headpond.Consumer) -> None:
        while True:
            message = await consumer.receive(self.slow_s(IDLE_S))
            if message is not None:
                self._hands.append((self._delivered(message), message))
            elif self.actor.ending and not self._hands:
                return
            if self._hands and (message is None or len(self._hands) >= self.plan.hold):
                await asyncio.sleep(self.random.random() * self.plan.think_s)
                await self._settle(consumer)

    def _delivered(self, message: headpond.Message) -> Delivered:
        delivered = Delivered(
            self.plan.topic,
            self.plan.name,
            self.plan.node,
            self.name,
            self.life,
            message.origin.shard,
            message.entry,
            value_of(message),
            message.key,
            message.attempt,
            self.now_s(),
            self.node.starts,
        )
        self.history.add(delivered)
        self.note(
            f"gets {delivered.shard}/{delivered.entry} {short(delivered.value)} attempt {delivered.attempt}"
        )
        return delivered

    async def _settle(self, consumer: headpond.Consumer) -> None:
        chance = self.random
        delivered, message = self._hands.pop(0 if chance.random() < 0.8 else chance.randrange(len(self._hands)))
        how = (
            "nack"
            if chance.random() < (0.0 if self.actor.calm else self.plan.refuse)
            else chance.choice(["ack"] * 9 + ["skip"])
        )
        settled = Settled(delivered, how, self.now_s())
        self.history.add(settled)
        self.note(f"{how}s {delivered.shard}/{delivered.entry}")
        await getattr(consumer, how)(message)
        self._unconfirmed.append(settled)
        if chance.random() < 0.1:
            before = list(self._unconfirmed)
            await consumer.flush()
            self._confirm(before)

    def _confirm(self, settled: list[Settled]) -> None:
        for each in list(settled):
            each.confirmed_s = self.now_s()
            self._unconfirmed.remove(each)
