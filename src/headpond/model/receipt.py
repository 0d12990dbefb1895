"""What became of a message that was sent, per destination."""

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
    """What was done before it was acknowledged."""

    SYNC = "sync"
    OS = "os"


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a segment at one destination."""

    outcome: Outcome
    destination: str
    first_entry: int | None = None
    durability: Durability | None = None
    error: HeadpondError | None = None
    reason: HeadpondError | None = field(default=None, compare=False)
    """Of a spilled one: why the destination did not take it in time."""

    @property
    def stored(self) -> bool:
        return self.outcome in (Outcome.STORED, Outcome.DUPLICATE)


_GRAVITY = (Outcome.REJECTED, Outcome.SPILLED, Outcome.STORED, Outcome.DUPLICATE)


def gravest(fates: tuple[Fate, ...]) -> Fate:
    """Of several destinations the one that stands for all: refused before spilled before stored."""
    return min(fates, key=lambda fate: _GRAVITY.index(fate.outcome))


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message's fate. With several destinations ``outcome`` is the gravest; ``copies`` has each.

    ``entry`` is where it stands (of a duplicate: where the first copy stands, if that is still known).
    """

    outcome: Outcome
    destination: str
    topic: str
    identity: Identity
    entry: int | None = None
    durability: Durability | None = None
    error: HeadpondError | None = None
    copies: tuple[Receipt, ...] = ()
    """A receipt a destination, in the order they were given; empty where there is only one."""
    reason: HeadpondError | None = field(default=None, compare=False)
    """Of a spilled one: why the destination did not take it in time, such as ``disk-full``."""

    @property
    def shard(self) -> int:
        return self.identity.shard

    @property
    def stored(self) -> bool:
        """Whether every destination has the message on its disk, by this send or an earlier one."""
        return self.outcome in (Outcome.STORED, Outcome.DUPLICATE)

    @property
    def safe(self) -> bool:
        """Whether it is on a disk for every destination: the node's, or until then this machine's."""
        return self.outcome is not Outcome.REJECTED


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows that are on a node's disk and in no topic yet. A small value: it can be pickled and sent on."""

    id: bytes
    """16 bytes, of this attempt alone."""
    writer: str
    topic: str
    rows: int
    size_bytes: int
