"""What a process takes from its machine besides sockets and disk: time and randomness, from the run's seed.

The product calls the standard library (``time.monotonic()``, ``secrets.token_bytes()``). During a run these
names lead to the process that runs at the moment.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from headpond.broker.subscriptions import cursor
from headpond.client.produce import refill_send, slot
from headpond.cluster import member, outbox
from headpond.sim.loop import SimLoop
from headpond.sim.process import EPOCH_US, Process

REACH_MIN = 2
"""So few that deliveries of a short run go past it."""
CONTENT_BYTES_MAX = 64
"""So few that a change of a group takes several records."""


@contextmanager
def simulated(loop: SimLoop, seed: str) -> Iterator[None]:
    """Inside, time and randomness are those of the run."""
    own = random.Random(f"{seed} world")
    thread, real_sleep = get_ident(), time.sleep

    def chance() -> random.Random:
        return loop.process.random if isinstance(loop.process, Process) else own

    def now_us() -> int:
        if isinstance(loop.process, Process):
            return loop.process.machine.now_us()
        return EPOCH_US + round(loop.time() * 1e6)

    def no_sleep(seconds: float) -> None:
        if get_ident() != thread:  # of a library: it belongs to no process of the run
            return real_sleep(seconds)
        raise AssertionError("a thread that sleeps stops the whole world")

    calls: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", lambda: now_us() / 1e6),
        (time, "time_ns", lambda: now_us() * 1000),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: round(loop.time() * 1e9)),
        (time, "sleep", no_sleep),
        (os, "urandom", lambda size: chance().randbytes(size)),
        (secrets, "token_bytes", lambda size=32: chance().randbytes(size)),
        (secrets, "token_hex", lambda size=32: chance().randbytes(size).hex()),
        (secrets, "randbelow", lambda end: chance().randrange(end)),
        (random, "random", lambda: chance().random()),
        (uuid, "uuid4", lambda: uuid.UUID(bytes=chance().randbytes(16), version=4)),
        (slot, "OsDisk", lambda place: _caller(loop).disk_at(str(place))),
        (refill_send, "OsDisk", lambda place: _caller(loop).disk_at(str(place))),
        (socket, "gethostname", lambda: loop.process.place if loop.process else "world"),
        (os, "getpid", lambda: 1),
    ]
    small = [
        (cursor, "REACH_MIN", REACH_MIN),
        (outbox, "CONTENT_BYTES_MAX", CONTENT_BYTES_MAX),
        (member, "KEPT", 0.0),  # a member that was away needs a copy
    ]
    undo: list[tuple[Any, str, Any]] = [(module, name, getattr(module, name)) for module, name, _ in small]
    undo += [(module, name, getattr(module, name)) for module, name, _ in calls]
    shared = [(getattr(module, name), call) for module, name, call in calls if name != "OsDisk"]
    imported = _aliases(shared)
    undo += [(place, alias, getattr(place, alias)) for place, alias, _ in imported]
    for place, alias, call in [*small, *calls, *imported]:
        setattr(place, alias, call)
    try:
        yield
    finally:
        undo += _aliases([(call, real) for real, call in shared])  # of modules that were imported meanwhile
        for place, alias, real in undo:
            setattr(place, alias, real)


def _caller(loop: SimLoop) -> Process:
    assert isinstance(loop.process, Process), "only a process has a disk"
    return loop.process


def _aliases(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
    """Where the product has imported the first of a pair by name, each with the second."""
    by_id = {id(first): second for first, second in pairs}
    return [
        (module, alias, by_id[id(value)])
        for path, module in list(sys.modules.items())
        if path.startswith("headpond.")
        for alias, value in list(vars(module).items())
        if id(value) in by_id
    ]
