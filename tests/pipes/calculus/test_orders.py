"""The four orders, their checks and their lattice, against their definitions, over all short sequences."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.calculus.orders import (
    Order,
    OrderCheck,
    held_orders,
    implies,
    meet,
    order_of,
)

Indices = tuple[int, ...]
SEQUENCES: list[Indices] = [each for length in range(6) for each in product(range(4), repeat=length)]
ORDERS: list[Order | None] = [None, *Order]


def defined(order: Order | None, got: Indices) -> bool:
    """Each order by sorting and sets, not by steps."""
    if order is None:
        return True
    ordered, whole = list(got) == sorted(got), set(got) == set(range(max(got, default=-1) + 1))
    return {
        Order.MONOTONIC: ordered,
        Order.STRICT: ordered and len(set(got)) == len(got),
        Order.CONTINUOUS: ordered and whole,
        Order.ABSOLUTE: list(got) == list(range(len(got))),
    }[order]


def having(order: Order | None) -> list[Indices]:
    return [each for each in SEQUENCES if defined(order, each)]


def strongest(sequences: list[Indices]) -> set[Order]:
    """The orders that all of them have."""
    return {order for order in Order if all(defined(order, each) for each in sequences)}


def test_a_check_finds_exactly_the_orders_whose_definition_holds() -> None:
    for each in SEQUENCES:
        check = OrderCheck()
        check.take(each)
        assert {order for order in Order if implies(check.order, order)} == {
            order for order in Order if defined(order, each)
        }


@given(st.lists(st.integers(0, 6), max_size=20), st.data())
def test_how_the_stream_is_cut_does_not_matter(whole: list[int], data: st.DataObject) -> None:
    at_once, cut = OrderCheck(), OrderCheck()
    at_once.take(whole)
    at = data.draw(st.integers(0, len(whole)))
    cut.take(whole[:at])
    cut.take(whole[at:])
    facts = [(each.falls, each.repeats, each.gaps, each.order) for each in (at_once, cut)]
    assert facts[0] == facts[1]


def test_faults_are_counted() -> None:
    check = OrderCheck()
    check.take((0, 1, 1, 4, 2, 2))
    assert (check.falls, check.repeats, check.gaps) == (1, 2, 1)


@pytest.mark.parametrize("one", ORDERS)
@pytest.mark.parametrize("other", ORDERS)
def test_an_order_implies_another_if_no_sequence_contradicts_it(one: Order | None, other: Order | None) -> None:
    assert implies(one, other) == all(defined(other, each) for each in having(one))


@pytest.mark.parametrize("one", ORDERS)
@pytest.mark.parametrize("other", ORDERS)
def test_both_orders_imply_their_meet_and_nothing_stronger(one: Order | None, other: Order | None) -> None:
    assert set(held_orders(meet(one, other))) == strongest(having(one) + having(other))


@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("second", ORDERS)
def test_two_hops_in_a_row_keep_their_meet_and_no_more(first: Order | None, second: Order | None) -> None:
    short = [each for each in having(first) if len(each) <= 4 and 3 not in each]
    ends = {
        tuple(got[position] for position in positions)
        for got in short
        for positions in having(second)
        if len(positions) <= 4 and max(positions, default=-1) < len(got)
    }
    assert set(held_orders(meet(first, second))) == strongest(list(ends))


@pytest.mark.parametrize("order", Order)
def test_loss_adds_gaps_and_repeats_and_dedup_change_only_repeats(order: Order) -> None:
    sequences = having(order)
    lossy = [tuple(i for i, kept in zip(got, keep, strict=True) if kept)
             for got in sequences for keep in product((False, True), repeat=len(got))]  # fmt: skip
    repeated = [tuple(i for i, n in zip(got, counts, strict=True) for _ in range(n))
                for got in sequences for counts in product((1, 2), repeat=len(got))]  # fmt: skip
    deduplicated = [tuple(dict.fromkeys(got)) for got in sequences]
    for repeats, gaps, changed in (
        (order.repeats, True, lossy),
        (True, order.gaps, repeated),
        (False, order.gaps, deduplicated),
    ):
        assert set(held_orders(order_of(falls=False, repeats=repeats, gaps=gaps))) == strongest(changed)


def test_an_order_forbids_falls_repeats_or_gaps() -> None:
    assert order_of(falls=False, repeats=False, gaps=False) is Order.ABSOLUTE
    assert order_of(falls=False, repeats=True, gaps=False) is Order.CONTINUOUS
    assert order_of(falls=False, repeats=False, gaps=True) is Order.STRICT
    assert order_of(falls=False, repeats=True, gaps=True) is Order.MONOTONIC
    assert order_of(falls=True, repeats=False, gaps=False) is None
