"""Producers in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import headpond
from tests.root import ROOT


def environment() -> dict[str, str]:
    """The environment of this process, with the paths of the package and the tests."""
    paths = [str(Path(headpond.__file__).parents[1]), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def lone_producer(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """``tests.client.produce.lone_producer`` with these arguments; killed at the end, if not before."""
    command = [sys.executable, "-m", "tests.client.produce.lone_producer", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    """Its output up to ``last``."""
    assert process.stdout is not None
    found: list[str] = []
    while (line := process.stdout.readline().strip()) != last:
        assert line, f"it ended after {found[-3:]}"
        found.append(line)
    return found
