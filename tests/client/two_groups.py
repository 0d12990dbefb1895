"""Two groups of a cluster in this process: nodes that share a map, without NATS."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.cluster.groups import GroupMap, GroupMember
from headpond.model.errors import WrongGroup
from headpond.node.data_folder import NodeDisk
from headpond.node.server import Server, clock_us, now_us

S_MAX = 60.0
WEST = "acme/a/b/orders"
"""A topic of a tenant on group west."""


@dataclass
class TwoGroups:
    """Groups main and west; acme is on west."""

    folder: Path
    groups: dict[str, GroupMap] = field(default_factory=dict)
    """The map, as each group sees it."""
    servers: dict[str, Server] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Of group main."""
        return self.urls["main"]

    async def start(self, group: str) -> None:
        folder = self.folder / group
        folder.mkdir(exist_ok=True)
        listen = self.urls[group].removeprefix("headpond://") if group in self.urls else "127.0.0.1:0"
        settings = Settings(data=str(folder), listen=listen, cluster="nats://none", group=group)
        disk = NodeDisk(folder)
        core = NodeCore(
            disk,
            settings,
            node=group * 8,
            software="test",
            now_us=now_us,
            clock_us=clock_us,
            new_uuid=lambda: uuid.uuid4().bytes,
            elsewhere=partial(self._elsewhere, group),
        )
        server = self.servers[group] = Server(disk, core, settings)
        self.urls[group] = await server.start()

    def _elsewhere(self, group: str, tenant: str) -> WrongGroup | None:
        return self.groups[group].elsewhere(tenant, group)

    def learn(self, groups: GroupMap) -> None:
        """All groups go by a map."""
        self.groups = dict.fromkeys(self.servers, groups)

    def topics(self, group: str) -> list[str]:
        return [topic.name for topic in self.servers[group].core.stores.catalog]

    @property
    def map(self) -> GroupMap:
        found = GroupMap()
        for group, url in self.urls.items():
            found = found.add_member(group, "m1", GroupMember(url))
        return found


@asynccontextmanager
async def two_groups(folder: Path) -> AsyncIterator[TwoGroups]:
    found = TwoGroups(folder)
    for group in ("main", "west"):
        await found.start(group)
    found.learn(found.map.place("acme", "west"))
    try:
        yield found
    finally:
        for server in found.servers.values():
            await server.stop()


def with_two_groups(folder: Path, scenario: Callable[[TwoGroups], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(S_MAX), two_groups(folder) as groups:
            await scenario(groups)

    asyncio.run(run())
