"""A program that consumes: it takes messages, works on them, and acknowledges, skips or refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import headpond
from headpond.model.errors import SubscriptionBusy
from headpond.sim.actors.program import Program, Role, short, value_of
from headpond.sim.history import Delivered, Settled
from headpond.sim.plan import SubscriptionPlan

IDLE_S = 0.5
"""How long a program that has messages in hand waits for another one."""


class ConsumerProgram(Program):
    def __init__(
        self,
        role: Role,
        life: int,
        plan: SubscriptionPlan,
        urls: list[str],
        starts: Callable[[], int],
        copies: Sequence[str] = (),
    ) -> None:
        """``urls`` are those of one node or of one service; ``copies``, of nodes with copies of the messages.

        ``starts`` returns how often the node has been started.
        """
        super().__init__(role, life)
        self.plan = plan
        self.urls = urls
        self.copies = copies
        self._starts = starts
        self._hands: list[tuple[Delivered, Any]] = []
        self._unconfirmed: list[Settled] = []
        self._client: headpond.Client
        self._reconnects = 0
        self._looked = self._connected = (self.now_s(), starts())

    async def run(self) -> None:
        plan = self.plan
        async with self.connect(self.urls) as client:
            self._client = client
            consumer = client.consumer(
                plan.topic,
                plan.name,
                kind=plan.kind,
                mode=plan.mode,
                name=str(self),
                policy=plan.policy,
                credit_bytes=plan.credit_bytes,
                close_timeout=10.0,
                copies=self.copies,
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
        taken = 0
        while True:
            leaves = 0 < self.plan.stay <= taken
            message = None if leaves else await consumer.receive(self.slow_s(IDLE_S))
            self._look()
            if message is not None:
                self._hands.append((self._delivered(message), message))
                taken += 1
            elif not self._hands and (leaves or self.role.ending):
                return
            if self._hands and (message is None or len(self._hands) >= self.plan.hold):
                await asyncio.sleep(self.random.random() * self.plan.think_s)
                await self._settle(consumer)

    def _look(self) -> None:
        """A connection was made after the last look at which it was not there."""
        if self._client.reconnects != self._reconnects:
            self._reconnects, self._connected = self._client.reconnects, self._looked
        self._looked = (self.now_s(), self._starts())

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
            self._starts(),
            *self._connected,
        )
        self.history.add(delivered)
        self.note(
            f"gets {delivered.shard}/{delivered.entry} {short(delivered.value)} attempt {delivered.attempt}"
        )
        return delivered

    async def _settle(self, consumer: headpond.Consumer) -> None:
        chance = self.random
        delivered, message = self._hands.pop(0 if chance.random() < 0.8 else chance.randrange(len(self._hands)))
        refused = chance.random() < self.plan.refuse or (message.key and message.key == self.plan.poison)
        how = "nack" if refused and not self.role.calm else chance.choice(["ack"] * 9 + ["skip"])
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
        self._look()
        for each in list(settled):
            self.history.change(each, confirmed_s=self.now_s(), confirmed_starts=self._starts())
            self._unconfirmed.remove(each)
