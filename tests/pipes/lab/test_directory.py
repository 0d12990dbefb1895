"""The pipes directory, row by row, over many seeds.

Each pipe keeps what it declares under the faults it tolerates, and really breaks under those it does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headpond.pipes.calculus.declarations import DECLARATIONS, Declaration, Fault, Gift, Need
from headpond.pipes.calculus.orders import Order
from headpond.pipes.lab.faults import Crash, Delay, Faults
from headpond.pipes.lab.run import LabResult, run

MESSAGES = 60
SEEDS = 40

FAULTS: dict[Fault, Faults] = {
    Fault.LOSS: Faults(loss=0.3),
    Fault.DUPLICATION: Faults(duplicate=0.3),
    Fault.REORDER: Faults(reorder=0.3, reorder_s=0.05),
    Fault.CONFIRM_LOSS: Faults(confirm_loss=0.3),
    Fault.ROUTE_FAILURE: Faults(crashes=(Crash("route", 15, 0.5),)),
    Fault.SENDER_CRASH: Faults(crashes=(Crash("sender", 15),)),
    Fault.RECEIVER_CRASH: Faults(crashes=(Crash("receiver", 15, 0.1),)),
    Fault.STORAGE_CRASH: Faults(crashes=(Crash("storage", 15, 0.3),)),
    Fault.STORAGE_LOSS: Faults(crashes=(Crash("storage-loss", 15),)),
}
RATE = 2000.0
"""Messages are handed over a few at a time, so that a crash has a before and an after."""
SLOWLY = 20.0
"""For what is to be seen after a crash of the sender: messages that it had not taken yet."""


def mix(*parts: Faults, rate: float = RATE) -> Faults:
    """All of these at once."""
    return Faults(
        loss=max(part.loss for part in parts),
        duplicate=max(part.duplicate for part in parts),
        reorder=max(part.reorder for part in parts),
        reorder_s=max(part.reorder_s or 0.05 for part in parts),
        confirm_loss=max(part.confirm_loss for part in parts),
        crashes=tuple(crash for part in parts for crash in part.crashes),
        rate=rate,
    )


def route_of(pipe: Declaration) -> str:
    """The pipe on a route that has what it needs."""
    return f"resend_many | {pipe.name}" if Need.AT_LEAST_ONCE in pipe.needs else pipe.name


def explained(lost: int, share: float) -> bool:
    """Whether chance explains that so many messages or more were lost, each with probability ``share``."""
    tail = sum(
        math.comb(MESSAGES, count) * share**count * (1 - share) ** (MESSAGES - count)
        for count in range(lost, MESSAGES + 1)
    )
    return tail > 1e-6


def broken(pipe: Declaration, result: LabResult) -> str | None:
    """What the pipe declares and the run did not keep."""
    if pipe.gives in (Gift.AT_LEAST_ONCE, Gift.EXACTLY_ONCE) and result.unique < MESSAGES:
        return f"lost {result.missing}"
    if pipe.gives in (Gift.UNIQUE, Gift.EXACTLY_ONCE) and result.received > result.unique:
        return f"{result.received - result.unique} repeats"
    if pipe.gives is Gift.FEWER_LOST and not explained(MESSAGES - result.unique, result.faults.loss**2):
        return f"lost {result.missing}"
    if pipe.order is not None and pipe.order not in result.orders:
        return f"not {pipe.order}: {result.orders}"
    return None


def tolerated() -> Iterator[tuple[Declaration, Fault]]:
    for pipe in DECLARATIONS:
        for fault in sorted(pipe.tolerates | pipe.left_to_route):
            yield pipe, fault


def name(value: object) -> str:
    return value.name if isinstance(value, Declaration) else str(value)


@pytest.mark.parametrize(("pipe", "fault"), list(tolerated()), ids=name)
def test_a_declaration_holds_under_every_tolerated_fault(pipe: Declaration, fault: Fault) -> None:
    faults = mix(FAULTS[fault])
    found = [broken(pipe, run(route_of(pipe), faults, MESSAGES, seed)) for seed in range(SEEDS)]
    assert found == [None] * SEEDS


@st.composite
def tolerated_mixtures(draw: st.DrawFn) -> tuple[Declaration, Faults]:
    pipe = draw(st.sampled_from(DECLARATIONS))
    chosen = draw(st.sets(st.sampled_from(sorted(pipe.tolerates | pipe.left_to_route)), min_size=1))
    delay = draw(st.sampled_from(["fixed:0.01", "uniform:0.001,0.03", "exponential:0.01", "lognormal:0.01,1"]))
    faults = mix(*(FAULTS[fault] for fault in chosen))
    # Delays that vary are reordering: only for those that tolerate it.
    return pipe, structs.replace(faults, delay=Delay.parse(delay)) if Fault.REORDER in chosen else faults


@given(tolerated_mixtures(), st.integers(0, 2**32))
def test_and_under_any_of_them_at_once(drawn: tuple[Declaration, Faults], seed: int) -> None:
    pipe, faults = drawn
    result = run(route_of(pipe), faults, MESSAGES, seed)
    assert broken(pipe, result) is None
    if Need.AT_LEAST_ONCE in pipe.needs:
        assert result.unique == MESSAGES


# --- what is not tolerated --------------------------------------------------------------------------

WEATHER = Faults(loss=0.2, duplicate=0.3, reorder=0.3, reorder_s=0.2, confirm_loss=0.3)
"""A fault seldom breaks anything alone: a crash matters because of the messages on their way."""

CRASHED_AT_ONCE = Faults(crashes=(Crash("receiver", 15),))
"""Back before the messages on their way have arrived."""

AWAY_FOR_LONG = {
    Fault.RECEIVER_CRASH: Faults(crashes=(Crash("receiver", 15, 900.0),)),
    Fault.ROUTE_FAILURE: Faults(crashes=(Crash("route", 15, 900.0),)),
}
"""Longer than two tries of many messages."""


def not_tolerated() -> Iterator[tuple[Declaration, Fault]]:
    for pipe in DECLARATIONS:
        for fault in sorted(pipe.does_not_tolerate):
            yield pipe, fault


def breaking_route(pipe: Declaration) -> str:
    # dedup and index have something to do only where copies come; sequential where they come late.
    if pipe.pipe == "dedup":
        return f"resend_many | {pipe.name}"
    return pipe.name if pipe.pipe in ("index", "sequential") else route_of(pipe)


@pytest.mark.parametrize(("pipe", "fault"), list(not_tolerated()), ids=name)
def test_a_fault_that_is_not_tolerated_really_breaks_it(pipe: Declaration, fault: Fault) -> None:
    crash = CRASHED_AT_ONCE if fault is Fault.RECEIVER_CRASH else FAULTS[fault]
    if pipe.gives is Gift.FEWER_LOST:
        crash = AWAY_FOR_LONG.get(fault, crash)
    faults = mix(WEATHER, crash, rate=SLOWLY if pipe.pipe == "sequential" else RATE)
    found = [broken(pipe, run(breaking_route(pipe), faults, MESSAGES, seed)) for seed in range(SEEDS)]
    assert any(found)


@pytest.mark.parametrize("route", ["index", "index(strict=false)", "dedup(by=index)"])
def test_messages_of_a_restarted_sender_with_a_new_epoch_are_delivered(route: str) -> None:
    for seed in range(SEEDS):
        result = run(route, mix(FAULTS[Fault.SENDER_CRASH], FAULTS[Fault.REORDER]), MESSAGES, seed)
        assert max(result.missing, default=0) < MESSAGES - 1


def test_a_need_that_is_not_met_breaks_the_pipe_that_has_it() -> None:
    stuck = run("continuous(gaps=false)", Faults(loss=0.3), MESSAGES, 1)
    assert stuck.unique < MESSAGES
    assert run("resend_many | continuous(gaps=false)", Faults(loss=0.3), MESSAGES, 1).unique == MESSAGES


@pytest.mark.parametrize("seed", range(10))
def test_without_any_pipe_that_repairs_it_loss_is_loss(seed: int) -> None:
    assert run("dedup", Faults(loss=0.3), MESSAGES, seed).unique < MESSAGES


# --- after the fault --------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["resend", "resend_many", "stream", "resend_many | sequential", "continuous"])
def test_a_restarted_sender_is_not_ignored(route: str) -> None:
    """What it held is lost, and what it sends from then on arrives."""
    for seed in range(10):
        result = run(route, mix(FAULTS[Fault.SENDER_CRASH], Faults(loss=0.2), rate=SLOWLY), MESSAGES, seed)
        assert MESSAGES - 1 not in result.missing


@pytest.mark.parametrize("route", ["resend", "sequential", "continuous", "resend_many | continuous", "stream"])
def test_a_restarted_receiver_does_not_block_the_sender(route: str) -> None:
    for seed in range(10):
        result = run(route, mix(FAULTS[Fault.RECEIVER_CRASH], WEATHER), MESSAGES, seed)
        assert MESSAGES - 1 not in result.missing
        assert result.sent == MESSAGES


def test_a_crash_in_the_middle_of_a_cascade_loses_nothing_and_without_one_it_does() -> None:
    faults = mix(Faults(crashes=(Crash("relay", 15, 0.05),)), Faults(loss=0.2))
    cascade = [run("resend_many(confirm=settled) -> resend_many", faults, 400, seed) for seed in range(10)]
    assert [result.unique for result in cascade] == [400] * 10
    plain = [run("resend_many -> resend_many", faults, 400, seed) for seed in range(10)]
    assert any(result.unique < 400 for result in plain)


def test_a_worker_that_dies_over_its_work_loses_nothing_if_confirms_wait_for_it() -> None:
    faults = Faults(crashes=(Crash("worker", 15),), work_s=0.05, rate=RATE)
    assert run("resend_many(confirm=settled) | dedup", faults, MESSAGES, 1).unique == MESSAGES
    assert run("resend_many | dedup", faults, MESSAGES, 1).unique < MESSAGES


def test_orders_are_measured_and_not_assumed() -> None:
    result = run("resend_many", mix(WEATHER), MESSAGES, 3)
    assert result.orders == []
    assert run("resend_many", Faults(), MESSAGES, 3).orders == [str(order) for order in Order]
