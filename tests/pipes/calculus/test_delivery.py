"""R, UR and the laws by which deliveries combine."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.delivery import (
    Channel,
    Copies,
    DeliveryMode,
    DeliveryRates,
    Finite,
    bernoulli,
    delivery,
    mode_of,
    product_law,
    resent,
)
from headpond.pipes.calculus.interval import tally
from tests.pipes.calculus.distributions import fractions, hops, single

few = settings(max_examples=60, deadline=None)
ONE = Fraction(1)


def numbers(found: DeliveryRates) -> tuple[float, float]:
    return float(found.reliability), float(found.uniqueness)


def channel(loss: float = 0, duplicate: float = 0) -> Finite:
    return Channel(loss=loss, duplicate=duplicate).copies


# --- the examples -----------------------------------------------------------------------------------


def test_one_and_two_retries_of_a_route_that_loses_half() -> None:
    assert numbers(delivery(resent(channel(loss=0.5), 1, 1))) == (0.75, 1)
    assert numbers(delivery(resent(channel(loss=0.5), 1, 2))) == (0.875, 1)


def test_endless_retries_over_a_route_that_loses_half_both_ways() -> None:
    assert numbers(delivery(resent(bernoulli(0.5), 0.5))) == (1, 0.5)


@few
@given(fractions(low=1), fractions(low=1))
def test_retrying_until_confirmed_has_the_uniqueness_of_the_confirms(
    arrives: Fraction, confirm: Fraction
) -> None:
    assert delivery(resent(bernoulli(arrives), confirm)) == DeliveryRates(ONE, confirm)


def test_a_repeat_is_a_second_chance() -> None:
    twice, half = Finite((Fraction(0), Fraction(0), ONE)), channel(loss=0.5)
    assert numbers(delivery(twice)) == (1, 0.5)
    assert numbers(delivery(twice.then(half))) == (0.75, 0.75)
    assert numbers(product_law([twice, half])) == (0.5, 0.5)


def test_a_hop_that_delivers_nothing_repeats_nothing() -> None:
    assert numbers(delivery(channel(loss=1, duplicate=0.5))) == (0, 1)


# --- the laws ---------------------------------------------------------------------------------------


@few
@given(hops)
def test_reliability_and_uniqueness_are_shares(hop: Copies) -> None:
    found = delivery(hop)
    assert 0 <= found.reliability <= 1
    assert 0 < found.uniqueness <= 1
    assert found.reliability == found.uniqueness * hop.mean


@few
@given(st.lists(single, min_size=1, max_size=4))
def test_without_repeats_the_product_law_is_the_exact_one(row: list[Copies]) -> None:
    assert product_law(row) == delivery(reduce(Copies.then, row))


@few
@given(hops, hops)
def test_the_product_law_never_promises_more_reliability_than_there_is(one: Copies, two: Copies) -> None:
    assert delivery(one.then(two)).reliability >= product_law([one, two]).reliability


@few
@given(hops.filter(lambda hop: hop.lost < 1), hops.filter(lambda hop: hop.lost < 1))
def test_a_row_loses_if_either_loses_and_repeats_if_either_repeats(one: Copies, two: Copies) -> None:
    row, first, second = delivery(one.then(two)), delivery(one), delivery(two)
    assert (row.reliability == 1) == (first.reliability == second.reliability == 1)
    assert (row.uniqueness == 1) == (first.uniqueness == second.uniqueness == 1)


@few
@given(hops, st.integers(0, 3))
def test_a_retry_never_lowers_reliability(hop: Copies, retries: int) -> None:
    fewer, more = delivery(resent(hop, 1, retries)), delivery(resent(hop, 1, retries + 1))
    assert more.reliability >= fewer.reliability


def test_the_four_modes() -> None:
    less = Fraction(9, 10)
    assert mode_of(less, less) is DeliveryMode.UNRELIABLE
    assert mode_of(less, ONE) is DeliveryMode.AT_MOST_ONCE
    assert mode_of(ONE, less) is DeliveryMode.AT_LEAST_ONCE
    assert mode_of(ONE, ONE) is DeliveryMode.EXACTLY_ONCE


def test_a_row_of_hops_gets_worse_and_sending_again_around_it_mends_it() -> None:
    hops: list[Copies] = [channel(loss=0.1)] * 10
    row = reduce(Copies.then, hops)
    assert float(delivery(row).reliability) == pytest.approx(0.9**10)
    assert numbers(delivery(resent(row, 0.5))) == (1, 0.5)


@pytest.mark.parametrize("loss", [-0.1, 1.1, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(loss: float) -> None:
    with pytest.raises(BadRequest):
        channel(loss=loss)


# --- against sampling -------------------------------------------------------------------------------


def over_channel(random: Random, loss: float, duplicate: float) -> int:
    return 0 if random.random() < loss else 1 + (random.random() < duplicate)


def until_confirmed(random: Random, loss: float, duplicate: float, confirm: float) -> int:
    copies = 0
    while True:
        arrived = over_channel(random, loss, duplicate)
        copies += arrived
        if sum(random.random() < confirm for _ in range(arrived)):
            return copies


@pytest.mark.parametrize("seed", range(4))
def test_sampled_runs_agree_with_the_computed_rates(seed: int) -> None:
    random = Random(seed)
    loss, duplicate, confirm = (round(random.uniform(0.05, 0.6), 2) for _ in range(3))
    second = round(random.uniform(0.1, 0.6), 2)
    copies = [
        sum(over_channel(random, second, 0) for _ in range(until_confirmed(random, loss, duplicate, confirm)))
        for _ in range(10_000)
    ]
    hop = resent(channel(loss, duplicate), confirm).then(channel(second))
    measured, computed = tally(copies), delivery(hop)
    assert measured.reliability().holds(computed.reliability)
    assert measured.uniqueness().holds(computed.uniqueness)
    # And the check can fail: a twentieth off is noticed.
    assert not measured.reliability().holds(computed.reliability * Fraction(19, 20))
    assert not measured.uniqueness().holds(computed.uniqueness * Fraction(19, 20))


def test_bernoulli_is_the_channel_that_only_loses() -> None:
    assert delivery(bernoulli(0.75)) == delivery(channel(loss=0.25))
