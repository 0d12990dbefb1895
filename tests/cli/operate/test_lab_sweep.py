"""``headpond lab sweep`` runs a grid on Spark, also where the machine has no Java, and exits by its verdict."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from headpond.cli.operate.lab import _routes
from tests.cli.conftest import HEADPOND, Cli, clean_environment
from tests.spark.conftest import path_without_java  # noqa: F401  # a fixture

SWEEP_S_MAX = 250


@pytest.mark.parametrize(
    "wrong",
    [
        ("--loss", "0,x"),
        ("--loss", "0,1.5"),
        ("--loss", "0.1,0.1"),
        ("--duplicate", ""),
        ("--reorder", "-1"),
        ("--confirm-loss", "nan"),
        ("--seeds", "0"),
        ("--messages", "0"),
        ("--routes", "resend,,index"),
    ],
    ids="=".join,
)
def test_wrong_numbers_and_empty_routes_are_wrong_usage(
    cli: Cli, tmp_path: Path, wrong: tuple[str, str]
) -> None:
    done = cli("lab", "sweep", "=".join(wrong), "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, b"")
    assert wrong[0] in done.err
    assert not (tmp_path / "out").exists()


def test_a_wrong_route_is_an_error_before_spark_starts(cli: Cli, tmp_path: Path) -> None:
    done = cli("lab", "sweep", "--routes", "resend, resnd", "--out", tmp_path / "out", "--json", PATH="")
    assert (done.code, done.out) == (1, b"")
    assert "Did you mean resend?" in json.loads(done.err)["hint"] + json.loads(done.err)["message"]


def test_commas_cut_routes_but_not_their_settings() -> None:
    given = ["resend_many(window=8, confirm=settled) | dedup(by=index,x=1), index", "resend -> dedup"]
    assert _routes(given) == (
        "resend_many(window=8, confirm=settled) | dedup(by=index,x=1)",
        "index",
        "resend -> dedup",
    )


@pytest.mark.timeout(300)
def test_a_machine_without_java_runs_a_sweep_and_prints_nothing_but_its_results(
    tmp_path: Path,
    path_without_java: str,  # noqa: F811
) -> None:
    environment = clean_environment() | {"PATH": path_without_java, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        environment.pop(name, None)
    options = [
        "--loss",
        "0,0.2",
        "--duplicate",
        "0.1",
        "--seeds",
        "2",
        "--messages",
        "200",
        "--master",
        "local[2]",
    ]
    done = subprocess.run(
        [*HEADPOND, "lab", "sweep", "--routes", "dedup, resend_many | dedup", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SWEEP_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "ROUTE RUNS FAILED UNFINISHED PROMISED AGREE SHARE WORST R WORST UR VERDICT"
    assert [line.split(" 4 ")[0] for line in lines[1:3]] == ["dedup", "resend_many | dedup"]
    assert all(line.endswith(" agrees") for line in lines[1:3])
    assert lines[4:] == ["lab-sweep/runs.parquet", "lab-sweep/R.png", "lab-sweep/UR.png"]
    (said,) = done.stderr.splitlines()
    assert said.startswith("8 runs in ")
    assert sorted(os.listdir(tmp_path)) == ["cache", "lab-sweep"]
