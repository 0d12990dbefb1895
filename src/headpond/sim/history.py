"""Everything that happened in a run, as the programs saw it; the checkers read nothing else of the clients.

The history stands outside of the world: no fault touches it. A program notes what it does before it does it, so
a program that is killed in between leaves the note that it may have happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headpond.wire.control.ledger import LedgerInfo

Event = TypeVar("Event")


@dataclass(slots=True)
class Sent:
    """A message that a program gave to its producer."""

    topic: str
    node: str
    value: bytes
    key: bytes | None
    producer: str
    """The producer of a name on a machine; its processes follow one another."""
    life: int
    """Which process of the producer."""
    number: int
    """Counts the messages of this process."""
    at_s: float
    token: str = ""
    """The id of the token of its process."""
    outcome: str = ""
    """By the receipt: stored, duplicate, spilled or rejected; empty: no receipt came."""
    entry: int | None = None
    shard: int | None = None
    error: str = ""


@dataclass(slots=True)
class Delivered:
    """A message that a program got."""

    topic: str
    subscription: str
    node: str
    consumer: str
    life: int
    shard: int
    entry: int
    value: bytes
    key: bytes | None
    attempt: int
    at_s: float
    node_starts: int
    """How often the node had been started when the program got it."""
    connected_s: float
    """The connection over which it came was made after this."""
    connected_starts: int
    """How often the node had been started then."""


@dataclass(slots=True)
class Settled:
    """A program settled a delivery: ``ack``, ``skip`` or ``nack``."""

    delivery: Delivered
    how: str
    at_s: float
    confirmed_s: float | None = None
    """When the node's disk had it, as ``flush`` said."""
    confirmed_starts: int = 0
    """How often the node had been started then."""


@dataclass(slots=True)
class Batch:
    """Rows that a driver commits as one, under a number that it repeats after a crash."""

    topic: str
    node: str
    writer: str
    number: int
    rows: list[list[bytes]]
    """By task."""
    committed: bool = False
    """Whether the node said so."""
    noted: bool = False
    """Whether the driver has noted that; then it continues with the next batch."""


@dataclass(slots=True)
class Seek:
    """An administrator moved a subscription to its begin."""

    subscription: str
    at_s: float
    done_s: float | None = None


@dataclass(slots=True)
class Revoked:
    """An administrator revoked a token."""

    token: str
    done_s: float | None = None


@dataclass(slots=True)
class Restored:
    """A node was put back to an old copy of its folder."""

    node: str
    at_s: float


@dataclass(slots=True)
class SetBack:
    """The machine of a producer was put back to an old copy of its disk."""

    producer: str


@dataclass(slots=True)
class Broken:
    """A program saw by itself that a promise is broken."""

    what: str


@dataclass(slots=True)
class Seen:
    """A message that a reader got during the run."""

    topic: str
    node: str
    shard: int
    entry: int
    value: bytes
    key: bytes | None
    reader: str
    at_s: float


@dataclass(slots=True)
class Read:
    """A message found in a topic's log at the end."""

    topic: str
    node: str
    shard: int
    entry: int
    value: bytes
    key: bytes | None


@dataclass(slots=True)
class Gone:
    """Entries that a node says it does not have: damaged, expired, compacted."""

    topic: str
    node: str
    shard: int
    start: int
    end: int
    reason: str


@dataclass(slots=True)
class Accounts:
    """The ledger of a topic at the end."""

    topic: str
    node: str
    ledger: LedgerInfo


@dataclass(slots=True)
class History:
    events: list[object] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The trace: what happened, in order, in words."""
    sent: dict[bytes, Sent] = field(default_factory=dict)
    """By value: every value is sent once by a program."""
    _by_kind: dict[type, list[Any]] = field(default_factory=dict)

    @property
    def deliveries(self) -> int:
        return sum(1 for _ in self.of(Delivered))

    @property
    def restored(self) -> set[str]:
        """Nodes that were put back to an old copy."""
        return {event.node for event in self.of(Restored)}

    def put_back_after(self, node: str, at_s: float) -> bool:
        """Whether a node was put back to an old copy later than that."""
        return any(event.node == node and event.at_s >= at_s for event in self.of(Restored))

    @property
    def set_back(self) -> set[str]:
        """Producers that were put back to an old copy."""
        return {event.producer for event in self.of(SetBack)}

    @property
    def begun_again(self) -> set[str]:
        """Subscriptions that were moved to their begin."""
        return {event.subscription for event in self.of(Seek)}

    def of(self, kind: type[Event]) -> Iterator[Event]:
        return iter(self._by_kind.get(kind, ()))

    def note(self, at_s: float, text: str) -> None:
        self.lines.append(f"{at_s:10.4f} {text}")

    def change(self, event: object, **fields: object) -> None:
        """Notes what became of an event."""
        for name, value in fields.items():
            setattr(event, name, value)

    def add(self, event: object) -> None:
        self.events.append(event)
        self._by_kind.setdefault(type(event), []).append(event)
        if isinstance(event, Sent):
            self.sent[event.value] = event
