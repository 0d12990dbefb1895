"""``headpond explain`` predicts what a route delivers, and exits with 1 if it is broken."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


def test_a_good_route_is_explained_pipe_by_pipe(cli: Cli) -> None:
    done = cli("explain", "resend_many(window=128) | dedup", "--loss", "0.2", "--confirm-loss", "0.1")
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.decode().splitlines()]
    assert lines[:3] == [
        "route resend_many(window=128) | dedup",
        "channel loss 0.2, confirm loss 0.1",
        "without pipes R 0.8, UR 1: at most once, strict order",
    ]
    assert "needs backtraceable, accessible" in lines
    assert "keeps receiver: the ids it has passed on, a bounded set" in lines
    assert "so far R 1, UR 0.9: at least once, no order" in lines
    assert lines[-2:] == ["end to end R 1, UR 1: exactly once, no order", "orders none"]


def test_a_broken_route_says_what_is_broken_and_what_mends_it(cli: Cli) -> None:
    done = cli("explain", "continuous(gaps=false)", "--loss", "0.2")
    assert (done.code, done.err) == (1, "")
    *_, broken, mend = done.out.decode().splitlines()
    assert broken.startswith("BROKEN: continuous(gaps=false) needs a route that delivers at least once")
    assert mend == "mend: Put resend, resend_many or stream beneath it: resend_many | continuous(gaps=false)."


def test_the_repair_that_is_suggested_works(cli: Cli) -> None:
    assert cli("explain", "resend_many | continuous(gaps=false)", "--loss", "0.2").code == 0


def test_too_little_room_breaks_a_route_and_the_value_to_write_is_named(cli: Cli) -> None:
    done = cli("explain", "resend_many(window=64) | dedup(window=16)", "--loss", "0.3")
    assert done.code == 1
    assert b"Write window=1024" in done.out
    assert b"no promise" in done.out
    assert cli("explain", "resend_many(window=64) | dedup(window=1024)", "--loss", "0.3").code == 0
    late = ("explain", "dedup(window=100)", "--reorder", "0.1", "--late")
    assert [cli(*late, count).code for count in (100, 101)] == [0, 1]


def test_routes_in_a_row_are_explained_end_to_end(cli: Cli) -> None:
    done = cli("explain", "resend_many(confirm=settled) | dedup -> resend_many | dedup", "--loss", "0.2")
    assert done.code == 0
    text = done.out.decode()
    assert "hop 2: resend_many | dedup" in text
    assert "end to end  R 1, UR 1: exactly once, no order" in text
    found = json.loads(cli("explain", "index -> continuous(gaps=false)", "--loss", "0.2", "--json").out)
    assert (found["route"], found["holds"]) == ("index -> continuous(gaps=false)", False)
    assert [each["hop"] for each in found["pipes"]] == [0, 1]
    assert [(each["hop"], each["pipe"]) for each in found["broken"]] == [(1, 0)]


def test_a_fault_that_is_not_tolerated_breaks_the_route(cli: Cli) -> None:
    done = cli("explain", "resend", "--fault", "receiver-crash", "--fault", "sender-crash")
    assert done.code == 1
    assert b"resend does not tolerate a sender crash" in done.out
    assert cli("explain", "resend", "--fault", "receiver-crash").code == 0


def test_each_hop_can_have_its_own_rates(cli: Cli) -> None:
    done = cli("explain", "channel(loss=0.5) -> channel(loss=0.2)", "--duplicate", "0.1")
    assert done.code == 0
    assert b"loss 0.5, duplicate 0.1" in done.out
    assert b"loss 0.2, duplicate 0.1" in done.out
    found = json.loads(cli("explain", "channel(loss=0.5) -> channel(loss=0.2)", "--json").out)
    assert [hop["channel"]["loss"] for hop in found["hops"]] == [0.5, 0.2]
    assert found["promise"]["R"] == [0.4, 0.4]


def test_a_crash_of_the_worker_is_explained(cli: Cli) -> None:
    done = cli("explain", "resend_many | dedup", "--fault", "worker-crash")
    assert done.code == 0
    assert b"R 0 to 1" in done.out
    assert b"confirm=settled in resend_many | dedup would make it wait" in done.out


def test_json_holds_the_promise(cli: Cli) -> None:
    found = json.loads(cli("explain", "resend_many | index", "--loss", "0.2", "--json").out)
    assert found["holds"] is True
    assert found["promise"] == {
        "R": [0.8, 1.0],
        "UR": [1.0, 1.0],
        "mode": "at most once",
        "orders": ["monotonic", "strict"],
    }
    assert found["channel"]["loss"] == 0.2
    assert [each["pipe"] for each in found["pipes"]] == ["resend_many", "index"]
    assert found["pipes"][1]["needs"] == ["accessible"]


def test_json_of_a_broken_route_promises_nothing(cli: Cli) -> None:
    done = cli("explain", "dedup | resend", "--one-way", "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert (found["holds"], found["promise"]) == (False, None)
    assert [each["so_far"] is None for each in found["pipes"]] == [False, True]
    assert found["broken"][0]["pipe"] == 1


def test_a_wrong_name_is_an_error_with_the_nearest_one(cli: Cli) -> None:
    done = cli("explain", "resnd")
    assert (done.code, done.out) == (1, b"")
    assert "Did you mean resend?" in done.err


@pytest.mark.parametrize("wrong", [("--loss", "1.5"), ("--loss", "x"), ("--fault", "fire")], ids=" ".join)
def test_a_wrong_rate_or_fault_is_wrong_usage(cli: Cli, wrong: tuple[str, str]) -> None:
    assert cli("explain", "resend", *wrong).code == 2
