"""The process of a broker: started for a measurement, on 127.0.0.1, in a folder that is removed afterwards."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_S_MAX = 60.0
STOP_S_MAX = 20.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Server:
    """Runs from the constructor until ``stop``; the processes that it starts belong to it."""

    def __init__(
        self, command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / "server.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._wait_for(port)

    def _wait_for(self, port: int) -> None:
        until = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return
            except OSError:
                ended = self._process.poll() is not None
                if ended or time.monotonic() > until:
                    self.stop()
                    words = self._log.read_text(errors="replace")[-2000:]
                    state = "ended" if ended else "does not listen"
                    raise RuntimeError(f"{self._process.args!r:.80} {state}: {words}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends every process of the session, also those that the server left behind."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._pids():
                os.kill(pid, number)
            until = time.monotonic() + STOP_S_MAX
            while time.monotonic() < until and (self._process.poll() is None or self._pids()):
                time.sleep(0.05)

    def resident_bytes(self) -> int:
        """The memory of all its processes."""
        total = 0
        for pid in self._pids():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        return total

    def disk_bytes(self) -> int:
        """The blocks that its folder takes on the disk."""
        files = (path.stat() for path in self.folder.rglob("*") if path.is_file())
        return sum(found.st_blocks * 512 for found in files)

    def _pids(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                after_name = path.read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            state, session = after_name[0], int(after_name[3])
            if session == self._process.pid and state != "Z":
                found.append(int(path.parent.name))
        return found


def _end_with_parent() -> None:
    """A benchmark that is killed leaves no server behind."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
