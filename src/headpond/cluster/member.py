"""One member of a group, from its start to its end: standby, active, and its answers to the other members.

The owner of a member calls ``become_active``, opens a node on ``active.disk``, and serves it until
``active.ended``. Then the process ends, and begins again as a standby.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

import msgspec

from headpond.cluster.active import Active
from headpond.cluster.apply import Applier, Position, load_position, save_position
from headpond.cluster.copy import BeginCopy, CopyQuestion, CopySource, EndCopy, ListCopy, ReadCopy, fetch_copy
from headpond.cluster.journal import Journal, StreamState, Unreachable
from headpond.cluster.records import ActiveMember
from headpond.cluster.standby import InThread, Refuses, Standby, Trimmed
from headpond.model.errors import BadData, MemberExists, NotActive
from headpond.storage.disk import MeasuredDisk

logger = logging.getLogger("headpond.cluster")

TRIM_S = 5.0
ASK_S = 2.0
JOIN_S = 1.0
"""For so long a member that begins waits for the answer of the active one."""
COPY_ASK_S = 10.0
COPY_AGAIN_S = 1.0
DURABLE_MEMBERS = 2
"""A record leaves the stream when so many members have it synced in their folders."""
KEPT = 0.3
"""The share of the stream's room that is not trimmed: a member that was away for a while needs no copy."""
CROWDED = 0.6
"""The share of the stream's room from which on it keeps no records for a member that copies a folder."""
FULL = 0.9
"""The share of the stream's room that messages may fill; the rest is for records of the cluster itself."""

Result = TypeVar("Result")
Role = Literal["starting", "copying", "standby", "active"]
STAYS: tuple[Role, ...] = ("active", "standby", "copying", "starting")
"""Of two processes with one member's name, the one whose role comes first here stays."""


class AskStatus(msgspec.Struct, tag="status"):
    """Answered by a ``MemberStatus``."""


class AskSwitch(msgspec.Struct, tag="switch"):
    """The active member releases its place; answered by a ``MemberStatus``."""


class AskTopics(msgspec.Struct, tag="topics"):
    """Answered by a ``MemberTopics``."""


Question = AskStatus | AskSwitch | AskTopics | CopyQuestion
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


class MemberStatus(msgspec.Struct):
    member: str
    role: Role
    url: str
    http: str
    epoch: int
    seq: int
    """The last record that its folder has."""
    durable_seq: int
    """The last record of its last checkpoint."""
    doubts: int = 0
    void: int = 0
    active: str = ""
    """The member that it takes for the active one."""
    needs_seq: int = 0
    """While it copies a folder: the first record that it will need; 0: none."""
    instance: str = ""
    """Another one in each run, in the order of their starts."""
    version: str = ""
    """Of Headpond."""
    lag_s: float | None = None
    """Of a standby: since when it does not have every record that the active member has."""
    takeovers: int = 0
    """How often it became active in this run."""
    applied: int = 0
    """Records applied to its folder in this run."""
    appended: int = 0
    """Records that the stream confirmed to it in this run."""
    appended_bytes: int = 0
    append_s: float = 0.0
    """The sum of the times that these took."""
    certain: bool = False
    """Whether no other member can be active."""


class MemberTopics(msgspec.Struct):
    """What a member that serves clients has of each tenant."""

    member: str
    serves: bool
    revision: int = 0
    """Of the map of groups that it goes by."""
    topics: dict[str, int] = {}
    """How many, by tenant."""


class News(msgspec.Struct, tag="n", array_like=True):
    """How far a member is."""

    member: str
    active: bool
    seq: int
    instance: str = ""


class Member:
    def __init__(
        self,
        journal: Journal,
        disk: MeasuredDisk,
        me: ActiveMember,
        in_thread: InThread,
        refuses: Refuses,
        *,
        instance: str,
        version: str,
        topics: Callable[[], MemberTopics],
        rest_s: float = 0.0,
        waits: bool = True,
    ) -> None:
        """``instance`` is another one in each run, in the order of their starts; ``version`` is Headpond's.

        ``rest_s``: for so long it leaves it to others to become active.
        """
        self.me = me
        self.role: Role = "starting"
        self.active: Active | None = None
        self.switch_wanted = asyncio.Event()
        """Another member should become the active one."""
        self.stream: StreamState | None = None
        """As last measured by the active member."""
        self._journal = journal
        self._disk = disk
        self._in_thread = in_thread
        self._refuses = refuses
        self._topics = topics
        self._instance = instance
        self._version = version
        self._rest_s = rest_s
        self._waits = waits
        self._applier: Applier | None = None
        self._standby: Standby | None = None
        self._copies = CopySource(disk)
        self._needs_seq = 0
        self._trimming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        """For another process with its name."""

    @property
    def active_member(self) -> ActiveMember | None:
        """Who is active, as far as this member knows."""
        if self.role == "active":
            return self.me
        return self._applier.position.active if self._applier is not None else None

    def not_active(self) -> NotActive:
        """The answer to a client of a member that is not the active one."""
        active = self.active_member
        at = f"; {active.member} is active" if active is not None else ""
        error = NotActive(f"{self.me.member} is a standby of its group{at}")
        error.successor = active.url if active is not None else ""
        return error

    async def become_active(self, on_certain: Callable[[], None], *, standby: bool = False) -> Active:
        """Follows the stream until this member is the active one. ``MemberExists`` if another has its name."""
        await self._journal.answer(self._answer, self._on_news)
        self._check_name(await self.ask_status(JOIN_S))
        self._trimming = asyncio.get_running_loop().create_task(self._trim())
        position = await self._open()
        while True:
            self._applier = Applier(self._disk, position)
            self._standby = Standby(
                self._journal,
                self._applier,
                self.me,
                self._in_thread,
                self._refuses,
                self._tell,
                rest_s=self._rest_s,
            )
            self.role = "standby"
            self._needs_seq = 0
            try:
                await self._standby.follow()
                break
            except Trimmed as error:
                logger.warning("%s; copying the folder of another member", error)
                self._applier.close()
                position = await self._copy()
        self.role = "active"
        self.active = Active(
            self._journal,
            self._disk,
            self._applier,
            self._in_thread,
            on_certain,
            self._news,
            proven_s=self._standby.tried_s,
            standby=standby,
            waits=self._waits,
        )
        if self._standby.stream is not None:
            self._note_stream(self.active, self._standby.stream)
        return self.active

    async def _open(self) -> Position:
        """The position of the folder; a folder without one is filled."""
        position: Position | None = await self._in_thread(load_position, self._disk)
        if position is not None:
            return position
        state = None
        while state is None:
            try:
                state = await self._journal.state()
            except Unreachable as error:
                logger.info("waiting for the stream: %s", error)
                await asyncio.sleep(COPY_AGAIN_S)
        if state.first_seq > 1:
            return await self._copy()
        if self._disk.exists("NODE"):
            raise BadData(
                "the data folder belongs to a node without a cluster",
                hint="Start with an empty folder; a link (`headpond peer add`) copies topics to a cluster.",
            )
        position = Position()
        await self._in_thread(save_position, self._disk, position)
        return position

    # --- another process with this member's name ----------------------------------------------------

    def _check_name(self, members: list[MemberStatus]) -> None:
        """Raises ``MemberExists`` if another process has this member's name, and this one is to end."""
        mine = self.status()
        named = [each for each in members if each.member == mine.member]
        for other in [each for each in named if each.instance not in ("", mine.instance)]:
            is_replaced = other.role == "active" and other.epoch < mine.epoch  # it will notice
            if not is_replaced and _precedence(other) < _precedence(mine):
                raise MemberExists(
                    f"another process is member {mine.member} of this group; clients reach it at {other.url}"
                )

    async def _look_for_namesake(self) -> None:
        """News may be late, and of a process that has ended; an answer is not."""
        try:
            self._check_name(await self.ask_status(JOIN_S))
        except MemberExists as error:
            if self._standby is not None:
                self._standby.fail(error)
        finally:
            self._looking = None

    # --- copies -------------------------------------------------------------------------------------

    async def _copy(self) -> Position:
        self.role = "copying"
        while True:
            members = [each for each in await self.ask_status() if each.role in ("standby", "active")]
            members = [each for each in members if each.member != self.me.member]
            members.sort(key=lambda each: (each.role == "active", -each.seq))
            for source in members:
                try:
                    ask = partial(self._ask, source.member)
                    return await fetch_copy(self._disk, ask, self._copy_begun)
                except (Unreachable, msgspec.DecodeError) as error:
                    logger.warning("the copy of %s ended: %s", source.member, error)
            await asyncio.sleep(COPY_AGAIN_S)

    def _copy_begun(self, position: Position) -> None:
        self._needs_seq = position.seq + 1

    async def _ask(self, member: str, question: CopyQuestion) -> bytes:
        return await self._journal.ask(member, msgspec.msgpack.encode(question), COPY_ASK_S)

    # --- questions and news -------------------------------------------------------------------------

    async def ask_status(self, timeout_s: float = ASK_S) -> list[MemberStatus]:
        """The status of every member that answers."""
        answers = await self._journal.ask_all(msgspec.msgpack.encode(AskStatus()), timeout_s)
        return [msgspec.msgpack.decode(each, type=MemberStatus) for each in answers]

    async def ask_stream(self) -> StreamState:
        """``Unreachable`` without an answer."""
        return await self._journal.state()

    async def read_folder(self, read: Callable[[MeasuredDisk], Result]) -> Result:
        """Calls ``read`` between two records."""
        found: Result = await self._in_thread(read, self._disk)
        return found

    def status(self) -> MemberStatus:
        at = self._applier.position if self._applier is not None else Position()
        durable = self._applier.checkpointed if self._applier is not None else Position()
        active = self.active_member
        return MemberStatus(
            self.me.member,
            self.role,
            self.me.url,
            self.me.http,
            at.epoch,
            at.seq,
            durable.seq,
            self.active.doubts if self.active is not None else 0,
            self._applier.void if self._applier is not None else 0,
            active.member if active is not None else "",
            self._needs_seq,
            self._instance,
            self._version,
            self._standby.lag_s if self._standby is not None and self.role == "standby" else None,
            int(self.active is not None),
            self._applier.applied if self._applier is not None else 0,
            *(
                (self.active.appended, self.active.appended_bytes, self.active.append_s, self.active.certain)
                if self.active is not None
                else ()
            ),
        )

    async def _answer(self, question: bytes) -> bytes:
        ask = _question.decode(question)
        if isinstance(ask, BeginCopy):
            assert self._applier is not None
            return msgspec.msgpack.encode(await self._in_thread(self._begin_copy))
        if isinstance(ask, ListCopy):
            return msgspec.msgpack.encode(self._copies.names(ask))
        if isinstance(ask, ReadCopy):
            part: bytes = await self._in_thread(self._copies.read, ask)
            return part
        if isinstance(ask, EndCopy):
            self._copies.end()
            return b""
        if isinstance(ask, AskTopics):
            return msgspec.msgpack.encode(self._topics())
        if isinstance(ask, AskSwitch):
            self.switch_wanted.set()
        return msgspec.msgpack.encode(self.status())

    def _begin_copy(self) -> object:
        """In the thread that applies records, so between two of them."""
        assert self._applier is not None
        return self._copies.begin(self._applier.position)

    def _news(self, seq: int) -> bytes:
        return msgspec.msgpack.encode(News(self.me.member, self.role == "active", seq, self._instance))

    def _tell(self, seq: int) -> None:
        self._journal.tell(self._news(seq))

    def _on_news(self, text: bytes) -> None:
        news = msgspec.msgpack.decode(text, type=News)
        if news.member == self.me.member:
            if news.instance not in ("", self._instance) and self._looking is None:
                self._looking = asyncio.get_running_loop().create_task(self._look_for_namesake())
            return
        if self.active is not None and not news.active:
            self.active.standby_applied(news.seq)
        elif self._standby is not None and news.active:
            self._standby.on_news(news.seq)

    # --- the stream's room --------------------------------------------------------------------------

    async def _trim(self) -> None:
        """Removes records that enough members have for good, and measures the room of the stream.

        The active member does it. A stream without room takes no EPOCH record, so then every member does.
        """
        while self.active is None or not self.active.ended.done():
            await asyncio.sleep(TRIM_S)
            try:
                state = await self._journal.state()
                if self.active is not None:
                    self._note_stream(self.active, state)
                if state.bytes <= state.bytes_max * (FULL if self.active is None else KEPT):
                    continue
                upto_seq = trim_to(await self.ask_status(), full=state.bytes > state.bytes_max * CROWDED)
                if upto_seq >= state.first_seq:
                    await self._journal.trim(upto_seq)
            except Unreachable as error:
                logger.info("the stream is not trimmed: %s", error)

    def _note_stream(self, active: Active, state: StreamState) -> None:
        self.stream = state
        active.disk.note_room(int(state.bytes_max * FULL) - state.bytes)

    async def close(self) -> None:
        """After the active member has ended, or instead of becoming active."""
        for task in (self._trimming, self._looking):
            if task is not None:
                task.cancel()
        self._copies.end()
        await self._journal.close()


def _precedence(member: MemberStatus) -> tuple[int, str]:
    return STAYS.index(member.role), member.instance


def trim_to(members: list[MemberStatus], *, full: bool) -> int:
    """The last record that enough members have for good; 0 if none.

    A member that copies a folder keeps the records that it will need, unless the stream is getting ``full``.
    """
    durable_seqs = sorted(each.durable_seq for each in members)
    if len(durable_seqs) < DURABLE_MEMBERS:
        return 0
    needed = [each.needs_seq - 1 for each in members if each.needs_seq and not full]
    return min([durable_seqs[-DURABLE_MEMBERS], *needed])
