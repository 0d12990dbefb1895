"""A generating function has the whole distribution of copies, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.delivery import Copies, Finite, bernoulli, exact, resent
from tests.pipes.calculus.distributions import finites, fractions, geometric, hops

few = settings(max_examples=60, deadline=None)
Probabilities = list[Fraction]


def convolved(one: Probabilities, other: Probabilities) -> Probabilities:
    total = [Fraction(0)] * (len(one) + len(other) - 1)
    for i, mine in enumerate(one):
        for j, theirs in enumerate(other):
            total[i + j] += mine * theirs
    return total


def copies_of_copies(first: Finite, second: Finite) -> Probabilities:
    """By the definition: each of the k copies of the first hop has its own copies."""
    total = [Fraction(0)] * (len(first.probabilities) * len(second.probabilities) + 1)
    of_k = [Fraction(1)]
    for chance in first.probabilities:
        for count, each in enumerate(of_k):
            total[count] += chance * each
        of_k = convolved(of_k, list(second.probabilities))
    return total


def copies_of_tries(hop: Finite, confirm: Fraction, tries: int) -> Probabilities:
    """By the definition: walk the tries, with the copies so far and whether one of them was confirmed."""
    waiting: Probabilities = [Fraction(1)]
    done: Probabilities = [Fraction(0)] * (tries * len(hop.probabilities) + 1)
    for _ in range(tries):
        unconfirmed = [chance * (1 - confirm) ** count for count, chance in enumerate(hop.probabilities)]
        confirmed = [chance - left for chance, left in zip(hop.probabilities, unconfirmed, strict=True)]
        for count, chance in enumerate(convolved(waiting, confirmed)):
            done[count] += chance
        waiting = convolved(waiting, unconfirmed)
    for count, chance in enumerate(waiting):
        done[count] += chance
    return done


def at_points(hop: Copies) -> Probabilities:
    """As many values of G as a test has coefficients: two polynomials that agree in them are the same."""
    return [hop.at(Fraction(point, 100)) for point in range(101)]


@few
@given(hops)
def test_a_generating_function_rises_from_the_lost_to_one(hop: Copies) -> None:
    values = at_points(hop)
    assert values == sorted(values)
    assert [values[0], values[-1]] == [hop.lost, 1]


@few
@given(hops, hops, hops)
def test_composition_is_associative(one: Copies, two: Copies, three: Copies) -> None:
    left, right = one.then(two).then(three), one.then(two.then(three))
    assert at_points(left) == at_points(right)
    assert left.mean == right.mean


@few
@given(finites, finites)
def test_composition_is_the_copies_of_copies(first: Finite, second: Finite) -> None:
    expected = Finite(tuple(copies_of_copies(first, second)))
    assert at_points(first.then(second)) == at_points(expected)
    assert first.then(second).mean == expected.mean


@few
@given(finites, fractions(), st.integers(0, 3))
def test_resending_is_the_copies_of_all_tries(hop: Finite, confirm: Fraction, retries: int) -> None:
    expected = Finite(tuple(copies_of_tries(hop, confirm, retries + 1)))
    found = resent(hop, confirm, retries)
    assert at_points(found) == at_points(expected)
    assert found.mean == expected.mean


@few
@given(finites.filter(lambda hop: hop.lost < 1), fractions(low=1))
def test_resending_for_ever_is_the_limit_of_resending_often(hop: Finite, confirm: Fraction) -> None:
    often, always = resent(hop, confirm, 200), resent(hop, confirm)
    unfinished = hop.at(1 - confirm) ** 201
    assert abs(often.lost - always.lost) <= unfinished
    assert abs(often.mean - always.mean) <= unfinished * always.mean


@few
@given(fractions(low=1), fractions())
def test_sending_until_confirmed_over_a_sure_hop_is_geometric(stop: Fraction, z: Fraction) -> None:
    hop = geometric(stop)
    assert hop.at(z) == stop * z / (1 - (1 - stop) * z)
    assert [hop.lost, hop.mean] == [0, 1 / stop]


def test_digits_are_not_lost_where_floats_would_lose_them() -> None:
    rare = resent(bernoulli(Fraction(1, 10**12)), Fraction(1, 10**12))
    assert rare.mean == 10**12
    assert rare.lost == 0
    assert resent(bernoulli(0.5), 1, 100).lost == Fraction(1, 2**101)


def test_a_float_counts_as_it_is_written() -> None:
    assert exact(0.1) == Fraction(1, 10)


def test_sending_that_could_never_end_is_refused() -> None:
    with pytest.raises(BadRequest, match="no confirm comes back"):
        resent(bernoulli(1), 0)
    with pytest.raises(BadRequest, match="nothing arrives"):
        resent(bernoulli(0), 1)
