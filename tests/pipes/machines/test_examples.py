"""Every example of pipes runs and prints its point."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headpond.pipes.calculus.route import pipe_names
from tests.root import ROOT

FOLDER = ROOT / "examples" / "pipes"
SHOWN = {
    "resend": "sent again [[0]]",
    "resend_many": "100 different messages in ",
    "stream": "a new receiver reads [b'd']",
    "sequential": "1.02 s [[b'two']]",
    "index": "1 dropped ['late']",
    "continuous": "passed on: [[b'1', b'2', b'3']]",
    "dedup": "copies dropped 6",
    "bare": "agrees with predicted 0.4",
    "compose": "unconfirmed 0",
}


def test_every_pipe_has_an_example() -> None:
    assert {*pipe_names(), "compose"} == set(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_runs_and_prints_its_point(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SHOWN[name] in done.stdout
