"""How a source or a sink reaches its node: the options that both take, read by the driver, used by every task.

What the options leave out comes from the driver's environment, then from the context in use, as on the command
line (docs/access.md). A context's token and certificates go to the context's own URL alone.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import headpond.sync
from headpond.client.contexts import TLS_NAMES, Context, Contexts
from headpond.model.address import DEFAULT_URL, parse_addresses
from headpond.model.errors import BadRequest, HeadpondError

# Options of ``format("headpond")``: how each is declared, and how those that a user gives are read.
#
# An option that is unknown or empty is an error that names it; nothing is ignored. The tables of options in
# the documentation are made from the declarations.


class Option(NamedTuple):
    name: str
    default: str
    """In words, for the documentation."""
    meaning: str


def given_options(
    options: Mapping[str, str], declared: Iterable[Option], *, ignored: Collection[str] = ()
) -> dict[str, str]:
    """The values by declared name; Spark's spelling of a name is any. ``ignored`` names are in lower case."""
    known = {option.name.lower(): option.name for option in declared}
    values: dict[str, str] = {}
    for key, value in options.items():
        name = known.get(key.lower())
        if name is None:
            if key.lower() in ignored:
                continue
            raise _unknown_option(key, value, known.values())
        if not str(value).strip():
            raise BadRequest(f"option {name} is empty", hint="Leave it out, or give it a value.")
        values[name] = str(value).strip()
    return values


def _unknown_option(key: str, value: str, known: Iterable[str]) -> BadRequest:
    """Also of the path that ``load``, ``save`` and ``start`` take, which a topic has none of."""
    if key.lower() == "path":
        return BadRequest(
            f"a path is given, {value!r}, and a topic has none",
            hint='Name the topic with .option("topic", …), and call load, save and start without a path.',
        )
    return BadRequest(f"option {key!r} is unknown", hint=f"There are {', '.join(known)}.")


def word_of(name: str, values: Mapping[str, str], words: tuple[str, ...]) -> str:
    """An option that is one of some words, the first unless another is given."""
    word = values.get(name, words[0]).lower()
    if word not in words:
        raise BadRequest(f"{name} = {values[name]!r} is none of {', '.join(words)}")
    return word


def whole_number(text: str, low: int, high: int) -> int | None:
    """The number that a text is; None where it is none, or not within these."""
    number = int(text) if text.isdecimal() and len(text) <= 20 else -1
    return number if low <= number <= high else None


def options_table(declared: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    rows = [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in declared]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


@contextmanager
def errors_with_hints() -> Iterator[None]:
    """Raises an error of the catalogue with its code and its hint in its text, and without what led to it."""
    try:
        yield
    except HeadpondError as error:
        raise type(error)(f"{error.message} [{error.code}] {error.hint}", hint=error.hint) from None


# Python's garbage collector in Spark's workers.
#
# A worker that is used again looks through all of its memory after every task (``gc.collect()`` in pyspark's
# daemon), modules and all: 20 to 30 ms, several times a batch. What was loaded by the first task stays for
# good anyhow, and need not be looked through.

_WORKERS = ("pyspark.daemon", "pyspark.worker")


@functools.cache
def freeze_loaded_objects() -> None:
    """In a worker of Spark's, once: whatever is in memory by now is left alone by the collector."""
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
        "the node, which tasks must reach too; several, with commas between, are one service tried in order",
    ),
    Option(
        "token",
        "`HEADPOND_TOKEN`, the context's",
        f"as for every client; `{NO_TOKEN}` sends none, whatever the environment has",
    ),
    Option(
        "ca",
        "`HEADPOND_CA`, the context's, the system's",
        "a file of authorities to trust, for `headponds://`; every machine that runs tasks has it there",
    ),
    Option("cert", "`HEADPOND_CERT`, the context's", "a certificate to show to a node that asks for one"),
    Option("key", "`HEADPOND_KEY`, the context's", "its key, unless the same file has it"),
    Option("timeout", f"{TIMEOUT_S:g}", "for how many seconds a node that is away is waited for"),
)


@dataclass(frozen=True, slots=True)
class NodeConnection:
    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """None: what the environment of each process names, as for ``cert`` and ``key``."""
    cert: str | None = None
    key: str | None = None
    timeout_s: float = TIMEOUT_S

    def open(self, *, wait_s: float = 0.0) -> headpond.sync.Client:
        """A client of the node. One that is away is tried again for so long; then the error says why."""
        until = time.monotonic() + wait_s
        while True:
            try:
                return self._connect(wait=True)
            except HeadpondError as error:
                if not error.retryable or time.monotonic() >= until:
                    raise
            time.sleep(TRY_AGAIN_S)

    def open_later(self) -> headpond.sync.Client:
        """A client that connects when the node is there; each of its calls waits for that."""
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
    context = context or Context(url or DEFAULT_URL)
    parse_addresses(context.url)
    token = values.get("token") or os.environ.get("HEADPOND_TOKEN") or context.token
    return NodeConnection(
        context.url,
        token if token != NO_TOKEN else None,
        # A file that the environment names is left to each process: machines may have it in different places.
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
