"""A member that follows the stream, until it is its turn to be the active one.

Its turn comes at once when the active member released its place or refuses connections, and otherwise after
``SILENCE_S`` without a record, counted only while the stream has a leader. A wrong try costs a switch, never
data: it appends an EPOCH record that expects the stream to end with the last record that this member has
applied. That append is the election and the fence; no clock and no lease takes part.

The active member answers clients for ``CERTAIN_S`` after its last confirmed record. No other member may serve
them meanwhile, so nobody tries earlier unless it knows that the active one cannot answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from headpond.cluster.apply import Applier, Diverged, Position
from headpond.cluster.journal import Journal, Refused, StreamState, Unreachable
from headpond.cluster.records import ActiveMember, Kind, Record, encode_record
from headpond.model.errors import BadFrame

logger = logging.getLogger("headpond.cluster")

READ_BYTES_MAX = 8 * 1024 * 1024
IDLE_S = 0.25
"""It looks for records so often even without news."""
LAG_S = 0.02
"""Before it asks again for a record that a replica does not have yet."""
SILENCE_S = 6.0
CERTAIN_S = 3.0
"""For so long after it sent a record that the stream confirmed, a member is certain to be the active one."""
PROBE_AFTER_S = 1.0
"""Without a record for so long, it looks whether the active member's address refuses connections."""
ANSWER_S = 2.0
CHECKPOINT_S = 10.0
CHECKPOINT_BYTES = 256 * 1024 * 1024
BEHIND_S = 30.0
"""For so long the stream may seem to end before this folder: a server that was cut off may answer."""

InThread = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments where blocking does no harm."""
Refuses = Callable[[ActiveMember], Awaitable[bool]]
"""Whether the machine of a member is there and nothing listens at its address."""


def turn_after_s(at: Position, member: str) -> float:
    """How long the stream must be silent before ``member``, with its folder at ``at``, may take over.

    A shorter silence is enough if the active member is known to be dead.
    """
    if at.released or not at.epoch:
        return 0.0  # nobody is active
    is_own = at.active is not None and at.active.member == member  # of an earlier process
    return CERTAIN_S if is_own else SILENCE_S


class Trimmed(Exception):
    """The stream begins behind this folder: the member needs a copy of another one's."""


class Standby:
    def __init__(
        self,
        journal: Journal,
        applier: Applier,
        me: ActiveMember,
        in_thread: InThread,
        refuses: Refuses,
        on_applied: Callable[[int], None],
        *,
        rest_s: float = 0.0,
    ) -> None:
        """``rest_s``: for so long it leaves its turn to others, because it was active until now."""
        self.applier = applier
        self.tried_s = 0.0
        """When it sent the last EPOCH record that it appended."""
        self._journal = journal
        self._me = me
        self._in_thread = in_thread
        self._refuses = refuses
        self._on_applied = on_applied
        self._tried = b""
        """The last EPOCH record that it appended; no answer does not mean that it is not in the stream."""
        self._won = False
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self.stream: StreamState | None = None
        """As last measured, before it tried to become active."""
        self._heard: tuple[int, float] | None = None
        """A record that it heard of and did not have then, and when."""
        self._current_s = self._now_s()
        """When it had all records that it had heard of."""
        self._checkpoint_s = float("-inf")
        """When it made a checkpoint. The first one is soon: trimming needs one, also if members often end."""
        self._rests_until_s = self._now_s() + rest_s

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def follow(self) -> None:
        """Returns when this member is the active one: its EPOCH record is the last that it has applied."""
        silent_since_s = self._now_s()
        behind_since_s: float | None = None
        while not self._won:
            if self._failure is not None:
                raise self._failure
            if await self.catch_up():
                silent_since_s = self._now_s()
                continue
            if not await self._is_time(self._now_s() - silent_since_s):
                await self._wait_for_news()
                continue
            try:
                state = self.stream = await self._journal.state()
            except Unreachable:
                silent_since_s = self._now_s()  # without a leader nobody can be active
                continue
            at_seq = self.applier.position.seq
            if state.last_seq < at_seq:
                behind_since_s = behind_since_s or self._now_s()
                if self._now_s() - behind_since_s > BEHIND_S:
                    raise Diverged(
                        f"the stream ends at record {state.last_seq}, this folder at record {at_seq}"
                    )
                await asyncio.sleep(LAG_S)
            else:
                behind_since_s = None
                if state.last_seq > at_seq:
                    await asyncio.sleep(LAG_S)
                elif not await self._try():
                    silent_since_s = self._now_s()

    def fail(self, error: Exception) -> None:
        """``follow`` raises ``error``, unless this member is the active one already."""
        self._failure = error
        self._news.set()

    @property
    def lag_s(self) -> float:
        """Seconds since it last had every record that the active member had."""
        return self._now_s() - self._current_s

    def on_news(self, seq: int) -> None:
        """The stream has records up to ``seq``."""
        if seq > self.applier.position.seq:
            self._news.set()
        self._heard = self._heard or (seq, self._now_s())
        self._count_lag()

    def _count_lag(self) -> None:
        if self._heard is not None and self.applier.position.seq >= self._heard[0]:
            self._current_s, self._heard = self._heard[1], None

    async def _wait_for_news(self) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), IDLE_S)

    async def _is_time(self, silent_s: float) -> bool:
        at = self.applier.position
        if self._now_s() < self._rests_until_s:
            return False
        if silent_s >= turn_after_s(at, self._me.member):
            return True
        return at.active is not None and silent_s >= PROBE_AFTER_S and await self._refuses(at.active)

    async def catch_up(self) -> int:
        """Applies the records that are there; returns how many."""
        at_seq = self.applier.position.seq
        records = await self._journal.read(at_seq + 1, READ_BYTES_MAX)
        if records and records[0][0] > at_seq + 1:
            raise Trimmed(f"the stream begins with record {records[0][0]}, this folder ends at record {at_seq}")
        if records:
            await self._in_thread(self._apply, records)
            self._on_applied(self.applier.position.seq)
            self._count_lag()
        due = self._now_s() - self._checkpoint_s > CHECKPOINT_S or self.applier.bytes > CHECKPOINT_BYTES
        if due and self.applier.position != self.applier.checkpointed:
            await self._in_thread(self.applier.checkpoint)
            self._checkpoint_s = self._now_s()
        return len(records)

    def _apply(self, records: list[tuple[int, bytes]]) -> None:
        for seq, raw in records:
            try:
                record = self.applier.apply(seq, raw)
            except BadFrame as error:  # rot on one server: another one may answer the next read
                logger.error("record %d of the stream: %s", seq, error)
                return
            if record is not None:
                self._note(record, raw)

    def _note(self, record: Record, raw: bytes) -> None:
        if record.kind == Kind.EPOCH:
            self._won = raw == self._tried
            self._rests_until_s = 0.0  # another member was active since

    async def _try(self) -> bool:
        """Appends an EPOCH record; whether it is known to be in the stream."""
        at = self.applier.position
        content = msgspec.msgpack.encode(self._me)
        self._tried = raw = encode_record(Kind.EPOCH, at.chain, at.epoch + 1, at.number, content)
        self.tried_s = self._now_s()
        answer = self._journal.append(raw, at.seq)
        try:
            seq = await asyncio.wait_for(answer, ANSWER_S)
        except Refused as error:
            logger.info("another member was faster, or the stream is full: %s", error)
            return False
        except TimeoutError:
            logger.warning("no answer to the try to become active in epoch %d", at.epoch + 1)
            return False
        await self._in_thread(self._apply, [(seq, raw)])
        return self._won
