"""An operator's view of all groups of a cluster, and where a tenant is placed.

A tenant is placed on another group while no other group has topics of it. The check runs twice: before the map
changes, and again when every active member goes by the new one, since a topic may be created in between. If so,
the change is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from headpond.cluster.group_watch import GroupBucket, write_map
from headpond.cluster.groups import Group, GroupMap, decode_map
from headpond.cluster.inquiry import CONNECT_S_MAX, START_HINT, GroupStatus, Inquiry, inquire, no_servers
from headpond.cluster.journal import Refused, Unreachable
from headpond.cluster.member import MemberTopics
from headpond.model.errors import BadData, GroupNotFound, NotEmpty, TimedOut, Unavailable

AGREE_S_MAX = 10.0
WRITES_MAX = 20
"""Tries to change a map that others change too."""
EMPTY_HINT = (
    "Copy them to group {to} by a link (`headpond peer add`, docs/peers.md), delete them on group {group}, and "
    "place the tenant then."
)


class GroupReport(NamedTuple):
    name: str
    entry: Group
    status: GroupStatus | None
    """None if the group has no stream."""
    topics: dict[str, int]
    """How many topics its active member has, by tenant."""


class Placed(NamedTuple):
    before: str
    """The group that had the tenant."""
    changed: bool


class GroupsInquiry:
    def __init__(self, servers: str, bucket: GroupBucket) -> None:
        self._servers = servers
        self._bucket = bucket

    async def read(self) -> tuple[int, GroupMap]:
        try:
            revision, text = await self._bucket.read_map()
            return revision, decode_map(text)
        except Unreachable as error:
            raise _unavailable(error) from error
        except msgspec.DecodeError as error:
            raise BadData(
                f"the map of groups cannot be read: {error}",
                hint="`nats kv history HEADPOND-groups map` shows the earlier ones.",
            ) from error

    async def report(self) -> tuple[GroupMap, list[GroupReport]]:
        _, groups = await self.read()
        return groups, await asyncio.gather(*(self._report(*each) for each in sorted(groups.groups.items())))

    async def _report(self, name: str, entry: Group) -> GroupReport:
        try:
            async with inquire(self._servers, name) as inquiry:
                status, serving = await asyncio.gather(inquiry.status(), inquiry.topics())
        except GroupNotFound:
            return GroupReport(name, entry, None, {})
        topics: dict[str, int] = {}
        for each in serving:
            topics |= each.topics
        return GroupReport(name, entry, status, topics)

    async def place(self, tenant: str, group: str) -> Placed:
        """Places a tenant; ``NotEmpty`` while another group has topics of it."""
        _, groups = await self.read()
        if group not in groups.groups:
            raise GroupNotFound(
                f"the cluster has no group {group}; it has {', '.join(sorted(groups.groups)) or 'none'}"
            )
        before = groups.group_of(tenant)
        if before == group:
            return Placed(before, changed=False)
        others = [name for name in groups.groups if name != group]
        await asyncio.gather(*(self._check_empty(name, tenant, group) for name in others))
        earlier = groups.tenants.get(tenant)
        revision = await self._change(lambda found: found.place(tenant, group))
        try:
            await asyncio.gather(*(self._check_empty(name, tenant, group, revision) for name in others))
        except BaseException:
            await self._change(lambda found: found.place(tenant, earlier) if earlier else found.unplace(tenant))
            raise
        return Placed(before, changed=True)

    async def _check_empty(self, group: str, tenant: str, to: str, revision: int = 0) -> None:
        """Raises ``NotEmpty`` if a group has topics of a tenant once it goes by a revision of the map."""
        try:
            async with inquire(self._servers, group) as inquiry:
                serving = await self._serving(inquiry, group, revision)
        except GroupNotFound:  # it was removed with its stream
            return
        for each in serving:
            if count := each.topics.get(tenant):
                raise NotEmpty(
                    f"group {group} has {count:,} topic{'s' if count > 1 else ''} of tenant {tenant}",
                    hint=EMPTY_HINT.format(to=to, group=group),
                )

    async def _serving(self, inquiry: Inquiry, group: str, revision: int) -> list[MemberTopics]:
        try:
            async with asyncio.timeout(AGREE_S_MAX):
                while True:
                    serving = await inquiry.topics()
                    if not serving and not revision:
                        raise Unavailable(
                            f"no member of group {group} is active: nobody can say which topics it has",
                            hint=START_HINT.format(group=group),
                        )
                    if serving and all(each.revision >= revision for each in serving):
                        return serving
        except TimeoutError:
            raise TimedOut(
                f"group {group} did not read the map within {AGREE_S_MAX:.0f} s; the tenant stays where it was",
                hint="See the log of its active member.",
            ) from None

    async def _change(self, change: Callable[[GroupMap], GroupMap]) -> int:
        """Changes the map, also while others change it; returns its revision."""
        for _ in range(WRITES_MAX):
            revision, groups = await self.read()
            try:
                return await write_map(self._bucket, change(groups), revision)
            except Refused:
                continue
            except Unreachable as error:
                raise _unavailable(error) from error
        raise TimedOut("others change the map of groups all the time", hint="Try again in a moment.")


def _unavailable(error: Unreachable) -> Unavailable:
    return Unavailable(
        f"the map of groups does not answer: {error}",
        hint="More than half of the NATS servers must run and reach each other.",
    )


@asynccontextmanager
async def inquire_groups(servers: str) -> AsyncIterator[GroupsInquiry]:
    from headpond.cluster.jetstream import JetStream  # a node that is alone loads nothing of NATS

    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            bucket = await JetStream.connect_bucket(servers)
    except TimeoutError:
        raise no_servers(servers) from None
    try:
        yield GroupsInquiry(servers, bucket)
    finally:
        await bucket.close()
