"""The text of a route is read, written back, and an error names the nearest right word."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.declarations import DECLARATIONS
from headpond.pipes.calculus.route import STAGES_MAX, Route, Value, find_stage, parse_route, pipe_names


def test_pipes_are_read_from_the_innermost_out() -> None:
    route = parse_route("resend_many(window=128) | dedup|index ( strict = False )")
    assert [stage.declaration.name for stage in route.stages] == ["resend_many", "dedup", "index(strict=false)"]
    first = route.stages[0]
    defaults = {each.name: each.default for each in first.declaration.parameters}
    assert first.settings == {**defaults, "window": 128}
    assert str(route) == "resend_many(window=128) | dedup | index(strict=false)"


@given(
    st.lists(st.tuples(st.sampled_from(DECLARATIONS), st.integers(1, 5000)), min_size=1, max_size=STAGES_MAX)
)
def test_a_route_written_out_reads_the_same(parts: list[tuple[object, int]]) -> None:
    stages = []
    for declaration, number in parts:
        assert isinstance(declaration, type(DECLARATIONS[0]))
        settings: dict[str, Value] = {
            each.name: number for each in declaration.parameters if type(each.default) is int
        }
        for name, value in declaration.variant.items():
            settings[name] = value[number % len(value)] if isinstance(value, range) else value
        stages.append(find_stage(declaration.pipe, settings))
    route = Route(tuple(stages))
    assert parse_route(str(route)) == route


def test_a_setting_chooses_the_declaration() -> None:
    by_id, by_index = parse_route("dedup(by=id) | dedup(by=index)").stages
    assert (by_id.declaration.name, by_index.declaration.name) == ("dedup", "dedup(by=index)")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("resnd", "there is no pipe 'resnd'", "Did you mean resend?"),
        ("dedupe", "there is no pipe 'dedupe'", "Did you mean dedup?"),
        ("Resend", "there is no pipe 'Resend'", "Did you mean resend?"),
        ("xyz", "there is no pipe 'xyz'", "Pipes: resend, "),
        ("resend_many(windw=3)", "no parameter 'windw'", "Did you mean window?"),
        ("dedup(by=indx)", "by of dedup must be id or index", "Did you mean index?"),
        ("index(strict=3)", "strict of index must be true or false, not 3", "argument"),
        ("resend_many(window=big)", "window of resend_many must be a whole number, not big", "argument"),
        ("resend_many(window=true)", "must be a whole number", "argument"),
        ("resend_many(window=0)", "must be from 1 to 1,048,576, not 0", "argument"),
        ("resend_many(window=9999999999)", "must be from", "argument"),
        ("resend(buffer=1, buffer=2)", "'buffer' twice", "argument"),
        ("resend(buffer)", "'buffer' in resend(…) is not parameter=value", "resend(parameter=value"),
        ("resend(buffer=1,)", "'' in resend(…) is not parameter=value", "resend(parameter=value"),
        ("", "a pipe is missing", "Pipes: resend, "),
        ("resend | ", "a pipe is missing", "Pipes: resend, "),
        ("resend dedup", "'resend dedup' is not a pipe", "NAME"),
        ("resend(", "'resend(' is not a pipe", "NAME"),
        (" | ".join(["dedup"] * 9), "the route has 9 pipes", "argument"),
        ("d" * 5000, "5,000 characters", "argument"),
    ],
)
def test_an_error_in_the_text_names_the_nearest_right_word(text: str, message: str, hint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_route(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


@given(st.text(st.sampled_from("resndx_(=,) |1٣"), max_size=30) | st.text(max_size=30))
def test_any_text_is_a_route_or_a_bad_request(text: str) -> None:
    try:
        route = parse_route(text)
    except BadRequest:
        return
    assert parse_route(str(route)) == route


def test_the_pipes_are_listed_in_the_order_of_the_directory() -> None:
    assert pipe_names() == [
        "resend",
        "resend_many",
        "stream",
        "sequential",
        "index",
        "continuous",
        "dedup",
        "bare",
    ]


# --- what lies at the ends of the pipes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rates", "pipes", "fails"),
    [
        ("channel(loss=0.5)", {"loss": Fraction(1, 2)}, ["bare"], 0),
        ("channel", {}, ["bare"], 0),
        ("worker(fail=0.25)", {}, ["bare"], Fraction(1, 4)),
        (
            "channel(confirm_loss=1e-1, late=7) | resend | dedup | worker(fail=.5)",
            {"confirm_loss": Fraction(1, 10), "late": 7},
            ["resend", "dedup"],
            Fraction(1, 2),
        ),
    ],
)
def test_a_route_may_name_its_own_channel_and_its_worker(
    text: str, rates: dict[str, Fraction | int], pipes: list[str], fails: Fraction
) -> None:
    route = parse_route(text)
    assert (route.rates, [stage.pipe for stage in route.stages], route.worker_fails) == (rates, pipes, fails)
    assert parse_route(str(route)) == route


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("resend | channel(loss=0.5)", "channel(…) stands first"),
        ("worker(fail=0.5) | resend", "worker(…) stands last"),
        ("channel(loss=0.5) | channel(loss=0.5)", "stands first"),
        ("channel(loss=1.5)", "must be from 0 to 1, not 3/2"),
        ("channel(loss=x)", "must be a number from 0 to 1"),
        ("channel(los=0.5)", "channel has no parameter 'los'"),
        ("channel(late=0.5)", "must be a whole number"),
        ("worker(fails=0.5)", "worker has no parameter 'fails'"),
        ("worker(fail=-1)", "must be a number from 0 to 1"),
        ("channel(loss=0.5, loss=0.5)", "twice"),
    ],
)
def test_a_fault_in_a_channel_or_a_worker_is_named(text: str, word: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(word)):
        parse_route(text)
