"""How many copies a hop makes of one message: the whole distribution, as its generating function.

``G(z) = P(0 copies) + P(1) z + P(2) z² + …``. Nothing else about a hop matters to how much arrives and how much
of it is repeated, and hops in a row compose as functions do: each copy that the first delivers is a message to
the second, so the copies of the two have ``G₁(G₂(z))``.

Everything here is exact: inputs become fractions (0.1 is 1/10), and closed forms stay closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

from headpond.model.errors import BadRequest

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
        raise BadRequest(f"{name} is {value}, and a probability is from 0 to 1")
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
