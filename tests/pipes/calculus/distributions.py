"""Distributions of copies for the tests: every kind of hop, and hops made of hops."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from headpond.pipes.calculus.delivery import Copies, Finite, Number, bernoulli, resent

PARTS = 12


def fractions(low: int = 0, high: int = PARTS) -> st.SearchStrategy[Fraction]:
    return st.integers(low, high).map(lambda part: Fraction(part, PARTS))


def normalised(weights: list[int]) -> Finite:
    total = sum(weights)
    return Finite(tuple(Fraction(weight, total) for weight in weights))


def geometric(stop: Number) -> Copies:
    """1, 2, 3, … copies, each of them the last with probability ``stop``."""
    return resent(bernoulli(1), stop)


finites = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any).map(normalised)
geometrics = fractions(low=1).map(geometric)
single = fractions().map(bernoulli)
simple: st.SearchStrategy[Copies] = st.one_of(finites, geometrics, single)


def _larger(parts: st.SearchStrategy[Copies]) -> st.SearchStrategy[Copies]:
    composed = st.builds(Copies.then, parts, parts)
    limited = st.builds(resent, parts, fractions(), st.integers(0, 3))
    endless = st.builds(resent, parts.filter(lambda hop: hop.lost < 1), fractions(low=1))
    return st.one_of(composed, limited, endless)


hops: st.SearchStrategy[Copies] = st.recursive(simple, _larger, max_leaves=3)
