"""A node in a process of its own, that can be killed and started again on the same port and folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headpond.model.errors import Unavailable

STOP_SECONDS_MAX = 10.0


class NodeProcess:
    def __init__(self, data: Path) -> None:
        self._data = data
        self._log = data.with_suffix(".log")
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Returns when the node can serve."""
        command = [sys.executable, "-m", "headpond", "node"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(self._data), "--listen", self._listen],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the one who runs it; it ends its node itself
            )
        assert self._process.stdout is not None
        word, _, url = self._process.stdout.readline().decode().strip().partition(" ")
        if word != "ready":
            raise Unavailable(f"the node did not start: {self._last_words()}")
        self.url = url
        self._listen = url.partition("://")[2]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it serves."""
        host, _, port = self._listen.rpartition(":")
        return host, int(port)

    @property
    def refill(self) -> str:
        """A folder beside its own, for what its producers spill."""
        return str(self._data.with_suffix(".refill"))

    def kill(self) -> None:
        """Ends it as a power switch would, from the process's point of view."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def stop(self) -> None:
        """Asks it to end; kills it when it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._forget()

    def _forget(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
