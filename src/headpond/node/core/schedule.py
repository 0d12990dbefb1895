"""When subscriptions are next to be looked at: a heap of times, each subscription at most once."""

from __future__ import annotations

from heapq import heappop, heappush

from headpond.node.core.subscription import Subscription


class Schedule:
    """A subscription knows the time that counts (``scheduled_us``); what the heap has of it besides is void."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Subscription]] = []
        self._numbers = 0

    def set(self, subscription: Subscription, due_us: int | None) -> None:
        """It is looked at no later than this; None where nothing of it waits for a time."""
        if due_us is None:
            subscription.scheduled_us = None
        elif subscription.scheduled_us is None or due_us < subscription.scheduled_us:
            subscription.scheduled_us = due_us
            self._numbers += 1
            heappush(self._due, (due_us, self._numbers, subscription))

    @property
    def due_us(self) -> int | None:
        while self._due and self._due[0][2].scheduled_us != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take(self, now_us: int) -> Subscription | None:
        """The next whose time has come."""
        if (due_us := self.due_us) is None or due_us > now_us:
            return None
        subscription = heappop(self._due)[2]
        subscription.scheduled_us = None
        return subscription
