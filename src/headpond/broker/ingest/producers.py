"""Producers registered at a topic, by name: their access, their connections, their lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from headpond.broker.catalog.changes import (
    ProducerChange,
    ProducerGranted,
    ProducerRegistered,
    ProducerRemoved,
    ProducerSeen,
)
from headpond.model.errors import Fenced, HeadpondError
from headpond.wire.title import Title


class Verdict(StrEnum):
    GRANT = "grant"
    """A new epoch goes to the disk, then it is held."""
    KEEP = "keep"
    BUSY = "busy"
    FENCED = "fenced"


@dataclass(slots=True)
class Lease:
    """Which instance of a single-access producer may send under its name, by an epoch.

    An instance asks when it opens, and again on every new connection with the epoch that it holds.

    ================  ======================================  ===============================
    the lease is      an instance without an epoch            an instance with an epoch
    ================  ======================================  ===============================
    free              GRANT                                   FENCED
    held, by itself   KEEP (the answer was lost)              KEEP
    held, by another  BUSY                                    FENCED
    over              GRANT (its last holder: KEEP)           its last holder: KEEP; else FENCED
    ================  ======================================  ===============================

    The lease is *over* when the node has not heard from its holder for the time of the lease, with or without
    a connection: a frozen program keeps its connection and says nothing, a living one speaks three times as
    often. An epoch above the one known here was granted by a node that had more data: unless another instance
    holds the lease, the node grants a higher epoch. A grant counts once it is on the disk; until then all
    others get BUSY.

    At a further destination of the producer there is no lease: the first destination granted the epoch, and
    this node takes it over (``follow``).
    """

    epoch: int = 0
    instance: bytes = b""
    """The present or last holder; empty if the lease was given back or never granted."""
    holder: str = ""
    """The name of that client."""
    connection: int | None = None
    """The connection of its holder; None once that ended."""
    heard_us: int = 0
    """When the node last heard from its holder."""
    granting: bytes = b""
    """The instance whose grant is on its way to the disk."""

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
        """How long it lasts if the node hears nothing more from its holder."""
        return (self.heard_us + lease_us - now_us) / 1e6

    def granted(self, instance: bytes, epoch: int, holder: str) -> None:
        assert epoch >= self.epoch, "an epoch never goes back"
        self.epoch, self.instance, self.holder = epoch, instance, holder
        self.connection = None

    def hold(self, connection: int) -> None:
        assert self.instance, "the lease is free"
        self.connection = connection

    def lose(self, connection: int, heard_us: int) -> bool:
        """A connection ended, last heard from then; returns whether it was the holder's."""
        if self.connection != connection:
            return False
        self.connection, self.heard_us = None, heard_us
        return True

    def give_back(self, instance: bytes) -> bool:
        """An instance closed; returns whether it was the holder."""
        if not instance or instance != self.instance:
            return False
        self.instance, self.holder, self.connection = b"", "", None
        return True


SINGLE = "single"
MULTIPLE = "multiple"
ACCESSES = (MULTIPLE, SINGLE)


class Presence(NamedTuple):
    """An instance that is open."""

    connection: int
    client: str


@dataclass(slots=True)
class Registration:
    producer: str
    access: str
    registered_at_us: int
    seen_us: int = 0
    lease: Lease = field(default_factory=Lease)
    present: dict[bytes, Presence] = field(default_factory=dict)
    """By instance."""


class Producers:
    """The producers of one topic."""

    def __init__(self, topic: bytes, lost_us: int = 0) -> None:
        """``lost_us`` is when this node started: the connections of holders in the journal ended then."""
        self._topic = topic
        self._lost_us = lost_us
        self._registrations: dict[str, Registration] = {}
        self._epoch_floor = 0
        """The highest epoch of removed producers: a name that is registered again gets a higher one."""

    def get(self, producer: str) -> Registration | None:
        return self._registrations.get(producer)

    def __iter__(self) -> Iterator[Registration]:
        return iter(sorted(self._registrations.values(), key=lambda each: each.producer))

    def __len__(self) -> int:
        return len(self._registrations)

    def next_epoch(self, known: Lease | None, asked: int = 0) -> int:
        """The epoch of the next grant; ``asked`` is the one that a client claims to hold."""
        return max(known.epoch if known is not None else 0, self._epoch_floor, asked) + 1

    def apply(self, change: ProducerChange) -> Registration | None:
        """Makes a change that is in the journal; the registration that it concerns, if it is there."""
        if isinstance(change, ProducerRegistered):
            return self._register(change)
        if isinstance(change, ProducerRemoved):
            self._epoch_floor = max(self._epoch_floor, change.epoch)
            return self._registrations.pop(change.producer, None)
        known = self._registrations.get(change.producer)
        if known is None:
            return None
        known.seen_us = max(known.seen_us, change.at_us)
        if isinstance(change, ProducerGranted) and change.epoch >= known.lease.epoch:
            known.lease.granted(change.instance, change.epoch, change.holder)
            known.lease.heard_us = self._lost_us
        elif isinstance(change, ProducerSeen) and change.free:
            known.lease.give_back(change.instance)
        return known

    def _register(self, change: ProducerRegistered) -> Registration:
        known = self._registrations.get(change.producer)
        if known is None:
            known = Registration(change.producer, change.access, change.at_us, change.seen_us)
            self._registrations[change.producer] = known
        if change.epoch >= known.lease.epoch and change.epoch:
            known.lease.granted(change.instance, change.epoch, change.holder)
            known.lease.heard_us = self._lost_us
        return known

    def judge(self, title: Title, shown: str) -> HeadpondError | None:
        """Why a block cannot be taken, if its producer may not send."""
        if title.late:  # sent on purpose, after the instance was taken over
            return None
        known = self._registrations.get(title.producer) if title.producer else None
        if known is None or known.access != SINGLE:
            if title.epoch:
                return Fenced(
                    f"producer {title.producer[:80]!r} of {shown} is not registered with single access"
                )
            return None
        if title.epoch == known.lease.epoch:
            return None
        return fenced(known, shown, title.epoch)

    def snapshot(self) -> Iterator[ProducerChange]:
        if self._epoch_floor:
            yield ProducerRemoved(self._topic, "", self._epoch_floor)
        for each in self:
            lease = each.lease
            yield ProducerRegistered(
                self._topic,
                each.producer,
                each.access,
                each.registered_at_us,
                lease.epoch,
                lease.holder,
                lease.instance,
                each.seen_us,
            )


def fenced(known: Registration, shown: str, epoch: int) -> Fenced:
    """The error for an instance that does not hold the lease."""
    who = f"producer {known.producer!r} of {shown}"
    if not epoch:
        return Fenced(f"{who} has single access, and this instance holds no lease")
    by = f" by {known.lease.holder}" if known.lease.holder else ""
    return Fenced(f"{who} was taken over{by}: its epoch is {known.lease.epoch}, this instance has {epoch}")
