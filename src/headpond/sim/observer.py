"""The observer: it prepares the nodes, waits after healing until everything is done, and reads the logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import headpond
from headpond.model.errors import HeadpondError
from headpond.sim.actors.admin import RIGHTS, typed_schema
from headpond.sim.actors.program import value_of
from headpond.sim.cast import Cast
from headpond.sim.history import Accounts, Gone, History, Read
from headpond.sim.plan import LinkPlan, Plan, TopicPlan

LIVENESS_S = 600.0
"""After healing everything is delivered within so long."""
LOOK_S = 2.0
"""How often the observer looks whether it is."""
NOTICED_S = 40.0
"""A link whose other node lost its power notices within this time that its connection is dead; until then it
does not know that it is behind."""
NAME = "observer"
LINK = "link"


class Stuck(Exception):
    """What should have happened after healing did not."""


class Observer:
    def __init__(self, cast: Cast, plan: Plan) -> None:
        self._cast = cast
        self._plan = plan

    @asynccontextmanager
    async def _connected(self, node: str) -> AsyncIterator[headpond.Client]:
        token = self._cast.tokens[node].get(NAME, ("", None))[1]
        async with headpond.connect(self._cast.nodes[node].url, token=token) as client:
            yield client

    # --- before the faults --------------------------------------------------------------------------

    async def prepare(self) -> None:
        for node in self._plan.nodes:
            if self._plan.tokens:
                await self._create_tokens(node)
            async with self._connected(node) as client:
                for topic in self._plan.topics:
                    await create_topic(client, topic, self._plan.producer_lease_s)
        for link in self._plan.links:
            await self._add(link)

    async def _create_tokens(self, node: str) -> None:
        """The first token closes a node to those without one."""
        names = [NAME, LINK, *(actor.name for actor in self._cast.actors)]
        for name in names:
            async with self._connected(node) as client:
                made = await client.admin.create_token(name, rights=RIGHTS, scopes=["*"])
                self._cast.tokens[node][name] = (made.info.token, made.secret)

    async def _add(self, link: LinkPlan) -> None:
        async with self._connected(link.node) as client:
            await client.admin.add_peer(
                self._cast.nodes[link.other].url,
                ["*"],
                direction="both" if link.both else "pull",
                name=LINK,
                token=self._cast.tokens[link.other].get(LINK, ("", None))[1],
                subscriptions=["*"] if link.subscriptions else [],
            )

    # --- after the faults ---------------------------------------------------------------------------

    async def wait_settled(self) -> None:
        """Returns when links have copied everything and every subscription has settled everything."""
        over_s = self._cast.loop.time() + LIVENESS_S
        if self._plan.links:
            await asyncio.sleep(NOTICED_S)
        while left := [*await self._unsettled(), *await self._behind()]:
            if self._cast.loop.time() > over_s:
                raise Stuck(f"after healing, not settled: {left}")
            await asyncio.sleep(LOOK_S)

    async def _unsettled(self) -> list[str]:
        left = []
        for plan in self._plan.subscriptions:
            try:
                async with self._connected(plan.node) as client:
                    info = await client.admin.show_subscription(plan.topic, plan.name)
                    if info.paused:
                        await client.admin.resume(plan.topic, plan.name)
            except HeadpondError as error:
                left.append(f"{plan.name}: {error.message}")
            else:
                if info.unsettled:
                    left.append(f"{plan.kind} {plan.mode} {plan.name}: {info}")
        return left

    async def _behind(self) -> list[str]:
        """Links that have not copied everything, and passive subscriptions that lack settlements."""
        left = []
        for link in self._plan.links:
            try:
                async with self._connected(link.node) as client:
                    info = await client.admin.show_peer(LINK)
                    copies = await client.admin.list_subscriptions()
            except HeadpondError as error:
                left.append(f"{LINK}: {error.message}")
            else:
                deleted = "peer-barred"  # on the node that should get a copy
                waiting = any(each.lag for each in info.topic_list if each.code != deleted)
                left += [f"{LINK}: {info}"] if info.state != "connected" or waiting else []
                left += [f"at {link.node}: {copy}" for copy in copies if copy.unsettled]
        return left

    async def read_all(self) -> None:
        for node in self._plan.nodes:
            async with self._connected(node) as client:
                for info in await client.admin.list_topics():
                    topic = info.topic.rpartition("/")[2]
                    if topic.startswith("t"):
                        dead = topic.endswith(".dead") and self._plan.topic(topic).kind == "typed"
                        await read_topic(client, topic, node, self._cast.history, as_json=dead)


async def read_topic(
    client: headpond.Client, topic: str, node: str, history: History, *, as_json: bool = False
) -> None:
    """Notes what a topic has in the end, and its ledger; values may be rows ``as_json``."""
    async with client.reader(topic) as reader:
        for shard, ends in enumerate(await reader.ends()):
            async for part in reader.read(shard, 0, ends.entry_next):
                for batch in part.batches:
                    for message in batch.messages():
                        value = value_of(message)
                        value = json.loads(value)["text"].encode() if as_json else value
                        history.add(Read(topic, node, shard, message.entry, value, message.key))
                for lost in part.lost:
                    history.add(Gone(topic, node, *lost))
    history.add(Accounts(topic, node, await client.admin.ledger(topic)))


async def create_topic(client: headpond.Client, topic: TopicPlan, producer_lease_s: float) -> None:
    await client.admin.create_topic(
        topic.name,
        shards=topic.shards,
        schema=typed_schema() if topic.kind == "typed" else None,
        state=topic.kind == "state",
        exist_ok=True,
        settings={
            "producer_lease": producer_lease_s,
            **({} if topic.soft_ttl is None else {"soft_ttl": topic.soft_ttl}),
        },
    )
