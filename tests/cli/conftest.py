"""Runs the command line as its users do: in a separate process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.fire import forked
from tests.fire.real_node import RealNode

Node = RealNode
HEADPOND = [sys.executable, "-m", "headpond"]
SECONDS_MAX = 60


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    code: int
    out: bytes
    err: str


Cli = Callable[..., Done]


def clean_environment() -> dict[str, str]:
    """What the user set does not count, but for the state folder, which is the test's own."""
    kept = ("HEADPOND_STATE",)
    return {
        name: value for name, value in os.environ.items() if name in kept or not name.startswith("HEADPOND_")
    }


@pytest.fixture
def cli() -> Cli:
    """``cli("topic", "list", url=..., stdin=b"...")``"""

    def run(
        *arguments: object,
        url: str | None = None,
        stdin: bytes = b"",
        timeout: float = SECONDS_MAX,
        **environment: str,
    ) -> Done:
        names = clean_environment() | environment
        if url is not None:
            names["HEADPOND_URL"] = url
        done = forked.run([*map(str, arguments)], names, stdin, timeout)
        return Done(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A real node that tests share; each test uses its own topic."""
    with Node(tmp_path_factory.mktemp("service")) as running:
        yield running


Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts a command and leaves it running; what still runs at the test's end is killed."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: object, **environment: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [*HEADPOND, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=clean_environment() | environment,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start
