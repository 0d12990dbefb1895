"""The outcome of a send, per destination."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headpond.model.errors import HeadpondError
from headpond.model.identity import Identity


class Outcome(StrEnum):
    STORED = "stored"
    DUPLICATE = "duplicate"
    SPILLED = "spilled"
    REJECTED = "rejected"


class Durability(StrEnum):
    """How safely a message was stored before its acknowledgement: on the disk, or in the operating system."""

    SYNC = "sync"
    OS = "os"


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of a segment at one destination."""

    outcome: Outcome
    destination: str
    first_entry: int | None = None
    durability: Durability | None = None
    error: HeadpondError | None = None
    reason: HeadpondError | None = field(default=None, compare=False)
    """For ``spilled``: why the destination did not store it in time."""

    @property
    def stored(self) -> bool:
        return self.outcome in (Outcome.STORED, Outcome.DUPLICATE)


_GRAVITY = (Outcome.REJECTED, Outcome.SPILLED, Outcome.STORED, Outcome.DUPLICATE)


def gravest(fates: tuple[Fate, ...]) -> Fate:
    """The worst fate of several destinations: rejected before spilled before stored."""
    return min(fates, key=lambda fate: _GRAVITY.index(fate.outcome))


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one message. With several destinations ``outcome`` is the worst; ``copies`` has each.

    ``entry`` is its position in the log (for a duplicate: that of the first copy, if still known).
    """

    outcome: Outcome
    destination: str
    topic: str
    identity: Identity
    entry: int | None = None
    durability: Durability | None = None
    error: HeadpondError | None = None
    copies: tuple[Receipt, ...] = ()
    """One receipt per destination, in the order given; empty if there is only one."""
    reason: HeadpondError | None = field(default=None, compare=False)
    """For ``spilled``: why the destination did not store it in time, such as ``disk-full``."""

    def __str__(self) -> str:
        """One line."""
        where = f"{self.topic} shard {self.shard}" + ("" if self.entry is None else f" entry {self.entry}")
        durability = "" if self.durability is None else f" ({self.durability})"
        cause = self.error or self.reason
        why = "" if cause is None else f": {cause.code}: {cause.message}"
        return f"{self.outcome}{durability}: {where} at {self.destination}{why}"

    @property
    def shard(self) -> int:
        return self.identity.shard

    @property
    def stored(self) -> bool:
        """Whether every destination has the message on its disk, by this send or an earlier one."""
        return self.outcome in (Outcome.STORED, Outcome.DUPLICATE)

    @property
    def safe(self) -> bool:
        """Whether it is on a disk for every destination: the node's, or this machine's until it is sent."""
        return self.outcome is not Outcome.REJECTED


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows that are on a node's disk and in no topic yet. It is small and can be pickled."""

    id: bytes
    """16 bytes, unique to this attempt."""
    writer: str
    topic: str
    rows: int
    size_bytes: int
