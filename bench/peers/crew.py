"""Functions that run in processes of their own, and start their work at the same time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import traceback
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from threading import Barrier
from typing import Any

import uvloop

READY_S_MAX = 120.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.peers.workloads"])


class Start:
    """A member awaits it once it is connected; it returns when all members have got there."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier

    async def __call__(self) -> None:
        await asyncio.to_thread(self._barrier.wait, READY_S_MAX)


Work = Callable[..., Coroutine[Any, Any, Any]]
"""Its first argument is the ``Start``."""


def run_together(calls: Sequence[tuple[Work, tuple[Any, ...]]]) -> list[Any]:
    """What each call returned, in order; raises if one of them failed."""
    barrier = _CONTEXT.Barrier(len(calls))
    members = []
    for work, arguments in calls:
        here, there = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_member, args=(there, barrier, work, arguments), daemon=True)
        process.start()
        there.close()
        members.append((process, here))
    try:
        return [_result(here) for _, here in members]
    finally:
        for process, _ in members:
            process.kill()
            process.join()


def _result(pipe: Connection) -> Any:
    failed, result = pipe.recv()
    if failed:
        raise RuntimeError(f"a process of the benchmark failed:\n{result}")
    return result


def _member(pipe: Connection, barrier: Barrier, work: Work, arguments: tuple[Any, ...]) -> None:
    os.setsid()  # Linux shares a core among sessions, not processes: each member and each broker has its own
    try:
        pipe.send((False, uvloop.run(work(Start(barrier), *arguments))))
    except Exception:  # noqa: BLE001  # whatever it is, the parent raises it
        barrier.abort()
        pipe.send((True, traceback.format_exc()))
