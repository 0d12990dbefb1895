"""Every pipe's declaration is complete, and agrees with the pipes directory.

Some of ours need less than the directory asks: ``sequential`` sends again and recognises repeats, ``index``
recognises a restarted sender. ``continuous`` asks for missing messages, and so needs a way back as well.
"""

from __future__ import annotations

import pytest

from headpond.pipes.calculus.declarations import (
    DECLARATIONS,
    WINDOW,
    Declaration,
    Fault,
    Gift,
    Need,
    Side,
    span_of,
)
from headpond.pipes.calculus.orders import Order
from headpond.pipes.calculus.promise import promise_of
from headpond.pipes.calculus.route import parse_route

each_pipe = pytest.mark.parametrize("pipe", DECLARATIONS, ids=lambda pipe: pipe.name)

BACK, OPEN, ALL = Need.BACKTRACEABLE, Need.ACCESSIBLE, Need.AT_LEAST_ONCE
SENDER, RECEIVER, ROUTE = Fault.SENDER_CRASH, Fault.RECEIVER_CRASH, Fault.ROUTE_FAILURE
STORAGE, DATA = Fault.STORAGE_CRASH, Fault.STORAGE_LOSS

# The rows of the directory, and those that do more: pipe, needs, gives, order, tolerates, does not tolerate.
DIRECTORY: list[tuple[str, set[Need], Gift, Order | None, set[Fault], set[Fault]]] = [
    ("resend", {BACK, OPEN}, Gift.AT_LEAST_ONCE, None, {ROUTE, RECEIVER}, {SENDER}),
    ("resend(tries=2)", {BACK, OPEN}, Gift.FEWER_LOST, None, set(), {SENDER, ROUTE, RECEIVER}),
    ("resend_many", {BACK, OPEN}, Gift.AT_LEAST_ONCE, None, {ROUTE, RECEIVER}, {SENDER}),
    ("resend_many(tries=2)", {BACK, OPEN}, Gift.FEWER_LOST, None, set(), {SENDER, ROUTE, RECEIVER}),
    ("stream", {BACK, OPEN}, Gift.AT_LEAST_ONCE, None, {ROUTE, RECEIVER, STORAGE}, {SENDER, DATA}),
    ("sequential", {BACK, OPEN}, Gift.EXACTLY_ONCE, Order.ABSOLUTE, {ROUTE}, {SENDER, RECEIVER}),
    ("index", {OPEN}, Gift.UNIQUE, Order.STRICT, {ROUTE, SENDER}, {RECEIVER}),
    ("index(strict=false)", {OPEN}, Gift.AS_BENEATH, Order.MONOTONIC, {ROUTE, SENDER}, {RECEIVER}),
    ("continuous", {ALL, BACK}, Gift.EXACTLY_ONCE, Order.ABSOLUTE, set(), {SENDER, RECEIVER}),
    (
        "continuous(strict=false)",
        {ALL, BACK},
        Gift.AT_LEAST_ONCE,
        Order.CONTINUOUS,
        set(),
        {SENDER, RECEIVER},
    ),
    ("continuous(gaps=false)", {ALL}, Gift.EXACTLY_ONCE, Order.ABSOLUTE, set(), {SENDER, RECEIVER}),
    (
        "continuous(strict=false, gaps=false)",
        {ALL},
        Gift.AT_LEAST_ONCE,
        Order.CONTINUOUS,
        set(),
        {SENDER, RECEIVER},
    ),
]


def find(name: str) -> Declaration:
    (found,) = [each for each in DECLARATIONS if each.name == name]
    return found


@pytest.mark.parametrize("row", DIRECTORY, ids=lambda row: row[0])
def test_a_declaration_agrees_with_the_directory(
    row: tuple[str, set[Need], Gift, Order | None, set[Fault], set[Fault]],
) -> None:
    name, needs, gives, order, tolerates, does_not_tolerate = row
    pipe = find(name)
    assert (set(pipe.needs), pipe.gives, pipe.order) == (needs, gives, order)
    crashes = {SENDER, RECEIVER, ROUTE, STORAGE, DATA}
    assert pipe.tolerates & crashes == tolerates
    assert set(pipe.does_not_tolerate) == does_not_tolerate


def test_every_pipe_of_the_directory_both_dedups_and_the_bare_hop_are_declared() -> None:
    names = [row[0] for row in DIRECTORY]
    assert [each.name for each in DECLARATIONS] == [*names, "dedup", "dedup(by=index)", "bare"]


@each_pipe
def test_every_fault_has_exactly_one_place(pipe: Declaration) -> None:
    places = [*pipe.tolerates, *pipe.does_not_tolerate, *pipe.left_to_route, *pipe.untouched_by]
    assert sorted(places) == sorted(Fault)


@each_pipe
def test_every_part_is_filled_in(pipe: Declaration) -> None:
    assert pipe.summary.endswith(".")
    assert pipe.needs
    assert any(each.side is Side.SENDER for each in pipe.state)
    assert all(reason and not reason.endswith(".") for reason in pipe.does_not_tolerate.values())
    assert all(parameter.meaning for parameter in pipe.parameters)


@each_pipe
def test_a_pipe_leaves_to_the_route_only_the_needs_that_it_declares(pipe: Declaration) -> None:
    assert bool(pipe.left_to_route) == (Need.AT_LEAST_ONCE in pipe.needs)


@each_pipe
def test_a_pipe_that_waits_for_answers_needs_a_way_back(pipe: Declaration) -> None:
    assert pipe.confirms == (Need.BACKTRACEABLE in pipe.needs)


@each_pipe
def test_only_a_pipe_with_storage_is_touched_by_its_faults(pipe: Declaration) -> None:
    assert any(each.side is Side.STREAM for each in pipe.state) == (Fault.STORAGE_LOSS not in pipe.untouched_by)


@each_pipe
def test_a_declarations_name_is_its_text_in_a_route(pipe: Declaration) -> None:
    (stage,) = parse_route(pipe.name).stages
    assert stage.declaration is pipe
    assert str(stage) == pipe.name


@each_pipe
def test_the_order_and_the_gift_agree_on_loss_and_repeats(pipe: Declaration) -> None:
    if pipe.order is None:
        return
    assert pipe.order.repeats == (pipe.gives in (Gift.AS_BENEATH, Gift.AT_LEAST_ONCE))
    if Need.AT_LEAST_ONCE in pipe.needs:
        assert not pipe.order.gaps


@each_pipe
def test_the_room_a_pipe_needs_is_one_of_its_settings(pipe: Declaration) -> None:
    """Pipes with a bounded memory: dedup by id, and continuous without requests for missing messages."""
    bounded = pipe.name == "dedup" or "gaps=false" in pipe.name
    assert (pipe.room is not None) == bounded
    if pipe.room is not None:
        (parameter,) = [each for each in pipe.parameters if each.name == pipe.room.parameter]
        assert not parameter.local
        assert parameter.maximum >= span_of(WINDOW.maximum)


def test_the_room_is_enough_by_default() -> None:
    for name in ("dedup", "continuous(gaps=false)"):
        for beneath in ("resend", "resend_many", "stream"):
            assert promise_of(f"{beneath} | {name}").holds
