"""A member's view of the map of groups: it reads the map when that changes, and keeps its own entry in it.

A member that cannot read the map keeps the one that it has. Before it has read one, it serves nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headpond.cluster.groups import MAP_BYTES_MAX, GroupMap, GroupMember, decode_map, encode_map
from headpond.cluster.journal import Refused, Unreachable
from headpond.cluster.member import Member
from headpond.model.errors import LimitReached, WrongGroup

logger = logging.getLogger("headpond.cluster")

READ_AGAIN_S = 10.0
"""Without news of a change: news can get lost."""
RETRY_S = 1.0


class GroupBucket(Protocol):
    """The bucket with the map; ``jetstream.py`` has the real one."""

    async def read_map(self) -> tuple[int, bytes]:
        """The map and its revision; 0 and nothing if there is none. ``Unreachable`` without an answer."""

    async def write_map(self, text: bytes, revision: int) -> int:
        """Replaces the map of a revision, and tells all members; returns the next revision.

        ``Refused`` if the map has another revision, ``Unreachable`` without an answer: it may be written.
        """

    async def watch_map(self, on_change: Callable[[], None]) -> None:
        """From now on ``on_change`` is called when the map may have changed."""


async def write_map(bucket: GroupBucket, groups: GroupMap, revision: int) -> int:
    text = encode_map(groups)
    if len(text) > MAP_BYTES_MAX:
        raise LimitReached(
            f"the map of groups would have {len(text):,} bytes; the limit is {MAP_BYTES_MAX:,}",
            hint="Leave tenants of group main without an entry: they are there without one.",
        )
    return await bucket.write_map(text, revision)


class GroupWatch:
    def __init__(
        self,
        bucket: GroupBucket,
        group: str,
        member: Member,
        entry: GroupMember,
        topics: Callable[[], Mapping[str, int]],
    ) -> None:
        """``topics``: how many topics of each tenant this member has, while it serves."""
        self.revision = 0
        """Of the map that it has."""
        self.known = asyncio.Event()
        """Set once it has read a map."""
        self._map = GroupMap()
        self._bucket = bucket
        self._group = group
        self._member = member
        self._entry = entry
        self._topics = topics
        self._changed = asyncio.Event()

    def elsewhere(self, tenant: str) -> WrongGroup | None:
        """The error for a tenant on another group."""
        return self._map.elsewhere(tenant, self._group)

    def look(self) -> None:
        """Reads the map soon."""
        self._changed.set()

    async def run(self) -> None:
        """Follows the map until it is cancelled."""
        await self._bucket.watch_map(self.look)
        while True:
            self._changed.clear()
            wait_s = READ_AGAIN_S
            try:
                await self._refresh()
            except Refused:  # somebody else changed the map
                continue
            except (Unreachable, LimitReached) as error:
                logger.warning("the map of groups: %s; trying again", error)
                wait_s = RETRY_S
            except msgspec.DecodeError as error:
                logger.error("the map of groups cannot be read: %s; using the last one", error)
            except Exception:
                logger.exception("the map of groups; trying again")
            await _wait(self._changed, wait_s)

    async def _refresh(self) -> None:
        revision, text = await self._bucket.read_map()
        if revision < self.revision:  # of a server that is behind
            return
        self._take(revision, decode_map(text))
        me, group = self._member.me.member, self._group
        await self._change(self._map.add_member(group, me, self._entry))
        self.known.set()
        if self._member.role == "active":
            if self._map.groups[group].active != me:
                there = {each.member for each in await self._member.ask_status()}
                await self._change(self._map.set_active(group, me, {me, *there}))
            await self._change(self._map.claim(group, self._topics()))

    async def _change(self, wanted: GroupMap) -> None:
        if wanted != self._map:
            self._take(await write_map(self._bucket, wanted, self.revision), wanted)

    def _take(self, revision: int, groups: GroupMap) -> None:
        if groups.tenants != self._map.tenants:
            logger.info("the map of groups has revision %d: %s", revision, groups.tenants)
        self.revision, self._map = revision, groups


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
