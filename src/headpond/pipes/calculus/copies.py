"""How many copies a hop makes of one message: the whole distribution, as its generating function.

``G(z) = P(0 copies) + P(1) z + P(2) z² + …``. Nothing else about a hop matters to how much arrives and how much
of it is repeated, and hops in a row compose as functions do: each copy that the first delivers is a message to
the second, so the copies of the two have ``G₁(G₂(z))``.

Everything here is exact: inputs become fractions (0.1 is 1/10), closed forms stay closed, and no series is cut
short behind the caller's back. Where a table has to end, ``head`` gives the exact probability beyond it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class Series:
    """c0 + c1 z + c2 z² + … up to a length that all operands of an operation share, with exact coefficients.

    A generating function is written once, as arithmetic on its argument. The constant z gives its value, the
    series 0 + z its first probabilities, 1 + z its moments. None is approximated: a coefficient of a sum,
    product or quotient needs no later coefficient of its parts.
    """

    coefficients: tuple[Fraction, ...]

    @classmethod
    def around(cls, point: Number, length: int) -> Series:
        """The argument itself, near ``point``: point + z."""
        return cls((exact(point), Fraction(1), *[Fraction(0)] * (length - 2))[:length])

    def __len__(self) -> int:
        return len(self.coefficients)

    def __getitem__(self, at: int) -> Fraction:
        return self.coefficients[at]

    def _constant(self, value: Fraction | int) -> Series:
        return Series((Fraction(value), *[Fraction(0)] * (len(self) - 1)))

    def _other(self, value: Series | Fraction | int) -> Series:
        return value if isinstance(value, Series) else self._constant(value)

    def __add__(self, other: Series | Fraction | int) -> Series:
        return _made(a + b for a, b in zip(self.coefficients, self._other(other).coefficients, strict=True))

    def __sub__(self, other: Series | Fraction | int) -> Series:
        return _made(a - b for a, b in zip(self.coefficients, self._other(other).coefficients, strict=True))

    def __rsub__(self, other: Fraction | int) -> Series:
        return self._constant(other) - self

    def __mul__(self, other: Series | Fraction | int) -> Series:
        if not isinstance(other, Series):
            return _made(a * other for a in self.coefficients)
        mine, theirs = self.coefficients, other.coefficients
        return _made(
            sum((mine[i] * theirs[k - i] for i in range(k + 1) if mine[i]), Fraction(0))
            for k in range(len(self))
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Series) -> Series:
        lead, quotient = other[0], list[Fraction]()
        for k in range(len(self)):
            known = sum((quotient[i] * other[k - i] for i in range(k) if quotient[i]), Fraction(0))
            quotient.append((self[k] - known) / lead)
        return Series(tuple(quotient))


def _made(coefficients: Iterable[Fraction]) -> Series:
    return Series(tuple(coefficients))


RETRIES_MAX = 1000
HEAD_MAX = 1000


@dataclass(frozen=True, slots=True)
class DistributionHead:
    """The first probabilities of a distribution, and the probability of all that lies beyond them."""

    probabilities: tuple[Fraction, ...]
    rest: Fraction


class Copies(ABC):
    """The number of copies of one message that come out of a hop."""

    __slots__ = ()

    @abstractmethod
    def of(self, argument: Series) -> Series:
        """G of a series; all else follows from it."""

    def at(self, z: Number) -> Fraction:
        """G(z), for z from 0 to 1."""
        return self.of(Series((exact(z),)))[0]

    @property
    def lost(self) -> Fraction:
        """G(0): the probability that no copy arrives."""
        return self.at(0)

    @property
    def mean(self) -> Fraction:
        """G′(1): the mean number of copies."""
        return self.of(Series.around(1, 2))[1]

    def head(self, length: int) -> DistributionHead:
        """The probabilities of 0, 1, … copies, ``length`` of them, and the rest."""
        if not 1 <= length <= HEAD_MAX:
            raise BadRequest(f"{length:,} probabilities were asked for, and 1 to {HEAD_MAX:,} are computed")
        probabilities = self.of(Series.around(0, length)).coefficients
        return DistributionHead(probabilities, 1 - sum(probabilities, Fraction(0)))

    def then(self, second: Copies) -> Copies:
        """This hop, and then the second one: G₁(G₂(z))."""
        return Composed(self, second)


@dataclass(frozen=True, slots=True)
class Finite(Copies):
    """At most so many copies: the probabilities of 0, 1, 2, …, which add up to 1."""

    probabilities: tuple[Fraction, ...]

    def of(self, argument: Series) -> Series:
        total = argument * 0
        for each in reversed(self.probabilities):
            total = total * argument + each
        return total


@dataclass(frozen=True, slots=True)
class Composed(Copies):
    """Two hops in a row."""

    first: Copies
    second: Copies

    def of(self, argument: Series) -> Series:
        return self.first.of(self.second.of(argument))


@dataclass(frozen=True, slots=True)
class Resent(Copies):
    """A message sent over ``hop`` again and again until a confirm comes back.

    Every copy that arrives is confirmed, and a confirm gets back with probability q = ``confirm``, so a try
    that made n copies stays unconfirmed with probability (1 − q)ⁿ: with H for the hop, unconfirmed tries have
    U(z) = H((1 − q) z) and confirmed ones H(z) − U(z). After ``retries`` more tries the sender gives up; with
    None it never does: G = (H − U) / (1 − U), whose mean is H′(1) / (1 − H(1 − q)). The next try is assumed to
    start when the confirm of the one before can no longer come: a timeout shorter than the way there and back
    makes more copies.
    """

    hop: Copies
    confirm: Fraction
    retries: int | None = None

    def of(self, argument: Series) -> Series:
        every = self.hop.of(argument)
        unconfirmed = self.hop.of(argument * (1 - self.confirm))
        confirmed = every - unconfirmed
        if self.retries is None:
            return confirmed / (1 - unconfirmed)
        total = every
        for _ in range(self.retries):
            total = confirmed + unconfirmed * total
        return total


def finite(probabilities: Iterable[Number]) -> Finite:
    """The distribution with these probabilities of 0, 1, 2, … copies."""
    found = tuple(
        probability(each, f"the probability of {count} copies") for count, each in enumerate(probabilities)
    )
    if sum(found) != 1:
        raise BadRequest(
            f"the probabilities add up to {float(sum(found))}, and they must add up to 1",
            hint="Floats are taken as written: 0.1 means 1/10. Pass fractions where decimals are not exact.",
        )
    return Finite(found)


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
    if retries is not None and not 0 <= retries <= RETRIES_MAX:
        raise BadRequest(f"{retries:,} retries were asked for, and 0 to {RETRIES_MAX:,} are computed")
    return Resent(hop, found, retries)
