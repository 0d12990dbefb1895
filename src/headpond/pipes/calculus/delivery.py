"""R and UR, the delivery modes, and the laws by which deliveries combine.

- **Reliability** R: of the messages sent, the share of which at least one copy arrives. R = 1 − G(0).
- **Uniqueness rate** UR: of the copies that arrive, the share that is not a repeat. UR = R / G′(1). Where
  nothing arrives nothing is repeated, and UR is 1.

A hop is its ``Copies``. Hops in a row compose exactly, by their generating functions. The *product law*, R =
R₁R₂ and UR = UR₁UR₂, is the special case without repeats: a repeat is a second chance for the hop that follows.

The first hop of a route is its ``Channel``: the rates at which it changes a packet, and faults without a rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.copies import Copies, Finite, Number, probability
from headpond.pipes.calculus.declarations import Fault

LATE = 4096
LATE_MAX = 1 << 24


class DeliveryMode(StrEnum):
    """R and UR in words."""

    UNRELIABLE = "unreliable"
    """Messages may be lost and may be repeated."""
    AT_MOST_ONCE = "at most once"
    """Messages may be lost; none is repeated."""
    AT_LEAST_ONCE = "at least once"
    """Every message arrives; some may be repeated."""
    EXACTLY_ONCE = "exactly once"
    """Every message arrives, once."""


_MODES = {
    (False, False): DeliveryMode.UNRELIABLE,
    (False, True): DeliveryMode.AT_MOST_ONCE,
    (True, False): DeliveryMode.AT_LEAST_ONCE,
    (True, True): DeliveryMode.EXACTLY_ONCE,
}


def mode_of(reliability: Fraction, uniqueness: Fraction) -> DeliveryMode:
    return _MODES[reliability == 1, uniqueness == 1]


@dataclass(frozen=True, slots=True)
class DeliveryRates:
    """R and UR of a hop or a route."""

    reliability: Fraction
    uniqueness: Fraction


def delivery(hop: Copies) -> DeliveryRates:
    """R and UR of a hop."""
    reliability, mean = 1 - hop.lost, hop.mean
    return DeliveryRates(reliability, reliability / mean if mean else Fraction(1))


def product_law(hops: Iterable[Copies]) -> DeliveryRates:
    """R and UR as products of the hops': right where no hop but the last one repeats."""
    reliability = uniqueness = Fraction(1)
    for each in map(delivery, hops):
        reliability *= each.reliability
        uniqueness *= each.uniqueness
    return DeliveryRates(reliability, uniqueness)


# --- the channel beneath a route ---------------------------------------------------------------------

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
        loss, duplicate = Fraction(self.loss), Fraction(self.duplicate)
        return Finite((loss, (1 - loss) * (1 - duplicate), (1 - loss) * duplicate))

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
        return 1 - self.copies.at(Fraction(self.reorder))
