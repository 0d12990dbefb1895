"""R, UR and the laws by which deliveries combine."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.copies import Copies, bernoulli, finite, resent
from headpond.pipes.calculus.delivery import (
    DeliveryMode,
    DeliveryRates,
    channel,
    compare_laws,
    dedup,
    delivery,
    mode_of,
    pipeline,
    product_law,
    retry,
    retry_until_confirmed,
    wrap,
)
from headpond.pipes.calculus.interval import tally_messages
from tests.pipes.calculus.distributions import fractions, hops, single

few = settings(max_examples=60, deadline=None)
HALF = Fraction(1, 2)


def numbers(found: DeliveryRates) -> tuple[float, float]:
    return float(found.reliability), float(found.uniqueness)


# --- the examples -----------------------------------------------------------------------------------


def test_one_and_two_retries_of_a_route_that_loses_half() -> None:
    assert numbers(delivery(retry(channel(loss=0.5), 1))) == (0.75, 1)
    assert numbers(delivery(retry(channel(loss=0.5), 2))) == (0.875, 1)


def test_endless_retries_over_a_route_that_loses_half_both_ways() -> None:
    assert numbers(delivery(retry_until_confirmed(0.5, 0.5))) == (1, 0.5)


@few
@given(fractions(low=1), fractions(low=1))
def test_retrying_until_confirmed_has_the_uniqueness_of_the_confirms(
    arrives: Fraction, confirm: Fraction
) -> None:
    found = delivery(retry_until_confirmed(arrives, confirm))
    assert [found.reliability, found.uniqueness] == [1, confirm]


def test_a_repeat_is_a_second_chance() -> None:
    laws = compare_laws(finite([0, 0, 1]), channel(loss=0.5))
    assert numbers(laws.exact) == (0.75, 0.75)
    assert numbers(laws.product) == (0.5, 0.5)
    assert not laws.agree


def test_a_duplication_rate_of_two_is_a_uniqueness_of_a_half() -> None:
    found = delivery(finite([0, 0, 1]))
    assert [found.duplication_rate, found.uniqueness, found.copies_mean] == [2, HALF, 2]


def test_where_nothing_arrives_nothing_is_repeated() -> None:
    assert numbers(delivery(channel(loss=1, duplicate=0.5))) == (0, 1)


# --- the laws ---------------------------------------------------------------------------------------


@few
@given(hops)
def test_reliability_and_uniqueness_are_shares(hop: Copies) -> None:
    found = delivery(hop)
    assert 0 <= found.reliability <= 1
    assert 0 < found.uniqueness <= 1
    assert found.reliability == found.uniqueness * found.copies_mean or found.reliability == 0


@few
@given(hops)
def test_dedup_keeps_reliability_and_leaves_no_repeat(hop: Copies) -> None:
    before, after = delivery(hop), delivery(dedup(hop))
    assert [after.reliability, after.uniqueness] == [before.reliability, 1]


@few
@given(st.lists(single, min_size=1, max_size=4))
def test_without_repeats_the_product_law_is_the_exact_one(row: list[Copies]) -> None:
    assert compare_laws(*row).agree


@few
@given(hops, hops)
def test_the_product_law_never_promises_more_reliability_than_there_is(one: Copies, two: Copies) -> None:
    laws = compare_laws(one, two)
    assert laws.exact.reliability >= laws.product.reliability


@few
@given(hops.filter(lambda hop: hop.lost < 1), hops.filter(lambda hop: hop.lost < 1))
def test_a_row_loses_if_either_loses_and_repeats_if_either_repeats(one: Copies, two: Copies) -> None:
    assert delivery(pipeline(one, two)).mode == delivery(one).mode.then(delivery(two).mode)


@few
@given(hops, st.integers(0, 3))
def test_a_retry_never_lowers_reliability(hop: Copies, retries: int) -> None:
    fewer, more = delivery(retry(hop, retries)), delivery(retry(hop, retries + 1))
    assert more.reliability >= fewer.reliability


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_LEAST_ONCE, DeliveryMode.UNRELIABLE),
        (DeliveryMode.EXACTLY_ONCE, DeliveryMode.AT_LEAST_ONCE, DeliveryMode.AT_LEAST_ONCE),
        (DeliveryMode.EXACTLY_ONCE, DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_MOST_ONCE),
        (DeliveryMode.EXACTLY_ONCE, DeliveryMode.EXACTLY_ONCE, DeliveryMode.EXACTLY_ONCE),
        *[(DeliveryMode.UNRELIABLE, each, DeliveryMode.UNRELIABLE) for each in DeliveryMode],
    ],
)
def test_modes_of_a_row(one: DeliveryMode, two: DeliveryMode, both: DeliveryMode) -> None:
    assert one.then(two) is two.then(one) is both


def test_the_four_modes() -> None:
    assert mode_of(0.9, 0.9) is DeliveryMode.UNRELIABLE
    assert mode_of(0.9, 1) is DeliveryMode.AT_MOST_ONCE
    assert mode_of(1, 0.9) is DeliveryMode.AT_LEAST_ONCE
    assert mode_of(1, 1) is DeliveryMode.EXACTLY_ONCE


def test_in_its_relaxed_meaning_a_mode_takes_near_for_there() -> None:
    nearly = delivery(retry(channel(loss=0.01), 3))
    assert nearly.mode is DeliveryMode.AT_MOST_ONCE
    assert mode_of(nearly.reliability, nearly.uniqueness, 0.001) is DeliveryMode.EXACTLY_ONCE


# --- wrapping ---------------------------------------------------------------------------------------


def test_a_row_of_hops_gets_worse_and_a_pipe_around_it_mends_it() -> None:
    row = [channel(loss=0.1)] * 10
    assert float(delivery(pipeline(*row)).reliability) == pytest.approx(0.9**10)
    assert numbers(delivery(wrap(*row, confirm=0.5))) == (1, 1)
    assert numbers(delivery(wrap(*row, confirm=0.5, unique=False))) == (1, 0.5)


def test_a_pipe_that_gives_up_is_only_as_reliable_as_its_tries() -> None:
    assert numbers(delivery(wrap(channel(loss=0.5), confirm=1, retries=2))) == (0.875, 1)


def test_no_hops_are_a_delivery_inside_one_process() -> None:
    assert numbers(delivery(pipeline())) == (1, 1)
    with pytest.raises(BadRequest):
        product_law()


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
    measured, computed = tally_messages(copies), delivery(hop)
    assert measured.reliability().holds(computed.reliability)
    assert measured.uniqueness().holds(computed.uniqueness)
    # And the check can fail: a twentieth off is noticed.
    assert not measured.reliability().holds(computed.reliability * Fraction(19, 20))
    assert not measured.uniqueness().holds(computed.uniqueness * Fraction(19, 20))


def test_bernoulli_is_the_channel_that_only_loses() -> None:
    assert bernoulli(0.75).head(3) == channel(loss=0.25).head(3)
