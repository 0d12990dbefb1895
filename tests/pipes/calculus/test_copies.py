"""A generating function knows the whole distribution of copies, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.copies import Copies, Finite, bernoulli, exact, finite, resent
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


@few
@given(hops)
def test_probabilities_are_none_below_zero_and_add_up_to_one(hop: Copies) -> None:
    head = hop.head(8)
    assert min(head.probabilities) >= 0
    assert head.rest >= 0
    assert sum(head.probabilities) + head.rest == 1
    assert hop.at(1) == 1
    assert hop.at(0) == hop.lost == head.probabilities[0]


@few
@given(hops, hops, hops, fractions())
def test_composition_is_associative(one: Copies, two: Copies, three: Copies, z: Fraction) -> None:
    left, right = one.then(two).then(three), one.then(two.then(three))
    assert left.at(z) == right.at(z)
    assert left.mean == right.mean
    assert left.head(5) == right.head(5)


@few
@given(hops, hops)
def test_means_multiply_along_a_row_of_hops(one: Copies, two: Copies) -> None:
    assert one.then(two).mean == one.mean * two.mean


@few
@given(finites, finites)
def test_composition_is_the_copies_of_copies(first: Finite, second: Finite) -> None:
    expected = copies_of_copies(first, second)
    head = first.then(second).head(len(expected))
    assert list(head.probabilities) == expected
    assert head.rest == 0


@few
@given(finites, fractions(), st.integers(0, 3))
def test_resending_is_the_copies_of_all_tries(hop: Finite, confirm: Fraction, retries: int) -> None:
    expected = copies_of_tries(hop, confirm, retries + 1)
    assert list(resent(hop, confirm, retries).head(len(expected)).probabilities) == expected


@few
@given(finites.filter(lambda hop: hop.lost < 1), fractions(low=1))
def test_resending_for_ever_is_the_limit_of_resending_often(hop: Finite, confirm: Fraction) -> None:
    often, always = resent(hop, confirm, 200), resent(hop, confirm)
    unfinished = hop.at(1 - confirm) ** 201
    assert abs(often.lost - always.lost) <= unfinished
    assert abs(often.head(4).probabilities[3] - always.head(4).probabilities[3]) <= unfinished


@few
@given(finites)
def test_the_mean_of_a_finite_distribution_is_its_sum(hop: Finite) -> None:
    assert hop.mean == sum(count * chance for count, chance in enumerate(hop.probabilities))


@few
@given(fractions(low=1), st.integers(1, 9))
def test_sending_until_confirmed_over_a_sure_hop_is_geometric(stop: Fraction, count: int) -> None:
    hop = geometric(stop)
    head = hop.head(count + 1)
    assert head.probabilities[count] == (1 - stop) ** (count - 1) * stop
    assert [hop.lost, hop.mean] == [0, 1 / stop]
    assert head.rest == (1 - stop) ** count


def test_a_table_gives_the_exact_probability_beyond_its_end() -> None:
    head = geometric(0.5).head(4)
    assert list(head.probabilities) == [0, Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    assert head.rest == Fraction(1, 8)


def test_digits_are_not_lost_where_floats_would_lose_them() -> None:
    rare = resent(bernoulli(Fraction(1, 10**12)), Fraction(1, 10**12))
    assert rare.mean == 10**12
    assert rare.lost == 0
    assert resent(bernoulli(0.5), 1, 100).lost == Fraction(1, 2**101)


def test_a_float_counts_as_it_is_written() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert finite([0.1, 0.2, 0.7]).probabilities[1] == Fraction(1, 5)


@pytest.mark.parametrize("probabilities", [[], [0.5], [0.5, 0.6], [-1, 2], [float("nan")], [float("inf")]])
def test_a_malformed_distribution_is_refused(probabilities: list[float]) -> None:
    with pytest.raises(BadRequest):
        finite(probabilities)


def test_sending_that_could_never_end_is_refused() -> None:
    with pytest.raises(BadRequest, match="no confirm comes back"):
        resent(bernoulli(1), 0)
    with pytest.raises(BadRequest, match="nothing arrives"):
        resent(bernoulli(0), 1)


def test_a_computation_that_would_take_too_long_is_refused() -> None:
    with pytest.raises(BadRequest, match="retries"):
        resent(bernoulli(1), 1, 10**6)
    with pytest.raises(BadRequest, match="probabilities"):
        bernoulli(1).head(10**6)
