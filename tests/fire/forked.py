"""``headpond ...`` in a separate process that starts at once; see ``fork_server``."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

import headpond

RUN_S_MAX = 60.0
SERVER = Path(__file__).with_name("fork_server.py")


class Forked:
    """The part of ``subprocess.Popen`` that the tests need.

    The process takes over the three descriptors; to read its stdout, pass the write end of a pipe.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        stdout: int | None = None,
        *,
        module: str = "headpond",
        folder: Path | None = None,
    ) -> None:
        self.stdout = None if stdout is None else os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._reading = threading.Lock()
        """Of two threads that look at once, each would read a part of the code."""
        self._said = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server, path = server()
        self._said.connect(path)
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
        }
        line = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._said, [line], list(streams))
        self._said.sendall(line[sent:])
        for stream in streams:
            os.close(stream)
        self.pid = int(self._line())

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise TimeoutExpired("headpond", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._is_readable(timeout):
            with self._reading:
                if self.returncode is None:
                    self.returncode = int(self._line())
                    self._said.close()
        return self.returncode

    def _is_readable(self, timeout: float | None) -> bool:
        """``select`` takes no descriptor above 1023, and a long run has many."""
        waiting = select.poll()
        waiting.register(self._said, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else 1000 * timeout))

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = self._said.recv(1)
            if not byte:
                self._said.close()
                raise AssertionError(
                    f"the fork server is gone; its exit code is {self._server.wait(RUN_S_MAX)}"
                )
            line += byte
        return line


def fork_node(options: Sequence[str], log: Path) -> Forked:
    """A node that reports on ``stdout`` when it is ready, and writes everything else to ``log``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    source, sink = os.pipe()
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return Forked(["node", *options], os.environ, (nothing, sink, errors), source)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes = b"", timeout: float = RUN_S_MAX
) -> CompletedProcess[bytes]:
    """Like ``subprocess.run``: all input, all output, and the exit code."""
    from_stdin, to_stdin = os.pipe()
    from_out, to_out = os.pipe()
    from_err, to_err = os.pipe()
    process = Forked(arguments, environment, (from_stdin, to_out, to_err))
    said: dict[int, bytes] = {}
    threads = [threading.Thread(target=_write, args=(to_stdin, stdin))]
    threads += [threading.Thread(target=_read, args=(source, said)) for source in (from_out, from_err)]
    for thread in threads:
        thread.start()
    try:
        code = process.wait(timeout)
    finally:
        process.kill()
        for thread in threads:
            thread.join()
    return CompletedProcess(["headpond", *arguments], code, said[from_out], said[from_err])


def _write(sink: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(sink, "wb") as opened:
        opened.write(data)


def _read(source: int, said: dict[int, bytes]) -> None:
    with open(source, "rb") as opened:
        said[source] = opened.read()


def server() -> tuple[subprocess.Popen[bytes], str]:
    """The fork server of this process and its socket. A killed server is replaced."""
    if _server()[0].poll() is not None:
        _server.cache_clear()
    return _server()


@cache
def _server() -> tuple[subprocess.Popen[bytes], str]:
    """It ends when this process does."""
    folder = tempfile.mkdtemp(prefix="headpond-fork-")
    path = str(Path(folder) / "socket")
    places = os.pathsep.join([str(Path(headpond.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    running = subprocess.Popen(
        [sys.executable, "-P", str(SERVER), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": places},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n", "the fork server did not start"
    atexit.register(_end, running, folder)
    return running, path


def _end(running: subprocess.Popen[Any], folder: str) -> None:
    with running:
        pass  # its stdin is closed, and it is waited for
    shutil.rmtree(folder, ignore_errors=True)
