"""R and UR, the delivery modes, and the laws by which deliveries combine.

- **Reliability** R: of the messages sent, the share of which at least one copy arrives. R = 1 − G(0).
- **Uniqueness rate** UR: of the copies that arrive, the share that is not a repeat. UR = R / G′(1); its inverse
  is the **duplication rate** DR. Where nothing arrives nothing is repeated, and UR is 1.

A hop is its ``Copies``. Hops in a row compose exactly, by their generating functions. The *product law*, R =
R₁R₂ and UR = UR₁UR₂, is the special case without repeats: a repeat is a second chance for the hop that follows.

The first hop of a route is its ``Channel``: the rates at which it changes a packet, and faults without a rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from typing import Any

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.copies import Copies, Finite, Number, bernoulli, exact, finite, probability, resent
from headpond.pipes.calculus.declarations import Fault


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

    def then(self, second: DeliveryMode) -> DeliveryMode:
        """The mode of two deliveries in a row: it loses if either does, and repeats if either does."""
        reliable = self.reliable and second.reliable
        return _MODES[reliable, self.unique and second.unique]

    @property
    def reliable(self) -> bool:
        return self in (DeliveryMode.AT_LEAST_ONCE, DeliveryMode.EXACTLY_ONCE)

    @property
    def unique(self) -> bool:
        return self in (DeliveryMode.AT_MOST_ONCE, DeliveryMode.EXACTLY_ONCE)


_MODES = {
    (False, False): DeliveryMode.UNRELIABLE,
    (False, True): DeliveryMode.AT_MOST_ONCE,
    (True, False): DeliveryMode.AT_LEAST_ONCE,
    (True, True): DeliveryMode.EXACTLY_ONCE,
}


def mode_of(reliability: Number, uniqueness: Number, tolerance: Number = 0) -> DeliveryMode:
    """The mode's name. With a tolerance, in its relaxed meaning (R → 1, UR → 1): that near counts as 1."""
    enough = 1 - probability(tolerance, "the tolerance")
    return _MODES[exact(reliability) >= enough, exact(uniqueness) >= enough]


@dataclass(frozen=True, slots=True)
class DeliveryRates:
    """The numbers of a hop or a route."""

    reliability: Fraction
    uniqueness: Fraction
    copies_mean: Fraction

    @property
    def duplication_rate(self) -> Fraction:
        """DR = 1 / UR: how often a message that arrives arrives, on average."""
        return 1 / self.uniqueness

    @property
    def mode(self) -> DeliveryMode:
        return mode_of(self.reliability, self.uniqueness)


def delivery(hop: Copies) -> DeliveryRates:
    """R, UR and the mean number of copies of a hop."""
    reliability, mean = 1 - hop.lost, hop.mean
    return DeliveryRates(reliability, reliability / mean if mean else Fraction(1), mean)


# --- hops -------------------------------------------------------------------------------------------


def channel(loss: Number = 0, duplicate: Number = 0) -> Finite:
    """A channel that loses a message, or else doubles it, or else delivers it once."""
    lost, doubled = probability(loss, "loss"), probability(duplicate, "duplicate")
    return finite((lost, (1 - lost) * (1 - doubled), (1 - lost) * doubled))


def retry(hop: Copies, retries: int, confirm: Number = 1) -> Copies:
    """The hop, tried again up to ``retries`` times while no confirm came back, which one does with ``confirm``.

    With every loss noticed and nothing sent needlessly (``confirm`` = 1): R₁ = R + (1 − R) R, and so on.
    """
    return resent(hop, confirm, retries)


def retry_until_confirmed(arrives: Number, confirm: Number) -> Copies:
    """Tried until confirmed, over forward success p and confirm success q.

    Tries that do not arrive leave no trace, and each that arrives is the last with probability q: the copies
    are geometric, R = 1 and UR = q, whatever p is.
    """
    return resent(bernoulli(arrives), confirm)


def dedup(hop: Copies) -> Finite:
    """Only the first copy passes: (1 − R) + R z, so R stays and UR is 1."""
    return bernoulli(1 - hop.lost)


def pipeline(*hops: Copies) -> Copies:
    """Hops in a row, the first one first; without any, delivery as it is inside one process: exactly once."""
    if not hops:
        return bernoulli(1)
    return reduce(lambda first, second: first.then(second), hops)


def wrap(*hops: Copies, confirm: Number, retries: int | None = None, unique: bool = True) -> Copies:
    """A pipe around a whole pipeline: its sender before the first hop, its receiver behind the last.

    However many hops lose messages, they are sent again until the confirm has come all the way back; with
    ``unique`` the receiver drops repeats. This is why reliability is better addressed end to end than hop by
    hop.
    """
    whole = resent(pipeline(*hops), confirm, retries)
    return dedup(whole) if unique else whole


# --- the product law --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Laws:
    """A pipeline by the exact law and by the product law, side by side."""

    exact: DeliveryRates
    product: DeliveryRates

    @property
    def agree(self) -> bool:
        mine, theirs = self.exact, self.product
        return (mine.reliability, mine.uniqueness) == (theirs.reliability, theirs.uniqueness)


def product_law(*hops: Copies) -> DeliveryRates:
    """R and UR as products of the hops': right where no hop but the last one repeats."""
    if not hops:
        raise BadRequest("the product law needs at least one hop")
    reliability = uniqueness = Fraction(1)
    for each in map(delivery, hops):
        reliability *= each.reliability
        uniqueness *= each.uniqueness
    return DeliveryRates(reliability, uniqueness, reliability / uniqueness)


def compare_laws(*hops: Copies) -> Laws:
    return Laws(delivery(pipeline(*hops)), product_law(*hops))


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
