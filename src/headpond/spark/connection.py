"""The connection of a source or a sink to its node: the driver reads it from options, every task uses it."""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import headpond.sync
from headpond.client.contexts import TLS_NAMES
from headpond.client.heap import keep_freed_memory
from headpond.model.errors import HeadpondError

TIMEOUT_S = 120.0
TRY_AGAIN_S = 0.25
NO_TOKEN = "none"
_WORKERS = ("pyspark.daemon", "pyspark.worker")


@contextmanager
def errors_with_hints() -> Iterator[None]:
    """Adds code and hint to the text of a ``HeadpondError``, since Spark shows the text alone."""
    try:
        yield
    except HeadpondError as error:
        raise type(error)(f"{error.message} [{error.code}] {error.hint}", hint=error.hint) from None


@functools.cache
def settle_worker() -> None:
    """In a worker of Spark, once: keeps freed memory, and excludes all objects from garbage collection.

    A reused worker collects garbage over all of its memory after every task (``gc.collect()`` in pyspark's
    daemon), modules included: 20 to 30 ms, several times per batch. Modules that the first task loaded stay
    loaded anyway.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name in _WORKERS:
        gc.collect()
        gc.freeze()
        keep_freed_memory()


@dataclass(frozen=True, slots=True)
class NodeConnection:
    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """None: the environment of each process decides, as for ``cert`` and ``key``."""
    cert: str | None = None
    key: str | None = None
    timeout_s: float = TIMEOUT_S

    def options(self) -> dict[str, str]:
        """The options of ``format("headpond")`` that reach this node."""
        files = {name: path for name in TLS_NAMES if (path := getattr(self, name)) is not None}
        return {**files, "url": self.url, "token": self.token or NO_TOKEN}

    def open(self, *, wait_s: float = 0.0) -> headpond.sync.Client:
        """A connected client. Retries for ``wait_s`` if the node is unreachable, then raises the error."""
        until = time.monotonic() + wait_s
        while True:
            try:
                return self._connect(wait=True)
            except HeadpondError as error:
                if not error.retryable or time.monotonic() >= until:
                    raise
            time.sleep(TRY_AGAIN_S)

    def open_later(self) -> headpond.sync.Client:
        """A client that connects in the background; each of its calls waits for that."""
        return self._connect(wait=False)

    def _connect(self, *, wait: bool) -> headpond.sync.Client:
        settle_worker()
        return headpond.sync.connect(
            self.url,
            self.token,
            ca=self.ca,
            cert=self.cert,
            key=self.key,
            name=f"spark {socket.gethostname()}/{os.getpid()}",
            request_timeout=self.timeout_s,
            wait=wait,
        )
