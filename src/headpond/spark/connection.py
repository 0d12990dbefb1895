"""The connection of a source or a sink to its node: the driver reads the options, and every task uses them.

Defaults come from the driver's environment, then from the context in use, as on the command line
(docs/access.md). A context's token and certificates go to the context's own URL alone.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import headpond.sync
from headpond.client.contexts import TLS_NAMES, Contexts, NodeContext
from headpond.model.address import DEFAULT_URL, parse_addresses
from headpond.model.errors import BadRequest, HeadpondError
from headpond.spark.options import Option


@contextmanager
def errors_with_hints() -> Iterator[None]:
    """Adds code and hint to the text of a ``HeadpondError``, since Spark shows the text alone."""
    try:
        yield
    except HeadpondError as error:
        raise type(error)(f"{error.message} [{error.code}] {error.hint}", hint=error.hint) from None


_WORKERS = ("pyspark.daemon", "pyspark.worker")


@functools.cache
def freeze_loaded_objects() -> None:
    """In a worker of Spark, once: excludes all objects in memory from garbage collection.

    A reused worker collects garbage over all of its memory after every task (``gc.collect()`` in pyspark's
    daemon), modules included: 20 to 30 ms, several times per batch. Modules that the first task loaded stay
    loaded anyway.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name in _WORKERS:
        gc.collect()
        gc.freeze()


TIMEOUT_S = 120.0
TRY_AGAIN_S = 0.25
NO_TOKEN = "none"
CONNECTION_OPTIONS = (
    Option(
        "url",
        f"`HEADPOND_URL`, the [context](access.md#contexts) in use, `{DEFAULT_URL}`",
        "the node, which tasks must reach too; several, separated by commas, are one service tried in order",
    ),
    Option(
        "token",
        "`HEADPOND_TOKEN`, the context's",
        f"as for every client; `{NO_TOKEN}` sends none, even if the environment has one",
    ),
    Option(
        "ca",
        "`HEADPOND_CA`, the context's, the system's",
        "a file of authorities to trust, for `headponds://`; every machine that runs tasks needs it",
    ),
    Option("cert", "`HEADPOND_CERT`, the context's", "a certificate to show to a node that asks for one"),
    Option("key", "`HEADPOND_KEY`, the context's", "its key, unless the same file has it"),
    Option("timeout", f"{TIMEOUT_S:g}", "how many seconds to wait for an unreachable node"),
)


@dataclass(frozen=True, slots=True)
class NodeConnection:
    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """None: the environment of each process decides, as for ``cert`` and ``key``."""
    cert: str | None = None
    key: str | None = None
    timeout_s: float = TIMEOUT_S

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
        freeze_loaded_objects()
        return headpond.sync.connect(
            self.url,
            self.token,
            ca=self.ca,
            cert=self.cert,
            key=self.key,
            request_timeout=self.timeout_s,
            wait=wait,
        )


def read_connection(values: Mapping[str, str]) -> NodeConnection:
    """The connection that the options in ``values`` ask for."""
    url = values.get("url") or os.environ.get("HEADPOND_URL")
    context = None if url else Contexts().active()
    context = context or NodeContext(url or DEFAULT_URL)
    parse_addresses(context.url)
    token = values.get("token") or os.environ.get("HEADPOND_TOKEN") or context.token
    return NodeConnection(
        context.url,
        token if token != NO_TOKEN else None,
        # Each process reads the files that its environment names: machines may have them in different places.
        **{
            name: values.get(name) or (getattr(context, name) if not os.environ.get(variable) else None)
            for name, variable in TLS_NAMES.items()
        },
        timeout_s=_read_timeout(values),
    )


def _read_timeout(values: Mapping[str, str]) -> float:
    text = values.get("timeout", str(TIMEOUT_S))
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s < 1e6:
        raise BadRequest(f"option timeout is a number of seconds above 0, not {text!r}")
    return timeout_s
