"""What a consumer says again and again while it lives: that it does, and what it has not handed out yet.

RENEW goes out three times a lease. Where messages have a deadline, EXTEND goes out ten times in it for those
that were only sent ahead: so the deadline counts from the moment a message is handed out, less a tenth at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

from headpond.client.link import Link
from headpond.model.ranges import RangeSet
from headpond.wire.control import Extend, Renew, Span, Subscribed

RENEWALS = 3
EXTENSIONS = 10
SPANS_MAX = 4096


class Heartbeat:
    """``unread`` names what was delivered and not handed out, by shard."""

    def __init__(self, link: Link, consumer: int, unread: Callable[[], list[tuple[int, Span]]]) -> None:
        self._link = link
        self._consumer = consumer
        self._unread = unread
        self._loop = asyncio.get_running_loop()
        self._renew_s = self._extend_s = 0.0
        self._renewing: asyncio.TimerHandle | None = None
        self._extending: asyncio.TimerHandle | None = None
        self._sent: dict[int, float] = {}
        self._number = 0

    def begin(self) -> None:
        """A SUBSCRIBE is sent: a lease that it brings begins now."""
        self.stop()
        self._number = 0
        self._sent = {0: monotonic()}

    def stop(self) -> None:
        for timer in (self._renewing, self._extending):
            if timer is not None:
                timer.cancel()
        self._renewing = self._extending = None

    def on_subscribed(self, message: Subscribed) -> float:
        """Returns when the lease that the message speaks of began."""
        deadline = message.policy.deadline if message.policy is not None else None
        self._renew_s = message.lease_s / RENEWALS
        self._extend_s = (deadline or 0.0) / EXTENSIONS
        if self._renewing is None and self._renew_s:
            self._renewing = self._loop.call_later(self._renew_s, self._renew)
        if self._extending is None and self._extend_s:
            self._extending = self._loop.call_later(self._extend_s, self._extend)
        since = self._sent.get(message.renewal, 0.0)
        self._sent = {number: at for number, at in self._sent.items() if number >= message.renewal}
        return since

    def _renew(self) -> None:
        self._number += 1
        self._sent[self._number] = monotonic()
        self._link.send(Renew(self._consumer, self._number))
        self._renewing = self._loop.call_later(self._renew_s, self._renew)

    def _extend(self) -> None:
        for shard, spans in in_frames(self._unread()):
            self._link.send(Extend(self._consumer, shard, spans))
        self._extending = self._loop.call_later(self._extend_s, self._extend)


def in_frames(places: list[tuple[int, Span]]) -> Iterator[tuple[int, list[Span]]]:
    """Spans by shard, joined where they touch, and not too many for one frame."""
    by_shard: dict[int, RangeSet] = {}
    for shard, span in places:
        by_shard.setdefault(shard, RangeSet()).add(*span)
    for shard, entries in by_shard.items():
        spans = list(entries)
        for at in range(0, len(spans), SPANS_MAX):
            yield shard, spans[at : at + SPANS_MAX]
