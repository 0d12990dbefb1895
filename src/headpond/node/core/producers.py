"""Producers registered at a topic, by name: with which access, who is there, how the lease stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.model.errors import Fenced, HeadpondError
from headpond.node.core.catalog_changes import (
    ProducerChange,
    ProducerGranted,
    ProducerRegistered,
    ProducerRemoved,
    ProducerSeen,
)
from headpond.node.core.leases import Lease
from headpond.wire.title import Title

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
    """Those of one topic."""

    def __init__(self, topic: bytes, lost_us: int = 0) -> None:
        """``lost_us`` is when this node began: connections of holders that the journal tells of went then."""
        self._topic = topic
        self._lost_us = lost_us
        self._registrations: dict[str, Registration] = {}
        self._epoch_floor = 0
        """The highest epoch of producers that were removed: a name that comes again goes on above it."""

    def get(self, producer: str) -> Registration | None:
        return self._registrations.get(producer)

    def __iter__(self) -> Iterator[Registration]:
        return iter(sorted(self._registrations.values(), key=lambda each: each.producer))

    def __len__(self) -> int:
        return len(self._registrations)

    def next_epoch(self, known: Lease | None, asked: int = 0) -> int:
        """The epoch of the next grant; ``asked`` is one that somebody says they hold."""
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
        if title.late:  # what an instance kept that was taken over, sent on purpose
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
    """What an instance is told that does not hold the lease (any more)."""
    who = f"producer {known.producer!r} of {shown}"
    if not epoch:
        return Fenced(f"{who} has single access, and this instance holds no lease")
    by = f" by {known.lease.holder}" if known.lease.holder else ""
    return Fenced(f"{who} was taken over{by}: its epoch is {known.lease.epoch}, this instance has {epoch}")
