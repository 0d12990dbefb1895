"""The loop of a blocking client: who runs it, and that nobody waits for it in vain."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headpond.sync.background import LEND_S, Background

CALLS = 200


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.stop()
    assert background.loop.is_closed()


async def runner() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


def lend(background: Background) -> None:
    """Calls until the calling thread runs the loop itself."""
    until = time.monotonic() + 10
    while background.run(runner()) != threading.get_ident():
        assert time.monotonic() < until


def test_calls_in_quick_succession_run_on_the_calling_thread(background: Background) -> None:
    lend(background)
    here = [background.run(runner()) == threading.get_ident() for _ in range(CALLS)]
    assert sum(here) > CALLS // 2


@pytest.mark.parametrize("hurry", [False, True])
def test_the_thread_continues_when_nobody_calls(background: Background, *, hurry: bool) -> None:
    lend(background)
    ran = threading.Event()
    background.soon(ran.set, hurry=hurry)
    assert ran.wait(10)
    time.sleep(10 * LEND_S)
    assert background.run(runner()) != threading.get_ident(), "the thread runs it"


def test_a_caller_that_acts_in_place_of_the_loop_lets_it_run_now_and_then(background: Background) -> None:
    lend(background)
    until = time.monotonic() + 100 * LEND_S
    while background.begin():
        background.end()
        assert time.monotonic() < until


def test_several_threads_share_the_loop(background: Background) -> None:
    def calls(number: int) -> list[int]:
        async def echo(at: int) -> int:
            await asyncio.sleep(0.0001 * (number % 3))
            return at

        return [background.run(echo(at)) for at in range(CALLS)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(calls, range(8))) == [list(range(CALLS))] * 8


def test_an_error_of_the_work_is_the_callers(background: Background) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("no")

    for _ in range(3):
        lend(background)
        with pytest.raises(LookupError, match="no"):
            background.run(fail())


def test_an_interrupt_ends_the_wait_and_cancels_the_work(background: Background) -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    lend(background)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        background.run(wait())
    timer.join()
    assert ended.wait(10), "the thread runs what is left of it"
    assert background.run(asyncio.sleep(0, "goes on")) == "goes on"


def test_a_program_with_a_running_loop_may_call_too(background: Background) -> None:
    async def program() -> int:
        return max(background.run(runner()) for _ in range(20))

    assert asyncio.run(program()) != threading.get_ident()
