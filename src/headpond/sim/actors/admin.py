"""An administrator: pauses and moves subscriptions, compacts, creates and deletes topics, renews tokens."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa

import headpond
from headpond.model.errors import SchemaMismatch
from headpond.sim.actors.program import Program, Role, value_of
from headpond.sim.history import Broken, Revoked, Seek
from headpond.sim.plan import AdminPlan, Plan, SubscriptionPlan

RIGHTS = ("produce", "consume", "admin")


class AdminProgram(Program):
    def __init__(self, role: Role, life: int, mine: AdminPlan, plan: Plan, url: str) -> None:
        super().__init__(role, life)
        self.mine = mine
        self.plan = plan
        self.url = url

    async def run(self) -> None:
        works: dict[str, Callable[[headpond.Client], Coroutine[Any, Any, None]]] = {
            "pause": self._pause,
            "seek": self._seek,
            "compact": self._compact,
            "create and delete": self._create_and_delete,
            "new token": self._new_token,
            "alter": self._alter,
        }
        async with self.connect(self.url) as client:
            while not self.role.ending:
                await self.rest(self.random.random() * self.mine.pause_s)
                await works[self.random.choice(self.mine.works)](client)

    def _subscription(self) -> SubscriptionPlan | None:
        here = [each for each in self.plan.subscriptions if each.node == self.mine.node]
        return self.random.choice(here) if here else None

    async def _pause(self, client: headpond.Client) -> None:
        if (subscription := self._subscription()) is not None:
            self.note(f"pauses {subscription.name}")
            await client.admin.pause(subscription.topic, subscription.name)
            await self.rest(self.random.random() * self.mine.pause_s)
            await client.admin.resume(subscription.topic, subscription.name)
            self.note(f"has resumed {subscription.name}")

    async def _seek(self, client: headpond.Client) -> None:
        if (subscription := self._subscription()) is not None:
            seek = Seek(subscription.name, self.now_s())
            self.history.add(seek)
            self.note(f"moves {subscription.name} to the begin")
            await client.admin.seek(subscription.topic, subscription.name, "earliest")
            seek.done_s = self.now_s()

    async def _compact(self, client: headpond.Client) -> None:
        for topic in self.plan.topics:
            if topic.kind == "state":
                self.note(f"compacts {topic.name}: {await client.admin.compact_topic(topic.name)}")

    async def _alter(self, client: headpond.Client) -> None:
        """Gives a typed topic one more column."""
        for topic in self.plan.topics:
            if topic.kind == "typed":
                schema = typed_schema(self.random.randrange(20))
                try:
                    await client.admin.alter_topic(topic.name, schema=schema)
                except SchemaMismatch:  # it has more columns already
                    continue
                self.note(f"gives {topic.name} {len(schema)} columns")

    async def _create_and_delete(self, client: headpond.Client) -> None:
        """A topic that is created again has nothing of the one before, unless a link brings it back."""
        name = f"{self}-{self.random.randrange(3)}".replace("#", "-")
        await client.admin.create_topic(name, exist_ok=True)
        await client.admin.delete_topic(name)
        await client.admin.create_topic(name)
        async with client.producer(name, refill=None, wait=5.0) as producer:
            await producer.send(b"new")
        async with client.reader(name) as reader:
            part = await reader.fetch(0, 0)
        values = [value_of(message) for batch in part.batches for message in batch.messages()]
        brought = any(link.both for link in self.plan.links)
        if values != [b"new"] and not (brought and b"new" in values):
            self.history.add(Broken(f"topic {name} was created again and has {values}"))
        await client.admin.delete_topic(name)
        self.note(f"has created and deleted {name}")

    async def _new_token(self, client: headpond.Client) -> None:
        """Gives a program a new token, and revokes the old one."""
        tokens = self.role.tokens
        if not tokens:
            return
        name = self.random.choice(
            [name for name in sorted(tokens) if name not in (self.name, "observer", "link")]
        )
        old, _ = tokens[name]
        title = f"{name} {self.random.randrange(1 << 30)}"
        made = await client.admin.create_token(title, rights=RIGHTS, scopes=["*"])
        tokens[name] = (made.info.token, made.secret)
        revoked = Revoked(old)
        self.history.add(revoked)
        self.note(f"revokes the token of {name}")
        await client.admin.revoke_token(old)
        revoked.done_s = self.now_s()


def typed_schema(more: int = 0) -> pa.Schema:
    """Columns of a typed topic, and ``more`` that it gets later."""
    return pa.schema([("text", pa.binary()), *((f"more{number}", pa.int64()) for number in range(more))])
