"""The stream of a group, as its members use it: what JetStream promises, and no more.

``jetstream.py`` is the real one, ``sim/jetstream.py`` the simulated one. A record's sequence is its place in
the stream, from 1 on. Every answer may be lost, late or out of date; the machines of this package decide what
that means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from headpond.cluster.records import RECORD_BYTES_MAX as RECORD_BYTES_MAX

Handler = Callable[[bytes], Awaitable[bytes]]
"""Answers a question of another member; an exception leaves it without an answer."""


class Unreachable(Exception):
    """No server answered in time, or the stream has no leader."""


class Refused(Exception):
    """The server answered and did not store the record."""

    FULL = 10077
    """The stream is full."""
    WRONG_LAST = 10071
    """The stream's end is not where the record expected it; also behind a record that was refused as FULL."""
    WRONG_LAST_BESIDE_ANOTHER = 10164
    """The same for one subject, while the servers store another record of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


@dataclass(frozen=True)
class StreamState:
    """The stream as its leader, or a server that was the leader, sees it."""

    first_seq: int
    """Of the oldest record that it holds; last_seq + 1 if it holds none."""
    last_seq: int
    bytes: int
    bytes_max: int
    leader: str = ""
    replicas: dict[str, str] = field(default_factory=dict)
    """By server: its state in words, such as "leader", "current" or "3 behind"."""


class Journal(Protocol):
    """One member's connection to the stream of its group. It reconnects by itself, for ever."""

    def append(self, record: bytes, expected_seq: int) -> asyncio.Future[int]:
        """Sends a record that must become number ``expected_seq + 1``; appends are sent in the order of calls.

        The future has the record's sequence once a quorum has it on disk, or ``Refused``. It may never end: a
        lost answer says nothing about the record.
        """

    async def read(self, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Records from ``seq`` on, in order, as any replica has them; empty if that has none yet.

        The first one has a higher sequence than ``seq`` if older records were trimmed.
        """

    async def read_leader(self, seq: int) -> bytes | None:
        """One record as the leader has it; None if it has none. ``Unreachable`` without an answer."""

    async def state(self) -> StreamState:
        """``Unreachable`` without an answer."""

    async def trim(self, upto_seq: int) -> None:
        """Removes the records up to and including ``upto_seq``. ``Unreachable`` without an answer."""

    async def ask(self, member: str, question: bytes, timeout_s: float) -> bytes:
        """The answer of one member. ``Unreachable`` without one."""

    async def ask_all(self, question: bytes, timeout_s: float) -> list[bytes]:
        """The answers of all members that answer in time, this one included."""

    async def answer(self, handler: Handler, on_news: Callable[[bytes], None]) -> None:
        """From now on this member answers questions, at most ``RECORD_BYTES_MAX`` bytes each, and gets news."""

    def tell(self, news: bytes) -> None:
        """Sends news to all members, this one included. Some may not get it."""

    async def close(self) -> None: ...
