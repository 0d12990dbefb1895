"""Sessions: how a side that started again is recognised.

Each side is made with an epoch, a number that is larger each time it starts (a clock's reading at the start, or
a counter on disk). Numbers count from 0 in each session of a sender, and every packet names that session, so
number 0 of a restarted sender is a new message and not an old one, and a confirm meant for the session before
is not taken for one of this.

A receiver that keeps a place in its sender's numbering follows one session at a time: a higher epoch ends the
one before. An answer also names its writer's session, so a sender sees that its receiver started again.
"""

from __future__ import annotations

from enum import Enum


class EpochAge(Enum):
    CURRENT = "current"
    NEW = "new"
    """The first packet of a later session: the state of the one before is over."""
    STALE = "stale"
    """From a session that is over."""


class EpochTracker:
    """Which session of the other side is the current one."""

    __slots__ = ("epoch",)

    def __init__(self) -> None:
        self.epoch = -1

    @property
    def is_new(self) -> bool:
        """Whether nothing was heard of the other side yet."""
        return self.epoch < 0

    def observe(self, epoch: int) -> EpochAge:
        if epoch == self.epoch:
            return EpochAge.CURRENT
        if epoch < self.epoch:
            return EpochAge.STALE
        self.epoch = epoch
        return EpochAge.NEW
