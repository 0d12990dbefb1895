"""A composed route promises what its pipes give over its channel, and says plainly where it is broken."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.declarations import DECLARATIONS, Fault, Need, Tactic
from headpond.pipes.calculus.delivery import UNRATED, Channel, DeliveryMode, Finite, delivery, resent
from headpond.pipes.calculus.flow import RateBounds
from headpond.pipes.calculus.interval import tally
from headpond.pipes.calculus.orders import Order, OrderCheck, implies
from headpond.pipes.calculus.promise import Outlook, RoutePromise, promise_of
from headpond.pipes.calculus.route import Route, parse_route

WORST = Channel(loss=0.2, duplicate=0.05, reorder=0.1, confirm_loss=0.1)
LOSSY = Channel(loss=0.2, confirm_loss=0.1)

rates = st.integers(0, 9).map(lambda tenths: Fraction(tenths, 10))
channels = st.builds(
    Channel,
    loss=rates,
    duplicate=rates,
    reorder=rates,
    confirm_loss=rates,
    faults=st.frozensets(st.sampled_from(sorted(UNRATED)), max_size=2),
)
rated_channels = st.builds(Channel, loss=rates, duplicate=rates, reorder=rates, confirm_loss=rates)
names = [each.name for each in DECLARATIONS]
routes = st.lists(st.sampled_from(names), min_size=1, max_size=3).map(
    lambda parts: parse_route(" | ".join(parts))
)
careless_routes = st.lists(
    st.sampled_from([each.name for each in DECLARATIONS if Need.BACKTRACEABLE not in each.needs]), max_size=2
).map(lambda parts: parse_route(" | ".join([*parts, "continuous(gaps=false)"])))
"""Nothing is sent again, and the last pipe waits for it."""
RESENDING = (Tactic.RESEND_ONE, Tactic.RESEND_MANY)
few = settings(max_examples=100, deadline=None)


def shares(outlook: Outlook) -> list[float]:
    return [float(each) for each in (outlook.reliability.low, outlook.reliability.high, outlook.uniqueness.low)]


# --- what routes promise ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "channel", "mode", "order"),
    [
        ("resend", LOSSY, DeliveryMode.AT_LEAST_ONCE, Order.CONTINUOUS),
        ("resend", WORST, DeliveryMode.AT_LEAST_ONCE, None),
        ("resend_many", LOSSY, DeliveryMode.AT_LEAST_ONCE, None),
        ("stream", WORST, DeliveryMode.AT_LEAST_ONCE, None),
        ("resend_many | dedup", WORST, DeliveryMode.EXACTLY_ONCE, None),
        ("resend | dedup", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("resend | dedup(by=index)", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("resend_many | dedup(by=index)", WORST, DeliveryMode.AT_MOST_ONCE, Order.STRICT),
        ("index", WORST, DeliveryMode.AT_MOST_ONCE, Order.STRICT),
        ("index(strict=false)", WORST, DeliveryMode.UNRELIABLE, Order.MONOTONIC),
        ("resend_many | continuous", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("resend_many | continuous(strict=false)", WORST, DeliveryMode.AT_LEAST_ONCE, Order.CONTINUOUS),
        ("resend_many | dedup | sequential", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("sequential", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("resend_many | continuous(gaps=false)", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("stream | dedup | continuous", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("dedup", WORST, DeliveryMode.AT_MOST_ONCE, None),
        ("dedup", Channel(duplicate=0.5), DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
        ("index | sequential", WORST, DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE),
    ],
)
def test_a_route_promises_its_mode_and_order(
    route: str, channel: Channel, mode: DeliveryMode, order: Order | None
) -> None:
    promise = promise_of(route, channel)
    assert promise.holds
    assert (promise.outlook.mode, promise.outlook.order) == (mode, order)


def test_the_uniqueness_of_resending_is_that_of_the_confirms() -> None:
    outlook = promise_of("resend_many", LOSSY).outlook
    assert outlook.uniqueness == RateBounds(Fraction(9, 10), Fraction(9, 10))
    assert outlook.copies is not None
    assert outlook.copies.mean == Fraction(10, 9)


def test_an_index_drops_messages_that_are_sent_again_and_come_late() -> None:
    promise = promise_of("resend_many | index", Channel(loss=0.2))
    assert shares(promise.outlook) == [0.8, 1, 1]
    assert any("continuous would wait" in remark for remark in promise.steps[-1].remarks)
    # Sent one at a time, nothing comes late.
    assert shares(promise_of("resend | index", Channel(loss=0.2)).outlook) == [1, 1, 1]


def test_how_much_is_lost_beneath_does_not_matter_to_the_uniqueness_of_resending() -> None:
    assert not promise_of("index", WORST).outlook.reliability.exact
    assert shares(promise_of("index | resend", WORST).outlook) == [1, 1, 0.9]


def test_bounds_hold_for_whatever_a_dropping_pipe_may_have_dropped() -> None:
    """However much of it the index drops, resending over the rest is no less unique than promised."""
    low = promise_of("index(strict=false) | resend", WORST).outlook.uniqueness.low
    assert 0 < low <= Fraction(9, 10)
    doubled = WORST.copies.probabilities[2]
    for arrives in (WORST.prompt, Fraction(3, 4), 1 - WORST.copies.lost):
        for twice in (Fraction(0), doubled / 2, doubled):
            left = Finite((1 - arrives, arrives - twice, twice))
            assert low <= delivery(resent(left, WORST.confirm)).uniqueness


@pytest.mark.parametrize("pipe", ["resend", "resend_many"])
def test_copies_that_come_while_a_message_is_worked_on_are_dropped_so_uniqueness_is_a_range(pipe: str) -> None:
    plain = promise_of(pipe, Channel(duplicate=0.3)).outlook.uniqueness
    waiting = promise_of(f"{pipe}(confirm=settled)", Channel(duplicate=0.3)).outlook.uniqueness
    assert plain.exact
    assert waiting == RateBounds(plain.low, Fraction(1))


def test_a_tolerated_fault_keeps_the_mode_and_takes_the_number() -> None:
    promise = promise_of("resend_many", Channel(faults=frozenset({Fault.RECEIVER_CRASH})))
    assert promise.holds
    assert promise.outlook.mode is DeliveryMode.AT_LEAST_ONCE
    assert promise.outlook.uniqueness == RateBounds(Fraction(0), Fraction(1))
    assert promise.outlook.copies is None


def test_a_route_that_fails_loses_unless_a_pipe_sends_again() -> None:
    fails = Channel(faults=frozenset({Fault.ROUTE_FAILURE}))
    assert promise_of("index", fails).outlook.mode is DeliveryMode.AT_MOST_ONCE
    assert promise_of("resend | index", fails).outlook.mode is DeliveryMode.EXACTLY_ONCE
    assert promise_of("resend_many | index", fails).outlook.mode is DeliveryMode.AT_MOST_ONCE
    assert promise_of("resend_many | continuous", fails).outlook.mode is DeliveryMode.EXACTLY_ONCE


# --- broken routes ----------------------------------------------------------------------------------


def only_breach(promise: RoutePromise) -> tuple[str, str]:
    (breach,) = promise.breaches
    assert not promise.holds
    assert (promise.outlook.reliability.low, promise.outlook.order) == (Fraction(0), None)
    return breach.sentence, breach.mend


@pytest.mark.parametrize("pipe", ["continuous", "continuous(gaps=false)"])
def test_continuous_over_a_route_that_loses_is_broken(pipe: str) -> None:
    sentence, mend = only_breach(promise_of(pipe, Channel(loss=0.2)))
    assert sentence == (
        f"{pipe} needs a route that delivers at least once, and the one beneath loses 0.2 of "
        "all messages: it would wait for ever for the first message lost"
    )
    assert mend == f"Put resend, resend_many or stream beneath it: resend_many | {pipe}"


@pytest.mark.parametrize("pipe", ["resend", "sequential", "continuous"])
def test_a_pipe_that_waits_for_answers_is_broken_without_a_way_back(pipe: str) -> None:
    assert "backtraceable" in only_breach(promise_of(pipe, Channel(backtraceable=False)))[0]
    assert promise_of("continuous(gaps=false)", Channel(backtraceable=False)).holds


@pytest.mark.parametrize(
    ("route", "channel", "mended"),
    [
        ("resend_many(window=64) | dedup(window=16)", LOSSY, "resend_many(window=64) | dedup(window=1024)"),
        ("resend_many(window=8192) | dedup", LOSSY, "resend_many(window=8192) | dedup(window=131072)"),
        (
            "resend_many | continuous(gaps=false, queue=4096)",
            LOSSY,
            "resend_many | continuous(gaps=false)",
        ),
        (
            "stream(window=2000) | dedup | continuous(gaps=false)",
            LOSSY,
            "stream(window=2000) | dedup | continuous(queue=32000, gaps=false)",
        ),
        ("dedup(window=1)", Channel(reorder=0.1, late=300), "dedup(window=300)"),
    ],
)
def test_too_little_room_for_late_messages_breaks_the_route_and_the_breach_names_the_value_to_write(
    route: str, channel: Channel, mended: str
) -> None:
    sentence, mend = only_breach(promise_of(route, channel))
    assert "others late" in sentence
    assert mend.endswith(f": {mended}")
    assert promise_of(mended, channel).holds


@pytest.mark.parametrize(
    "route",
    [
        "resend | dedup(window=1)",
        "resend_many | index | dedup(window=1)",
        "resend_many | continuous | continuous(gaps=false, queue=1)",
        "sequential | dedup(window=1)",
        "resend_many(window=1) | dedup(window=1)",
        "resend_many | continuous(queue=1)",
    ],
)
def test_where_nothing_comes_late_or_is_asked_for_again_little_room_is_enough(route: str) -> None:
    assert promise_of(route, LOSSY).holds


def test_how_late_a_packet_may_be_is_a_number_of_others() -> None:
    with pytest.raises(BadRequest, match="late must be from 1"):
        Channel(late=0)


def test_continuous_is_broken_over_a_pipe_that_may_drop() -> None:
    sentence, _ = only_breach(promise_of("resend_many | index | continuous(gaps=false)", LOSSY))
    assert "may lose up to 0.2 of all messages" in sentence


def test_resending_needs_a_way_back_and_something_that_gets_through() -> None:
    assert "backtraceable" in only_breach(promise_of("resend", Channel(backtraceable=False)))[0]
    assert "backtraceable" in only_breach(promise_of("resend", Channel(confirm_loss=1)))[0]
    assert "accessible" in only_breach(promise_of("resend", Channel(loss=1)))[0]
    assert promise_of("index | dedup", Channel(backtraceable=False)).holds


def test_a_breach_is_reported_once_in_its_place() -> None:
    promise = promise_of("continuous(gaps=false) | dedup | sequential", Channel(loss=0.5))
    assert [breach.position for breach in promise.breaches] == [0]
    assert [step.promised for step in promise.steps] == [False, False, False]


@pytest.mark.parametrize("name", names)
@pytest.mark.parametrize("fault", sorted(UNRATED))
def test_a_fault_that_a_pipe_does_not_tolerate_breaks_the_route(name: str, fault: Fault) -> None:
    pipe = next(each for each in DECLARATIONS if each.name == name)
    mended = parse_route(f"resend | {name}" if fault in pipe.left_to_route else name)
    breaches = promise_of(mended, Channel(faults=frozenset({fault}))).breaches
    assert bool(breaches) == (fault in pipe.does_not_tolerate)
    assert all(fault in breach.sentence and breach.mend for breach in breaches)


@few
@given(careless_routes, rated_channels)
def test_the_named_remedy_mends_a_route_that_does_not_deliver_at_least_once(
    route: Route, channel: Channel
) -> None:
    promise = promise_of(route, channel)
    assume(promise.breaches)
    for _ in range(len(route.stages) + 1):
        if promise.holds:
            return
        promise = promise_of(promise.breaches[0].mend.split(": ")[1], channel)
    pytest.fail(f"{promise.route} is still broken: {promise.breaches}")


# --- laws -------------------------------------------------------------------------------------------


@few
@given(routes, channels)
def test_every_promise_is_in_range(route: Route, channel: Channel) -> None:
    promise = promise_of(route, channel)
    for outlook in (promise.bare, *(step.outlook for step in promise.steps)):
        assert 0 <= outlook.reliability.low <= outlook.reliability.high <= 1
        assert 0 <= outlook.uniqueness.low <= outlook.uniqueness.high <= 1
    assert promise.holds == (not promise.breaches) == promise.steps[-1].promised


@few
@given(routes, channels)
def test_a_pipe_gives_the_order_it_declares(route: Route, channel: Channel) -> None:
    promise = promise_of(route, channel)
    assume(promise.holds)
    step = promise.steps[-1]
    assert implies(step.outlook.order, step.stage.declaration.order)


@few
@given(routes, rated_channels)
def test_dedup_over_any_route_keeps_reliability_and_leaves_no_repeat(route: Route, channel: Channel) -> None:
    before, after = promise_of(route, channel), promise_of(f"{route} | dedup", channel)
    assume(after.holds)
    assert after.outlook.reliability == before.outlook.reliability
    assert after.outlook.uniqueness == RateBounds(Fraction(1), Fraction(1))


def sends_again_over_what_waits(route: Route) -> bool:
    waits = False
    for stage in route.stages:
        if waits and stage.declaration.tactic in (*RESENDING, Tactic.ASK_GAPS_PASS_EQUAL):
            return True
        waits = waits or stage.pipe not in ("index", "dedup")
    return False


@few
@given(routes)
def test_over_a_perfect_channel_a_route_is_exactly_once_in_absolute_order(route: Route) -> None:
    outlook = promise_of(route).outlook
    assume(not sends_again_over_what_waits(route))
    assert (outlook.mode, outlook.order) == (DeliveryMode.EXACTLY_ONCE, Order.ABSOLUTE)


@pytest.mark.parametrize(
    ("route", "order"),
    [
        ("resend | resend_many", None),
        ("resend | dedup | resend", Order.CONTINUOUS),
        ("stream | continuous | resend", Order.CONTINUOUS),
        ("resend | continuous(strict=false)", Order.CONTINUOUS),
    ],
)
def test_a_timer_over_a_pipe_that_makes_messages_wait_sends_an_unknown_number_of_copies(
    route: str, order: Order | None
) -> None:
    promise = promise_of(route)
    assert promise.outlook.reliability == RateBounds(Fraction(1), Fraction(1))
    assert (promise.outlook.uniqueness, promise.outlook.order) == (RateBounds(Fraction(0), Fraction(1)), order)


def test_pipes_that_pass_on_at_once_leave_a_timer_sure() -> None:
    promise = promise_of("index | dedup | resend_many", Channel(confirm_loss=0.1))
    assert promise.outlook.uniqueness == RateBounds(Fraction(9, 10), Fraction(9, 10))


@few
@given(routes, channels)
def test_a_pipe_that_needs_at_least_once_is_broken_exactly_without_it(route: Route, channel: Channel) -> None:
    over = promise_of(f"{route} | continuous(gaps=false)", channel)
    beneath = promise_of(route, channel)
    assume(beneath.holds)
    reported = any(str(Need.AT_LEAST_ONCE) in breach.sentence for breach in over.breaches)
    assert reported == (beneath.outlook.reliability.low < 1)


# --- against a walk through time --------------------------------------------------------------------


def arrivals(random: Random, messages: int, channel: Channel, *, resends: bool) -> list[int]:
    """Indices as they arrive: one message per tick, a late copy 9 ticks later, a re-send after 100 ticks."""
    came: list[tuple[float, int]] = []
    for index in range(messages):
        tick, confirmed = float(index), False
        while not confirmed:
            lost = random.random() < channel.loss
            for _ in range(0 if lost else 1 + (random.random() < channel.duplicate)):
                came.append((tick + 9.5 * (random.random() < channel.reorder), index))
                confirmed |= random.random() >= channel.confirm_loss
            tick += 100.25
            confirmed |= not resends
    return [index for _, index in sorted(came)]


def above_the_last(indices: list[int], *, strict: bool) -> list[int]:
    passed, last = [], -1
    for index in indices:
        if index > last or (index == last and not strict):
            passed.append(index)
            last = index
    return passed


def check(indices: list[int], messages: int, promise: RoutePromise) -> None:
    copies = [0] * messages
    order = OrderCheck()
    order.take(indices)
    for index in indices:
        copies[index] += 1
    measured, outlook = tally(copies), promise.outlook
    assert measured.reliability().agrees(outlook.reliability.low, outlook.reliability.high)
    assert measured.uniqueness().agrees(outlook.uniqueness.low, outlook.uniqueness.high)
    assert implies(order.order, outlook.order)


@pytest.mark.parametrize("seed", range(6))
def test_a_walk_through_time_agrees_with_the_promise(seed: int) -> None:
    random, messages = Random(seed), 4000
    loss, duplicate, reorder, confirm_loss = (random.choice([0, 0.1, 0.3]) for _ in range(4))
    channel = Channel(loss=loss, duplicate=duplicate, reorder=reorder, confirm_loss=confirm_loss)
    bare = arrivals(random, messages, channel, resends=False)
    again = arrivals(random, messages, channel, resends=True)
    check(above_the_last(bare, strict=True), messages, promise_of("index", channel))
    check(above_the_last(bare, strict=False), messages, promise_of("index(strict=false)", channel))
    check(list(dict.fromkeys(bare)), messages, promise_of("dedup", channel))
    check(again, messages, promise_of("resend_many", channel))
    check(list(dict.fromkeys(again)), messages, promise_of("resend_many | dedup", channel))
    check(above_the_last(again, strict=True), messages, promise_of("resend_many | index", channel))
    check(
        above_the_last(again, strict=False), messages, promise_of("resend_many | index(strict=false)", channel)
    )


# --- channels ---------------------------------------------------------------------------------------


def test_a_channels_rates_are_probabilities() -> None:
    with pytest.raises(BadRequest, match="confirm loss must be from 0 to 1, not 2"):
        Channel(confirm_loss=2)


def test_a_fault_with_a_rate_must_be_given_as_a_rate() -> None:
    with pytest.raises(BadRequest, match="loss is given as a rate"):
        Channel(faults=frozenset({Fault.LOSS}))
