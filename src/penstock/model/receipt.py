"""What became of a message that was sent, per destination."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.model.errors import PenstockError
from penstock.model.identity import Identity


class Outcome(StrEnum):
    STORED = "stored"
    DUPLICATE = "duplicate"
    SPILLED = "spilled"
    REJECTED = "rejected"


class Durability(StrEnum):
    """What the node did before it acknowledged."""

    SYNC = "sync"
    OS = "os"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message's fate at one destination.

    ``entry`` is where it stands (of a duplicate: where the first copy stands, if that is still known).
    """

    outcome: Outcome
    destination: str
    topic: str
    identity: Identity
    entry: int | None = None
    durability: Durability | None = None
    error: PenstockError | None = None

    @property
    def shard(self) -> int:
        return self.identity.shard

    @property
    def stored(self) -> bool:
        """Whether the destination has the message on its disk, by this send or an earlier one."""
        return self.outcome in (Outcome.STORED, Outcome.DUPLICATE)
