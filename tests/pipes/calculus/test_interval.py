"""An interval holds the truth as often as it says, so that agreement with a prediction is computed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.calculus.interval import (
    CopyTally,
    Interval,
    tally,
    wilson,
)


def test_wilsons_interval_has_its_known_values() -> None:
    found = wilson(5, 10, 0.95)
    assert (found.low, found.high) == pytest.approx((0.236593, 0.763407), abs=1e-6)
    found = wilson(0, 20, 0.95)
    assert (found.low, found.high) == pytest.approx((0, 0.161125), abs=1e-6)


@given(st.integers(0, 2000), st.integers(0, 2000), st.sampled_from([0.5, 0.9, 0.999, 0.999999]))
def test_an_interval_holds_the_measured_value_and_stays_within_0_and_1(
    good: int, bad: int, level: float
) -> None:
    found = wilson(good, good + bad, level)
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_wilsons_interval_holds_the_truth_as_often_as_it_says(share: float) -> None:
    trials = 60
    covered = sum(
        math.comb(trials, good) * share**good * (1 - share) ** (trials - good)
        for good in range(trials + 1)
        if wilson(good, trials, 0.95).holds(share)
    )
    assert 0.92 < covered < 0.99


def coverage(draw: Callable[[Random], int], uniqueness: float) -> float:
    random, runs = Random(11), 400
    held = sum(tally(draw(random) for _ in range(300)).uniqueness(0.95).holds(uniqueness) for _ in range(runs))
    return held / runs


def test_the_interval_of_uniqueness_holds_the_truth_as_often_as_it_says() -> None:
    assert coverage(lambda random: 1 + (random.random() < 0.25), 0.8) > 0.92
    # Repeats that come in heaps make a run say less than its size.
    assert coverage(lambda random: 11 if random.random() < 0.1 else 1, 0.5) > 0.9
    assert coverage(lambda random: random.choice([0, 0, 1, 3]), 0.5) > 0.92


def test_repeats_in_heaps_widen_the_interval() -> None:
    spread, heaped = tally(Counter({1: 500, 2: 500}).elements()), tally(Counter({1: 950, 11: 50}).elements())
    assert spread.received == heaped.received
    width = [each.uniqueness().high - each.uniqueness().low for each in (spread, heaped)]
    assert width[1] > 1.5 * width[0]


def test_a_run_without_a_repeat_does_not_claim_certainty() -> None:
    found = tally(Counter({1: 1000}).elements()).uniqueness()
    assert (found.value, found.high) == (1, 1)
    assert 0.98 < found.low < 1
    assert found.holds(1)
    assert not found.holds(0.9)


def test_a_single_loss_rules_out_that_nothing_is_ever_lost() -> None:
    assert tally(Counter({1: 100_000}).elements()).reliability().holds(1)
    assert not tally(Counter({1: 99_999, 0: 1}).elements()).reliability().holds(1)


def test_a_run_that_sent_or_received_nothing_says_nothing() -> None:
    empty = CopyTally()
    assert (empty.reliability().low, empty.reliability().high) == (0, 1)
    assert (empty.uniqueness().low, empty.uniqueness().high) == (0, 1)


def test_a_tally_counts_messages_and_copies() -> None:
    assert tally([0, 1, 3, 1, 0]) == CopyTally(sent=5, unique=3, received=5, squares=11)


def test_agreement_is_a_statement() -> None:
    found = Interval(0.9, 0.88, 0.92, 0.95)
    assert found.compare("R", 0.91, 0.91)[0]
    assert found.compare("R", 0.5, 0.9)[0]
    sentence = "measured R 0.9 (0.88 to 0.92 at 0.95) DISAGREES with predicted 0.93 to 1"
    assert found.compare("R", 0.93, 1) == (False, sentence)
