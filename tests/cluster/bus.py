"""A stream in memory, and members of a group on it, for tests of what members tell each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headpond.cluster.journal import Handler, Refused, StreamState, Unreachable
from headpond.cluster.member import Member, MemberTopics
from headpond.cluster.records import ActiveMember
from tests.cluster.folders import FolderDisk


class Bus:
    """Confirms every record at once, and passes on every word."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.journals: list[BusJournal] = []
        self.reachable = True
        """Whether the stream's leader answers."""
        self.full = False
        """Whether the stream takes no record until it is trimmed."""

    def member(
        self, name: str, instance: str, *, disk: FolderDisk | None = None, rest_s: float = 0.0
    ) -> Member:
        me = ActiveMember(name, f"headpond://{name}:7411")
        return Member(
            BusJournal(self, name),
            disk or FolderDisk(),
            me,
            at_once,
            is_there,
            instance=instance,
            version="1.0",
            topics=lambda: MemberTopics(name, False),
            rest_s=rest_s,
        )


class BusJournal:
    """One member's end of a bus."""

    def __init__(self, bus: Bus, member: str) -> None:
        self.member = member
        self.handler: Handler | None = None
        self.on_news: Callable[[bytes], None] | None = None
        self.deaf = False
        """It hears no answers of others."""
        self._bus = bus
        bus.journals.append(self)

    def append(self, record: bytes, expected_seq: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if expected_seq != len(self._bus.records):
            future.set_exception(Refused(Refused.WRONG_LAST, "wrong last sequence"))
            future.exception()
        elif self._bus.full:
            future.set_exception(Refused(Refused.FULL, "maximum bytes exceeded"))
            future.exception()
        elif self._bus.reachable:
            self._bus.records.append(record)
            future.set_result(len(self._bus.records))
        return future

    async def read(self, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        return list(enumerate(self._bus.records[seq - 1 :], seq))

    async def read_leader(self, seq: int) -> bytes | None:
        return self._bus.records[seq - 1]

    async def state(self) -> StreamState:
        if not self._bus.reachable:
            raise Unreachable("no leader")
        size = sum(map(len, self._bus.records)) if not self._bus.full else 1 << 30
        return StreamState(1, len(self._bus.records), size, 1 << 30, "n1", {"n1": "leader", "n2": "current"})

    async def trim(self, upto_seq: int) -> None:
        """Removes nothing, and makes room."""
        self._bus.full = False

    async def ask(self, member: str, question: bytes, timeout_s: float) -> bytes:
        (handler,) = [each.handler for each in self._bus.journals if each.member == member and each.handler]
        return await handler(question)

    async def ask_all(self, question: bytes, timeout_s: float) -> list[bytes]:
        await asyncio.sleep(0.01)
        heard = [each for each in self._bus.journals if not self.deaf or each is self]
        return [await each.handler(question) for each in heard if each.handler is not None]

    async def answer(self, handler: Handler, on_news: Callable[[bytes], None]) -> None:
        self.handler, self.on_news = handler, on_news

    def tell(self, news: bytes) -> None:
        for each in self._bus.journals:
            if each.on_news is not None:
                asyncio.get_running_loop().call_soon(each.on_news, news)

    async def close(self) -> None:
        self._bus.journals.remove(self)


async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


async def is_there(member: ActiveMember) -> bool:
    """An address never refuses connections."""
    return False
