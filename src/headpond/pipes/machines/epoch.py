"""Sessions: how one side recognises that the other has restarted.

Each side has an epoch, a number that is larger each time it starts (a clock's reading at the start, or a
counter on disk). Numbers count from 0 in each session of a sender, and every packet names that session. So
number 0 of a restarted sender is a new message, and a confirm for an earlier session counts as stale.

A receiver that keeps a position in its sender's numbering follows one session at a time: a higher epoch ends
the one before. An answer also names its writer's session, so a sender notices that its receiver has
restarted.
"""

from __future__ import annotations

from enum import Enum


class EpochAge(Enum):
    CURRENT = "current"
    NEW = "new"
    """The first packet of a later session, which ends the one before."""
    STALE = "stale"
    """From a session that is over."""


class EpochTracker:
    """Follows the current session of the other side."""

    __slots__ = ("epoch",)

    def __init__(self) -> None:
        self.epoch = -1

    @property
    def is_new(self) -> bool:
        """Whether no packet of the other side has come yet."""
        return self.epoch < 0

    def observe(self, epoch: int) -> EpochAge:
        if epoch == self.epoch:
            return EpochAge.CURRENT
        if epoch < self.epoch:
            return EpochAge.STALE
        self.epoch = epoch
        return EpochAge.NEW
