"""The channel beneath a route: the rates at which it changes a packet, and faults without a rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.copies import Finite, Number, probability
from headpond.pipes.calculus.declarations import Fault
from headpond.pipes.calculus.delivery import channel

UNRATED = frozenset(
    {
        Fault.ROUTE_FAILURE,
        Fault.SENDER_CRASH,
        Fault.RECEIVER_CRASH,
        Fault.STORAGE_CRASH,
        Fault.STORAGE_LOSS,
    }
)
"""Faults without a rate: they are checked against the faults that each pipe tolerates."""


LATE = 4096
LATE_MAX = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A packet is lost, or else doubled, or else delivered once; each copy may be put behind later packets.

    Without ``reorder`` packets and their copies arrive in the order they were sent. Delays that differ from
    packet to packet are reordering too.
    """

    loss: Number = 0
    duplicate: Number = 0
    reorder: Number = 0
    """The probability that a copy arrives behind packets that were sent after it."""
    late: int = LATE
    """How many packets that were sent after it may arrive before such a copy, at most."""
    confirm_loss: Number = 0
    """The probability that the answer to a copy does not come back."""
    backtraceable: bool = True
    """Whether answers find a way back at all."""
    faults: frozenset[Fault] = field(default=frozenset())
    """Other faults that may happen, of ``UNRATED``."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "confirm_loss"):
            object.__setattr__(self, name, probability(getattr(self, name), name.replace("_", " ")))
        if not 1 <= self.late <= LATE_MAX:
            raise BadRequest(f"a packet is late by {self.late:,} others, and 1 to {LATE_MAX:,} is allowed")
        rated = sorted(self.faults - UNRATED)
        if rated:
            raise BadRequest(f"{', '.join(rated)} is given as a rate, not as a fault that may happen")

    def with_rates(self, rates: Mapping[str, Fraction | int]) -> Channel:
        """The same channel with these rates, by name, and ``late``."""
        changed: dict[str, Any] = {**rates}
        return replace(self, **changed)

    @property
    def copies(self) -> Finite:
        """The copies of one packet."""
        return channel(self.loss, self.duplicate)

    @property
    def confirm(self) -> Fraction:
        """The probability that the answer to a copy comes back."""
        return 1 - Fraction(self.confirm_loss) if self.backtraceable else Fraction(0)

    @property
    def span(self) -> int:
        """How far a packet that is still to come may be behind the newest one that came."""
        return self.late if self.reorder else 1

    @property
    def prompt(self) -> Fraction:
        """The probability that at least one copy arrives before everything that was sent after it."""
        return 1 - self.copies.at(self.reorder)
