"""The lease of a single-access producer: who may send under its name, told apart by an epoch.

An instance asks when it opens and again on every new connection, then with the epoch that it holds.

=========================  ==========================================  ========================================
the lease is               an instance without an epoch                an instance with an epoch
=========================  ==========================================  ========================================
free                       GRANT                                       FENCED
held, by itself            KEEP (the answer was lost on its way)       KEEP
held, by another           BUSY                                        FENCED
over                       GRANT (but for its last holder: KEEP)       its last holder: KEEP; else FENCED
=========================  ==========================================  ========================================

It is *over* when its holder was not heard of for the time of the lease, whether its connection is gone or not:
a program that is frozen keeps its connection and says nothing. One that lives says something three times as
often. An epoch above the one known here was granted by a node that had more than this one has now: unless
somebody holds the lease, it is granted anew, above that epoch. A grant counts once it is on the disk; until
then everybody else is told BUSY.

At a further destination of the producer there is no lease to be had: the first destination granted the epoch,
and here it is raised to that one (``follow``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    GRANT = "grant"
    """A new epoch is to be written down, then it is held."""
    KEEP = "keep"
    BUSY = "busy"
    FENCED = "fenced"


@dataclass(slots=True)
class Lease:
    epoch: int = 0
    instance: bytes = b""
    """Who holds it, or lost it; empty if it was given back or never granted."""
    holder: str = ""
    """The name of that client."""
    connection: int | None = None
    """What it is held over; None once that is gone."""
    heard_us: int = 0
    """When its holder was last heard of."""
    granting: bytes = b""
    """The instance that a grant is being written down for."""

    def ask(self, instance: bytes, epoch: int, now_us: int, lease_us: int) -> Verdict:
        if self.granting and self.granting != instance:
            return Verdict.BUSY
        if instance == self.instance and epoch in (0, self.epoch):
            return Verdict.KEEP
        if 0 < epoch <= self.epoch:
            return Verdict.FENCED
        if self.instance and self.left_s(now_us, lease_us) > 0:
            return Verdict.FENCED if epoch else Verdict.BUSY
        return Verdict.GRANT

    def follow(self, instance: bytes, epoch: int) -> Verdict:
        """The epoch was granted elsewhere."""
        if self.granting and self.granting != instance:
            return Verdict.BUSY
        if epoch < self.epoch:
            return Verdict.FENCED
        return Verdict.KEEP if (instance, epoch) == (self.instance, self.epoch) else Verdict.GRANT

    def left_s(self, now_us: int, lease_us: int) -> float:
        """How long it still stands if nothing more is heard of its holder."""
        return (self.heard_us + lease_us - now_us) / 1e6

    def granted(self, instance: bytes, epoch: int, holder: str) -> None:
        assert epoch >= self.epoch, "an epoch never goes back"
        self.epoch, self.instance, self.holder = epoch, instance, holder
        self.connection = None

    def hold(self, connection: int) -> None:
        assert self.instance, "nobody holds it"
        self.connection = connection

    def lose(self, connection: int, heard_us: int) -> bool:
        """A connection is gone over which something last came then; whether the lease was held over it."""
        if self.connection != connection:
            return False
        self.connection, self.heard_us = None, heard_us
        return True

    def give_back(self, instance: bytes) -> bool:
        """The holder closed; whether it was the holder."""
        if not instance or instance != self.instance:
            return False
        self.instance, self.holder, self.connection = b"", "", None
        return True
