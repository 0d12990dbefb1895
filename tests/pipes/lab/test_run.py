"""A run measures R, UR and order, and agrees with the calculus."""

from __future__ import annotations

import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.orders import Order
from headpond.pipes.lab.faults import Crash, Delay, Faults
from headpond.pipes.lab.measure import Measure
from headpond.pipes.lab.run import run
from headpond.pipes.lab.world import spans

LOSSY = Faults(loss=0.2, duplicate=0.05, reorder=0.1, confirm_loss=0.1)
MESSAGES = 20_000


@pytest.mark.parametrize(
    "route",
    [
        "resend_many",
        "resend_many | dedup",
        "resend_many | continuous",
        "resend_many | dedup | index",
        "stream",
        "stream | dedup",
        "dedup",
        "index",
        "index(strict=false)",
        "dedup(by=index)",
    ],
)
def test_measured_agrees_with_predicted(route: str) -> None:
    result = run(route, LOSSY, MESSAGES, 1)
    assert result.predicted is not None
    assert result.predicted.agrees, result.predicted.sentences


@pytest.mark.parametrize("route", ["resend", "sequential", "resend | sequential", "resend | continuous"])
def test_measured_agrees_with_predicted_also_one_message_at_a_time(route: str) -> None:
    result = run(route, LOSSY, 2_000, 1)
    assert result.predicted is not None
    assert result.predicted.agrees, result.predicted.sentences


@pytest.mark.parametrize("loss", [0.0, 0.5, 0.9])
def test_uniqueness_is_the_confirm_rate_whatever_is_lost_on_the_way(loss: float) -> None:
    result = run("resend_many", Faults(loss=loss, confirm_loss=0.25), MESSAGES, 2)
    assert result.uniqueness.low <= 0.75 <= result.uniqueness.high
    assert result.reliability.value == 1.0


def test_a_disagreement_would_be_found() -> None:
    """The interval of such a run is narrow enough to tell a rate that is off by a fiftieth."""
    result = run("resend_many", Faults(confirm_loss=0.25), MESSAGES, 2)
    assert not result.uniqueness.low <= 0.77 <= result.uniqueness.high
    assert not result.uniqueness.low <= 0.73 <= result.uniqueness.high


@pytest.mark.parametrize(
    ("route", "faults"),
    [
        ("dedup -> index -> dedup", Faults(loss=0.1, duplicate=0.2)),
        ("index(strict=false) -> index(strict=false)", Faults(loss=0.3, duplicate=0.4)),
        ("resend_many -> resend_many", LOSSY),
        ("resend_many(confirm=settled) -> resend_many | dedup", LOSSY),
        ("resend_many(confirm=settled) | dedup -> resend_many | continuous", LOSSY),
        ("resend_many(confirm=settled)", Faults(duplicate=0.3)),
        ("resend_many(confirm=settled)", Faults(loss=0.2, confirm_loss=0.2, work_s=0.3)),
        ("resend_many(confirm=settled) | dedup", Faults(loss=0.2, confirm_loss=0.2, work_s=0.3)),
        ("resend_many", Faults(confirm_loss=0.2, work_s=0.3)),
        ("bare", LOSSY),
        ("channel(loss=0.5) -> channel(loss=0.2)", Faults()),
        ("channel(duplicate=1) -> channel(loss=0.5)", Faults(reorder=0.1)),
        ("resend_many(tries=2)", LOSSY),
        ("resend_many(tries=3) | dedup", LOSSY),
        ("resend_many(tries=2, confirm=settled) -> resend_many(tries=2)", LOSSY),
        ("channel(loss=0.1) | worker(fail=0.2) -> channel(loss=0.5)", Faults()),
        ("resend_many | dedup | worker(fail=0.2)", LOSSY),
        ("resend_many(confirm=settled) | worker(fail=0.2) -> resend_many | dedup", LOSSY),
        ("resend_many(confirm=settled) | dedup | worker(fail=0.2)", LOSSY),
        ("resend_many(confirm=settled)", Faults(crashes=(Crash("worker", 50),), work_s=0.05)),
        ("resend_many | dedup", Faults(crashes=(Crash("worker", 50),), work_s=0.05)),
        ("resend_many(confirm=settled) -> resend_many", Faults(crashes=(Crash("relay", 50),))),
        ("index", Faults(crashes=(Crash("sender", 500),))),
    ],
)
def test_measured_agrees_with_predicted_in_a_row_and_with_work_to_do(route: str, faults: Faults) -> None:
    result = run(route, faults, 5000, 1)
    assert result.predicted is not None
    assert result.predicted.agrees, result.predicted.sentences


# --- room for what comes late -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "faults", "messages"),
    [
        ("resend_many | continuous(gaps=false)", Faults(loss=0.8), 50_000),
        ("stream | continuous(gaps=false)", Faults(loss=0.8), 20_000),
        ("resend_many(window=64) | dedup", Faults(loss=0.3, confirm_loss=0.3), 3000),
        ("resend_many(window=512) | dedup(window=8192)", Faults(loss=0.9), 30_000),
    ],
)
def test_a_route_with_room_for_late_messages_loses_nothing(route: str, faults: Faults, messages: int) -> None:
    result = run(route, faults, messages, 1)
    assert result.predicted is not None
    assert (result.predicted.agrees, result.unique, result.received) == (True, messages, messages)


@pytest.mark.parametrize(
    ("route", "faults"),
    [
        ("resend_many(window=64) | dedup(window=16)", Faults(loss=0.3, confirm_loss=0.3)),
        ("resend_many(window=64) | continuous(gaps=false, queue=64)", Faults(loss=0.8)),
        ("dedup(window=1)", Faults(reorder=0.3)),
        ("dedup(window=1000)", Faults(delay=Delay.parse("exponential:0.01"))),
    ],
)
def test_a_route_without_it_loses_and_promises_nothing(route: str, faults: Faults) -> None:
    result = run(route, faults, 3000, 1)
    assert result.unique < 3000, "so the need is a real one"
    assert result.predicted is not None
    assert (result.predicted.holds, result.predicted.agrees) == (False, None)
    assert "others late" in result.predicted.breaches[0]


# --- runs that say nothing --------------------------------------------------------------------------


def test_a_run_lasts_as_long_as_its_sender_may_need() -> None:
    result = run("resend", Faults(loss=0.95, confirm_loss=0.3), 300, 3)
    assert result.predicted is not None
    assert (result.unique, result.predicted.agrees) == (300, True)


def test_a_run_that_is_given_up_has_no_verdict() -> None:
    never = run("resend_many -> index", Faults(loss=0.2, delay=Delay.parse("fixed:3000"), rate=1e-6), 3, 1)
    assert (never.ended, never.sent) == ("unfinished", 0)
    assert never.predicted is not None
    assert (never.predicted.holds, never.predicted.agrees) == (True, None)
    assert never.predicted.sentences == ("no verdict: the run was not finished",)


@pytest.mark.parametrize("route", ["resend_many", "stream", "index"])
def test_a_run_whose_source_submits_nothing_proves_nothing(route: str) -> None:
    result = run(route, Faults(rate=1e-9), 10, 1)
    assert result.sent == 0
    assert result.predicted is not None
    assert result.predicted.agrees is None


def test_a_slow_source_is_waited_for() -> None:
    result = run("resend_many", Faults(rate=0.0005), 20, 1)
    assert result.sent == result.unique == 20
    assert result.simulated_s == pytest.approx(40_000, rel=0.01)


def test_a_slow_pipe_is_not_flooded_with_copies_that_were_asked_for() -> None:
    slow = Faults(duplicate=1, reorder=1, confirm_loss=0.3, delay=Delay.parse("exponential:0.05"), rate=50)
    for route in (
        "resend | continuous | continuous",
        "resend | continuous | index | continuous | continuous(window=1,queue=1)",
    ):
        result = run(route, slow, 250, 555)
        assert result.unique == result.received == 250
        assert result.transmissions < 5000
        assert result.workers["sender"]["resent"] < 250


@pytest.mark.parametrize("silent", ["continuous(gaps=false)", "continuous(strict=false, gaps=false)"])
def test_a_copy_that_has_no_room_beneath_leaves_no_hole_that_others_wait_for(silent: str) -> None:
    route = f"resend_many(window=2) | {silent} | resend_many(window=64)"
    result = run(route, Faults(loss=0.3), 500, 1)
    assert result.workers["sender"]["refused"] > 0
    assert (result.ended, result.unique) == ("idle", 500)


@pytest.mark.parametrize(
    ("route", "faults"),
    [
        ("resend | resend_many", Faults()),
        ("sequential | resend_many", Faults(loss=0.3)),
        ("sequential | resend", Faults(loss=0.6)),
        ("resend_many(window=2) | resend", Faults(loss=0.3, reorder=0.1)),
        ("stream | resend | resend_many(window=2)", Faults(loss=0.6, duplicate=0.5)),
    ],
)
def test_copies_sent_over_a_pipe_that_makes_them_wait_are_not_promised_away(route: str, faults: Faults) -> None:
    result = run(route, faults, 2_000, 1)
    assert result.received > result.unique, "or this would prove nothing"
    assert result.predicted is not None and result.predicted.agrees is True


def test_a_relay_that_gives_messages_up_may_leave_fewer_repeats_than_computed() -> None:
    faults = Faults(reorder=1, confirm_loss=0.5, delay=Delay.parse("lognormal:0.01,1"), work_s=0.5)
    result = run("stream -> stream(window=5) | sequential", faults, 600, 156)
    assert result.unique < 600
    assert result.predicted is not None and result.predicted.agrees is True


def test_a_route_without_a_promise_is_not_compared() -> None:
    broken = run("continuous(gaps=false)", Faults(loss=0.2), 100, 1).predicted
    assert broken is not None
    assert (broken.holds, broken.agrees) == (False, None)
    assert broken.breaches
    crashed = Faults(crashes=(Crash("index", 10),))
    assert run("stream", crashed, 100, 1).predicted is None


def test_without_faults_a_message_takes_the_delay() -> None:
    latency = run("resend_many", Faults(delay=Delay.parse("fixed:0.02")), 1000, 1).latency
    assert latency.p50_s == latency.max_s == pytest.approx(0.02)


def test_latency_counts_the_time_of_sending_again() -> None:
    latency = run("resend_many", Faults(loss=0.5), 5000, 1).latency
    assert latency.p50_s is not None
    assert latency.max_s is not None
    assert latency.max_s > 4 * latency.p50_s


def test_a_rate_spreads_the_messages_over_time() -> None:
    assert run("resend_many", Faults(rate=100.0), 500, 1).simulated_s == pytest.approx(5.0, rel=0.02)


def test_retransmissions_are_messages_that_the_links_carried_more_than_once() -> None:
    result = run("resend_many", Faults(loss=0.5), 1000, 1)
    confirms = result.received
    assert result.transmissions == 1000 + result.retransmissions + confirms


def test_missing_messages_are_named() -> None:
    result = run("dedup", Faults(loss=0.5), 100, 1)
    assert len(result.missing) == 20
    assert result.sent - result.unique >= 20


def test_nothing_at_all_may_arrive() -> None:
    result = run("resend_many", Faults(loss=1.0), 10, 1)
    assert (result.ended, result.received, result.latency.p50_s) == ("unfinished", 0, None)


def test_a_worker_that_is_down_gets_nothing_and_the_route_recovers() -> None:
    result = run("resend_many", Faults(crashes=(Crash("receiver", 10, 5.0),), rate=100.0), 200, 1)
    assert result.unique == 200
    assert result.latency.max_s is not None
    assert result.latency.max_s > 4.0


def test_a_crash_of_the_route_loses_the_packets_on_it() -> None:
    result = run("dedup", Faults(crashes=(Crash("route", 10),), rate=1000.0), 200, 1)
    assert 0 < result.sent - result.unique <= 20
    assert 199 not in result.missing


def test_a_crash_of_the_sender_shows_as_messages_lost() -> None:
    result = run("resend_many", Faults(loss=0.2, crashes=(Crash("sender", 10),)), 2000, 1)
    assert 0 < result.sent - result.unique <= 1024
    assert result.sent == 2000


@pytest.mark.parametrize(
    ("text", "crash"),
    [("receiver@500", Crash("receiver", 500)), ("storage-loss@1+2.5", Crash("storage-loss", 1, 2.5))],
)
def test_a_crash_is_written_as_role_and_moment(text: str, crash: Crash) -> None:
    assert Crash.parse(text) == crash
    assert str(crash) == text


@pytest.mark.parametrize(
    "text", ["receiver", "receiver@", "@5", "receiver@x", "receiver@5+", "receiver@5+1.2.3"]
)
def test_a_malformed_crash_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        Crash.parse(text)


@pytest.mark.parametrize("text", ["fixed:0.01", "uniform:0.005,0.02", "exponential:0.01", "lognormal:0.01,1"])
def test_a_delay_comes_out_as_it_was_written(text: str) -> None:
    assert str(Delay.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fixed",
        "fixed:",
        "fixed:x",
        "fixed:0",
        "fixed:1,2",
        "uniform:1",
        "uniform:2,1",
        "normal:1",
        "fixed:1e9",
        "fixed:5e-324",
    ],
)
def test_a_malformed_delay_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as raised:
        Delay.parse(text)
    assert "fixed:0.01" in raised.value.hint


@pytest.mark.parametrize(
    ("route", "faults", "messages", "word"),
    [
        ("resend_man", Faults(), 10, "no pipe"),
        ("resend_many -> ", Faults(), 10, "missing"),
        ("resend_many", Faults(loss=1.5), 10, "loss"),
        ("resend_many", Faults(rate=-1.0), 10, "per second, not -1"),
        ("resend_many", Faults(rate=1e308), 10, "per second, not 1e"),
        ("resend_many", Faults(rate=1e-320), 10, "the rate must be"),
        ("resend_many", Faults(work_s=1e308), 10, "every time must be"),
        ("resend_many", Faults(reorder_s=float("nan")), 10, "every time must be"),
        ("resend_many", Faults(crashes=(Crash("receiver", 1, float("inf")),)), 10, "every time must be"),
        ("resend_many", Faults(), 0, "messages"),
        ("resend_many", Faults(crashes=(Crash("storage", 1),)), 10, "no 'storage' to crash"),
        ("resend_many(confirm=settled) -> index", Faults(), 10, "cascade"),
        (" -> ".join(["resend"] * 9), Faults(), 10, "hops"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(route: str, faults: Faults, messages: int, word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        run(route, faults, messages, 1)


# --- measuring --------------------------------------------------------------------------------------


def test_a_measure_counts_copies_orders_and_time() -> None:
    measure = Measure(10, tick_s=0.5)
    measure.submitted(4, now=0)
    measure.arrived([0, 1], now=2)
    measure.arrived([1, 3], now=4)
    assert (measure.sent, measure.unique, measure.received, measure.missing) == (4, 3, 4, [2])
    assert measure.order is Order.MONOTONIC
    latency = measure.latency()
    assert (latency.p50_s, latency.max_s) == (1.0, 2.0)


def test_a_measure_counts_repeats_within_one_arrival() -> None:
    measure = Measure(3, tick_s=1.0)
    measure.submitted(3, now=0)
    measure.arrived([2, 2, 0], now=1)
    assert (measure.unique, measure.received, measure.order) == (2, 3, None)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([1, 2, 3, 7, 9, 8], "1-3,7,9,8"),
        (range(5), "0-4"),
        (range(3, 4), "3"),
        ([1, 1], "1,1"),
    ],
)
def test_numbers_are_written_as_spans(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text
