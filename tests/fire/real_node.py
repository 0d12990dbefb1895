"""A real node in a separate process: started, killed and started again on the same port and folder."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.fire.forked import Forked, fork_node

START_S_MAX = 30.0
STOP_S_MAX = 20.0
NODE = (sys.executable, "-m", "headpond", "node")


class NodeDidNotStart(Exception):
    """The node ended, or was silent, before it was ready; the text is its stderr."""


class RealNode:
    """``with RealNode(folder) as node``: leaving the block ends the process."""

    def __init__(
        self, folder: Path, *, config: str = "", command: Sequence[str] = NODE, listen: str = "127.0.0.1:0"
    ) -> None:
        self.data = folder / "data"
        self.url = ""
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._command = list(command)
        self._listen = listen
        self._errors = folder / "node.err"
        self._config = folder / "node.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(config)

    def start(self) -> Self:
        """Returns when the node can serve."""
        assert self.process is None, "it runs already"
        self.process = self.launch()
        assert self.process.stdout is not None
        line = b""
        if select.select([self.process.stdout], [], [], START_S_MAX)[0]:
            line = self.process.stdout.readline()
        word, _, url = line.decode().strip().partition(" ")
        if word != "ready":
            self.kill()
            raise NodeDidNotStart(self.errors)
        self.url = url
        self._listen = url.partition("://")[2]
        return self

    def launch(self) -> subprocess.Popen[bytes] | Forked:
        """Starts the process without waiting for it."""
        options = ["--data", str(self.data), "--listen", self._listen, "--config", str(self._config)]
        if self._command == list(NODE):
            return fork_node(options, self._errors)
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                [*self._command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self._listen.rpartition(":")
        return host, int(port)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def errors(self) -> str:
        """The stderr of all its runs."""
        return self._errors.read_text(errors="replace")

    @property
    def rss_bytes(self) -> int:
        """The memory of the process now, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the node is gone")

    def kill(self) -> None:
        """Kills the process (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Asks it to end; returns its exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> Self:
        self.kill()
        return self.start()

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(STOP_S_MAX)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Returns when ``condition()`` is true; fails after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)
