"""``headpond up`` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.cli.conftest import HEADPOND
from tests.client.processes import environment

FREE = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
END_S_MAX = 60.0


class Up:
    """``console`` is the address that it prints first; its folder is below ``temporary``."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.temporary = temporary
        self.console = process.stdout.readline().strip()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.console, timeout=END_S_MAX, trust_env=False)

    def read_until(self, words: str) -> list[str]:
        """The lines of its output, up to one with these words."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or words not in lines[-1]:
            line = self.process.stdout.readline()
            assert line, f"it ended; it printed {lines}"
            lines.append(line)
        return lines

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(END_S_MAX)


@contextmanager
def up(*words: str) -> Iterator[Up]:
    with tempfile.TemporaryDirectory() as temporary:
        command = [*HEADPOND, "up", *(words or FREE)]
        variables = {**environment(), "TMPDIR": temporary}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
            running = Up(process, Path(temporary))
            try:
                yield running
            finally:
                if process.poll() is None:
                    running.end()
