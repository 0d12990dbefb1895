"""Routes in a row: copies compose, orders meet, and the relay between them is part of the promise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.declarations import Fault
from headpond.pipes.calculus.delivery import Channel, DeliveryMode
from headpond.pipes.calculus.flow import RateBounds
from headpond.pipes.calculus.orders import Order
from headpond.pipes.calculus.promise import CrashRole, chain_promise_of, promise_of

LOSSY = Channel(loss=0.2, confirm_loss=0.1)
ONE = RateBounds(Fraction(1), Fraction(1))


def test_one_route_is_a_chain_of_one() -> None:
    for route in ("resend_many | dedup", "index", "continuous(gaps=false)"):
        assert chain_promise_of(route, LOSSY).outlook == promise_of(route, LOSSY).outlook


def test_copies_compose_exactly() -> None:
    """A repeat is a second chance: not the product of the two."""
    doubling = Channel(loss=Fraction(1, 2), duplicate=1)
    outlook = chain_promise_of("index(strict=false) -> index(strict=false)", doubling).outlook
    # Each copy is lost with 1/2 or doubled: G(z) = 1/2 + z²/2, twice.
    assert outlook.reliability == RateBounds(Fraction(3, 8), Fraction(3, 8))


@pytest.mark.parametrize(
    ("route", "hint"),
    [
        ("dedup | stream", "stream | dedup"),
        ("stream | stream", "stream"),
        ("index -> dedup | stream", "stream | dedup"),
        ("resend(confirm=settled) | index", "Only dedup"),
    ],
)
def test_a_chain_that_cannot_be_built_gets_no_promise(route: str, hint: str) -> None:
    with pytest.raises(BadRequest) as raised:
        chain_promise_of(route)
    assert hint in raised.value.hint
    assert "stream | stream" not in raised.value.hint


def test_without_repeats_the_rates_multiply_and_orders_meet() -> None:
    outlook = chain_promise_of("dedup -> index -> dedup", Channel(loss=0.1)).outlook
    assert outlook.reliability == RateBounds(Fraction(729, 1000), Fraction(729, 1000))
    assert (outlook.uniqueness, outlook.order) == (ONE, Order.STRICT)


def exactly(*decimals: str) -> list[RateBounds]:
    return [RateBounds(Fraction(each), Fraction(each)) for each in decimals]


@pytest.mark.parametrize(
    ("chain", "reliability", "uniqueness"),
    [
        # R(A->B ; B->C) = R(A->B) * R(B->C)
        ("channel(loss=0.5) -> channel(loss=0.2)", "0.4", "1"),
        # R1 = R + (1 - R) * R = 0.75, R2 = 0.875
        ("channel(loss=0.5) | resend(tries=2)", "0.75", "1"),
        ("channel(loss=0.5) | resend(tries=3)", "0.875", "1"),
        ("channel(loss=0.5) | resend_many(tries=3)", "0.875", "1"),
        # DMr∞ = {->1, ->0.5}: every confirm is lost with 1/2
        ("channel(loss=0.5, confirm_loss=0.5) | resend", "1", "0.5"),
        # R(A->B) = R(A->X) x R(X) x R(X->B)
        ("worker(fail=0.1) -> channel", "0.9", "1"),
        ("channel(loss=0.1) | worker(fail=0.2) -> channel(loss=0.5)", "0.36", "1"),
        # A pipe injected around X, whose confirms wait for it
        ("channel(loss=0.1) | resend(confirm=settled) | worker(fail=0.2) -> resend", "1", "1"),
        # A repeat is a second chance
        ("channel(duplicate=1) -> channel(loss=0.5)", "0.75", "0.75"),
    ],
)
def test_the_examples_of_the_source_can_be_written_down(chain: str, reliability: str, uniqueness: str) -> None:
    outlook = chain_promise_of(chain).outlook
    if "settled" in chain:
        assert outlook.reliability == exactly(reliability)[0]
    else:
        assert [outlook.reliability, outlook.uniqueness] == exactly(reliability, uniqueness)


def test_a_hop_keeps_the_rates_that_it_does_not_name() -> None:
    promise = chain_promise_of("channel(loss=0.5) -> bare", Channel(loss=Fraction(1, 10), duplicate=1))
    assert [(hop.channel.loss, hop.channel.duplicate) for hop in promise.hops] == [
        (Fraction(1, 2), 1),
        (Fraction(1, 10), 1),
    ]


def test_a_wrong_product_law_is_shown_beside_the_exact_result() -> None:
    (remark,) = chain_promise_of("channel(duplicate=1) -> channel(loss=0.5)").remarks
    assert "R 0.5, UR 0.5" in remark
    assert chain_promise_of("channel(loss=0.5) -> channel(loss=0.5)").remarks == ()


@pytest.mark.parametrize("crash", CrashRole)
def test_messages_of_a_crashed_worker_come_again_only_if_the_route_before_waits(crash: CrashRole) -> None:
    behind = " -> resend" if crash is CrashRole.RELAY else ""
    waits = chain_promise_of(f"resend_many(confirm=settled) | dedup{behind}", None, frozenset({crash}))
    assert (waits.outlook.reliability, waits.outlook.uniqueness.low) == (ONE, Fraction(0))
    loses = chain_promise_of(f"resend_many | dedup{behind}", None, frozenset({crash}))
    assert loses.outlook.reliability.low == 0
    assert "loses the messages" in loses.remarks[0]


def test_a_mend_names_no_parameter_that_the_pipe_does_not_have() -> None:
    (remark,) = chain_promise_of("index -> resend").remarks
    assert "confirm=settled in index" not in remark
    assert "confirm=settled in resend_many" in chain_promise_of("resend_many -> resend").remarks[0]


def test_a_relay_that_does_not_wait_may_spill() -> None:
    promise = chain_promise_of("resend_many -> resend_many", LOSSY)
    assert promise.holds
    assert promise.outlook.reliability.low == 0
    assert any("no room for" in remark for remark in promise.remarks)
    # A sender that keeps nothing always has room.
    assert chain_promise_of("resend_many -> index", Channel()).outlook.mode is DeliveryMode.EXACTLY_ONCE


def test_a_cascade_loses_nothing_and_repeats_an_unknown_share() -> None:
    outlook = chain_promise_of("resend_many(confirm=settled) -> resend_many | dedup", LOSSY).outlook
    assert (outlook.reliability, outlook.uniqueness) == (ONE, RateBounds(Fraction(0), Fraction(1)))
    unique = chain_promise_of("resend_many(confirm=settled) | dedup -> resend_many | dedup", LOSSY).outlook
    assert unique.mode is DeliveryMode.EXACTLY_ONCE


def test_a_breach_in_any_of_them_breaks_the_whole() -> None:
    promise = chain_promise_of("resend_many -> continuous(gaps=false)", LOSSY)
    assert [len(hop.breaches) for hop in promise.hops] == [0, 1]
    assert not promise.holds
    assert promise.outlook.reliability.low == 0


def test_a_crash_of_an_end_belongs_to_the_hop_of_that_end() -> None:
    crashes = Channel(faults=frozenset({Fault.RECEIVER_CRASH}))
    assert chain_promise_of("dedup -> resend_many", crashes).holds
    assert not chain_promise_of("resend_many -> dedup", crashes).holds


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("resend ->", "missing"),
        (" -> ".join(["index"] * 9), "9 hops"),
        ("resend_many(confirm=settled) -> index", "cascade"),
    ],
)
def test_a_malformed_chain_is_refused(text: str, word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        chain_promise_of(text)
