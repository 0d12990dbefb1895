"""R and UR, from how many copies a hop makes of one message, and the channel beneath a route.

A hop is its generating function ``G(z) = P(0 copies) + P(1) z + P(2) z² + …``. Nothing else about it matters to
how much arrives and how much of that is repeated.

- **Reliability** R: of the messages sent, the share of which at least one copy arrives. R = 1 − G(0).
- **Uniqueness rate** UR: of the copies that arrive, the share that is not a repeat. UR = R / G′(1). Where
  nothing arrives nothing is repeated, and UR is 1.

Hops in a row compose as functions do: each copy that the first delivers is a message to the second, so the
copies of the two have ``G₁(G₂(z))``. The *product law*, R = R₁R₂ and UR = UR₁UR₂, is the special case without
repeats: a repeat is a second chance for the hop that follows.

The first hop of a route is its ``Channel``: the rates at which it changes a packet, and faults without a rate.

Everything here is exact: inputs become fractions (0.1 is 1/10), and closed forms stay closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.declarations import Fault

LATE = 4096
LATE_MAX = 1 << 24

# --- copies -----------------------------------------------------------------------------------------

Number = int | float | Fraction


def exact(value: Number) -> Fraction:
    """The number as a fraction; a float is taken as it is written, so that 0.1 means 1/10."""
    try:
        return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, TypeError):
        raise BadRequest(f"{value!r} is not a number to compute with") from None


def probability(value: Number, name: str) -> Fraction:
    """The number as a fraction, from 0 to 1."""
    found = exact(value)
    if not 0 <= found <= 1:
        raise BadRequest(f"{name} must be from 0 to 1, not {value}")
    return found


class Copies(ABC):
    """The number of copies of one message that come out of a hop."""

    __slots__ = ()

    @abstractmethod
    def at(self, z: Fraction) -> Fraction:
        """G(z), for z from 0 to 1."""

    @property
    @abstractmethod
    def mean(self) -> Fraction:
        """G′(1): the mean number of copies."""

    @property
    def lost(self) -> Fraction:
        """G(0): the probability that no copy arrives."""
        return self.at(Fraction(0))

    def then(self, second: Copies) -> Copies:
        """This hop, and then the second one: G₁(G₂(z))."""
        return Composed(self, second)


@dataclass(frozen=True, slots=True)
class Finite(Copies):
    """At most so many copies: the probabilities of 0, 1, 2, …, which add up to 1."""

    probabilities: tuple[Fraction, ...]

    def at(self, z: Fraction) -> Fraction:
        return sum((each * z**count for count, each in enumerate(self.probabilities)), Fraction(0))

    @property
    def mean(self) -> Fraction:
        return sum((each * count for count, each in enumerate(self.probabilities)), Fraction(0))


@dataclass(frozen=True, slots=True)
class Composed(Copies):
    """Two hops in a row."""

    first: Copies
    second: Copies

    def at(self, z: Fraction) -> Fraction:
        return self.first.at(self.second.at(z))

    @property
    def mean(self) -> Fraction:
        return self.first.mean * self.second.mean


@dataclass(frozen=True, slots=True)
class Resent(Copies):
    """A message sent over ``hop`` again and again until a confirm comes back.

    Every copy that arrives is confirmed, and a confirm gets back with probability q = ``confirm``, so a try
    that made n copies stays unconfirmed with probability (1 − q)ⁿ: with H for the hop, unconfirmed tries have
    U(z) = H((1 − q) z) and confirmed ones H(z) − U(z). After ``retries`` more tries the sender gives up; with
    None it never does: G = (H − U) / (1 − U). Its mean is H′(1) times the mean number of tries. The next try is
    assumed to start when the confirm of the one before can no longer come: a timeout shorter than the way there
    and back makes more copies.
    """

    hop: Copies
    confirm: Fraction
    retries: int | None = None

    def at(self, z: Fraction) -> Fraction:
        every = self.hop.at(z)
        unconfirmed = self.hop.at(z * (1 - self.confirm))
        confirmed = every - unconfirmed
        if self.retries is None:
            return confirmed / (1 - unconfirmed)
        total = every
        for _ in range(self.retries):
            total = confirmed + unconfirmed * total
        return total

    @property
    def mean(self) -> Fraction:
        unconfirmed = self.hop.at(1 - self.confirm)
        if self.retries is None:
            return self.hop.mean / (1 - unconfirmed)
        return self.hop.mean * sum(unconfirmed**tries for tries in range(self.retries + 1))


def bernoulli(arrives: Number) -> Finite:
    """One copy or none."""
    found = probability(arrives, "the probability to arrive")
    return Finite((1 - found, found))


def resent(hop: Copies, confirm: Number, retries: int | None = None) -> Resent:
    """The hop, tried again until confirmed, at most ``retries`` times more."""
    found = probability(confirm, "the probability of a confirm")
    if retries is None and (not found or hop.lost == 1):
        what = "nothing arrives" if found else "no confirm comes back"
        raise BadRequest(f"sending until confirmed never ends where {what}", hint="Limit the retries.")
    return Resent(hop, found, retries)


# --- R and UR ---------------------------------------------------------------------------------------


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
            raise BadRequest(f"late must be from 1 to {LATE_MAX:,} packets, not {self.late:,}")
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
