"""Power series cut to a fixed length, with exact coefficients: the arithmetic of generating functions.

A generating function is written once, as arithmetic on its argument. Given the constant z it answers its value;
given the series 0 + z it answers the first probabilities; given 1 + z it answers the moments. None of them is
approximated: a coefficient of a sum, product or quotient needs no later coefficient of its parts.
"""

from __future__ import annotations

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
    """c0 + c1 z + c2 z² + … up to a length that all operands of an operation share."""

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
