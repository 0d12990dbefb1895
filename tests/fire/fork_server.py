"""Starts ``python -m headpond``, or another module, by forking a process that has loaded all of headpond.

The tests run about 500 commands and nodes, and most of them would spend their time loading Arrow. A forked
process has its own memory, environment, streams, signals and exit code; only the loading is shared. A test of
the loading itself starts Python directly.

``python fork_server.py SOCKET`` serves until its stdin ends, and then kills the processes that it started. A
connection is a process: the client sends a line of JSON (module, arguments, environment, folder) with three
descriptors; the server answers with the process id and, at its end, the exit code, one line each.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

LINE_BYTES_MAX = 1 << 20
ROOT = str(Path(__file__).parents[2])
NOT_LOADED = ("headpond.spark", "headpond.console")
"""Not loaded: few processes need Spark, and its modules start threads."""


def load() -> None:
    """Loads all modules of the package, the tree of commands, and everything that a first command loads."""
    import pyarrow as pa

    import headpond
    from headpond.cli.app import command

    for module in pkgutil.walk_packages(headpond.__path__, "headpond."):
        if not module.name.startswith(NOT_LOADED) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        command()(["errors"], prog_name="headpond")
    pa.array([0])  # loads pandas, where it is installed
    gc.collect()
    gc.freeze()


class ForkServer:
    def __init__(self, path: str) -> None:
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        for source in (0, self._wake_read, self._listener):
            self._selector.register(source, selectors.EVENT_READ)
        self._children: dict[int, socket.socket] = {}
        self._before = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGINT)}
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this one
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> dict[str, Any] | None:
        """Returns in every process that it starts, with the job of that process, and once itself at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if (request := self._start()) is not None:
                        return request
                elif key.fileobj == self._wake_read:
                    os.read(self._wake_read, 4096)
                    self._reap()
                else:
                    for child in self._children:
                        os.kill(child, signal.SIGKILL)
                    return None

    def _start(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        line, streams, _, _ = socket.recv_fds(connection, LINE_BYTES_MAX, 3)
        while not line.endswith(b"\n"):
            line += connection.recv(LINE_BYTES_MAX)
        child = os.fork()
        if child == 0:
            self._become_a_process(connection, streams)
            return dict(json.loads(line))
        for stream in streams:
            os.close(stream)
        self._children[child] = connection
        connection.sendall(b"%d\n" % child)
        return None

    def _become_a_process(self, connection: socket.socket, streams: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before[signal.SIGCHLD])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for opened in (self._listener, connection, *self._children.values()):
            opened.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = _text(0, "r")
        sys.stdout = _text(1, "w")
        sys.stderr = _text(2, "w", errors="backslashreplace", buffering=1)

    def _reap(self) -> None:
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            with self._children.pop(child) as waiting, contextlib.suppress(OSError):  # or no client waits
                waiting.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _text(number: int, mode: str, errors: str = "strict", buffering: int = -1) -> Any:
    return os.fdopen(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)


def main() -> None:
    load()
    server = ForkServer(sys.argv[1])
    print("ready", flush=True)
    request = server.serve()
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path.insert(0, ROOT)
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
