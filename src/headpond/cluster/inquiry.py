"""Questions to the members of a group, by an operator who is none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from headpond.cluster.apply import Position
from headpond.cluster.journal import StreamState, Unreachable
from headpond.cluster.member import AskStatus, AskSwitch, AskTopics, MemberStatus, MemberTopics
from headpond.cluster.reseed import ReseedJournal, reseed
from headpond.model.errors import TimedOut, Unavailable
from headpond.storage.disk import Disk

CONNECT_S_MAX = 10.0
"""Longer than an election of the servers takes."""
ANSWER_S = 1.0
POLL_S = 0.25

START_HINT = "Start its members: headpond node --cluster URL --group {group} --member NAME --data DIR."


class GroupStatus(NamedTuple):
    members: list[MemberStatus]
    """Those that answer, by name."""
    stream: StreamState

    @property
    def active(self) -> MemberStatus | None:
        """With the highest epoch, if two members call themselves active: the other one will notice."""
        active = [each for each in self.members if each.role == "active"]
        return max(active, key=lambda each: each.epoch, default=None)

    def lag(self, member: MemberStatus) -> int:
        """Records of the stream that the folder of a member lacks."""
        return max(0, self.stream.last_seq - member.seq)


class Switch(NamedTuple):
    before: MemberStatus
    after: MemberStatus
    seconds: float


class Inquiry:
    def __init__(self, journal: ReseedJournal, group: str) -> None:
        self._journal = journal
        self._group = group

    async def status(self) -> GroupStatus:
        try:
            members, stream = await asyncio.gather(self._members(ANSWER_S), self._journal.state())
        except Unreachable as error:
            raise self._unavailable(error) from error
        return GroupStatus(members, stream)

    async def _members(self, answer_s: float) -> list[MemberStatus]:
        answers = await self._journal.ask_all(msgspec.msgpack.encode(AskStatus()), answer_s)
        members = [msgspec.msgpack.decode(each, type=MemberStatus) for each in answers]
        return sorted(members, key=lambda each: each.member)

    async def topics(self) -> list[MemberTopics]:
        """The topics of the members that serve clients: one, or two during a takeover."""
        answers = await self._journal.ask_all(msgspec.msgpack.encode(AskTopics()), ANSWER_S)
        members = [msgspec.msgpack.decode(each, type=MemberTopics) for each in answers]
        return [each for each in members if each.serves]

    async def switch(self, timeout_s: float) -> Switch:
        """The active member releases its place; returns when another one is active."""
        status = await self.status()
        before = status.active
        if before is None:
            raise Unavailable(
                f"no member of group {self._group} is active",
                hint=START_HINT.format(group=self._group) if not status.members else "Try again in a moment.",
            )
        if not any(each.role == "standby" for each in status.members):
            raise Unavailable(
                f"{before.member} is active, and no standby of group {self._group} could take over",
                hint=START_HINT.format(group=self._group),
            )
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await self._journal.ask(before.member, msgspec.msgpack.encode(AskSwitch()), ANSWER_S)
            async with asyncio.timeout(timeout_s):
                after = await self._active_after(before)
        except (Unreachable, TimeoutError) as error:
            raise TimedOut(
                f"no other member of group {self._group} than {before.member} is active after "
                f"{loop.time() - began_s:.0f} s",
                hint="See `headpond cluster show` and the logs of the members.",
            ) from error
        return Switch(before, after, loop.time() - began_s)

    async def reseed(self, disk: Disk, position: Position, members: list[MemberStatus]) -> Position:
        """Makes a folder the content of the group; returns its next position."""
        try:
            return await reseed(self._journal, disk, position, [each.seq for each in members])
        except Unreachable as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Unreachable) -> Unavailable:
        return Unavailable(
            f"the stream of group {self._group} does not answer: {error}",
            hint="More than half of the NATS servers must run and reach each other.",
        )

    async def _active_after(self, before: MemberStatus) -> MemberStatus:
        while True:
            for each in await self._members(POLL_S):
                if each.role == "active" and each.epoch > before.epoch:
                    return each


@asynccontextmanager
async def inquire(servers: str, group: str) -> AsyncIterator[Inquiry]:
    """Connects to the servers of a group that exists."""
    from headpond.cluster.jetstream import JetStream  # a node that is alone loads nothing of NATS

    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            journal = await JetStream.connect(servers, group, "operator", create=False)
    except TimeoutError:
        raise no_servers(servers) from None
    try:
        yield Inquiry(journal, group)
    finally:
        await journal.close()


def no_servers(servers: str) -> Unavailable:
    """Names the servers without their password."""
    from headpond.cluster.jetstream import Servers

    return Unavailable(
        f"no NATS server answers at {Servers.parse(servers)}",
        hint="Name the servers with --cluster, as in nats://a:4222,b:4222,c:4222. More than half of them "
        "must run and reach each other.",
    )
