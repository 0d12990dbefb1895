"""The examples with several processes check their own claims: they end with 0 only if these hold."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.root import ROOT

FOLDER = ROOT / "examples" / "pipes"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "tcp_two_processes",
            ["receiver killed after", "1 restart of the receiver seen", "sent 6000", "R = 1,"],
        ),
        ("stream_topic", ["from 2000 on", "1 reconnects", "sent 6000, received 6000", "R = 1, UR = 1"]),
    ],
)
def test_an_example_ends_with_0(name: str, shown: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "6000"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each for each in shown if each not in done.stdout] == []
