"""``headpond lab run``: predicted against measured, from a seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ROUTE = ("lab", "run", "--route", "resend_many | dedup")
LOSSY = ("--loss", "0.2", "--duplicate", "0.05", "--reorder", "0.1", "--messages", "5000", "--seed", "7")


def test_a_run_prints_the_prediction_and_the_measurement(cli: Cli) -> None:
    done = cli(*ROUTE, *LOSSY)
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["R"].split()[1:3] == ["1", "1"]
    assert lines["UR"].split()[1:3] == ["1", "1"]
    assert lines["missing"].split() == ["missing", "none"]
    assert "agrees with predicted" in text


def test_as_json_it_is_one_object(cli: Cli) -> None:
    done = cli(*ROUTE, *LOSSY, "--json")
    result = json.loads(done.out)
    assert (result["route"], result["seed"], result["sent"]) == ("resend_many | dedup", 7, 5000)
    assert result["reliability"]["value"] == result["uniqueness"]["value"] == 1.0
    assert result["predicted"]["agrees"] is True


def test_the_same_seed_writes_the_same_trace(cli: Cli, tmp_path: Path) -> None:
    traces = []
    for name in ("one", "two"):
        cli(*ROUTE, *LOSSY, "--crash", "receiver@500", "--trace", tmp_path / name)
        traces.append((tmp_path / name).read_bytes())
    assert traces[0] == traces[1]
    assert b"receiver crash 500" in traces[0]


def test_a_broken_promise_is_reported_and_is_no_error(cli: Cli) -> None:
    done = cli("lab", "run", "--route", "continuous(gaps=false)", "--loss", "0.2", "--messages", "100")
    assert done.code == 0
    assert "no promise: continuous(gaps=false) needs" in done.out.decode()


@pytest.mark.parametrize("options", [("--rate", "1e-9"), ("--loss", "1")], ids=" ".join)
def test_an_unfinished_run_exits_with_3(cli: Cli, options: tuple[str, str]) -> None:
    done = cli("lab", "run", "--route", "resend_many", "--messages", "10", *options)
    assert (done.code, done.err) == (3, "")
    assert b"UNFINISHED" in done.out
    assert b"agrees with predicted" not in done.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--route", "resend_man"), "resend_many"),
        (("--route", "resend_many", "--crash", "storage@5"), "receiver"),
        (("--route", "resend_many", "--crash", "now"), "ROLE@MESSAGES"),
        (("--route", "resend_many", "--delay", "slow"), "fixed:0.01"),
        (("--route", "resend_many", "--trace", "/nowhere/at/all"), "folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_run_that_is_impossible_is_an_error_with_a_hint(
    cli: Cli, arguments: tuple[str, ...], word: str
) -> None:
    done = cli("lab", "run", *arguments)
    assert (done.code, done.out) == (1, b"")
    assert word in done.err.splitlines()[1]


def test_a_rate_beyond_1_is_wrong_usage(cli: Cli) -> None:
    assert cli(*ROUTE, "--loss", "1.5").code == 2


@pytest.mark.parametrize(
    "options", [("--work", "inf"), ("--rate", "inf"), ("--rate", "nan"), ("--delay", "lognormal:1,50")]
)
def test_numbers_without_an_end_are_refused(cli: Cli, options: tuple[str, str]) -> None:
    done = cli("lab", "run", "--route", "resend", "--messages", "5", *options)
    assert done.code in (1, 2)
    assert "Traceback" not in done.err
