"""Jobs of the node's threads run on the loop."""

from __future__ import annotations

import asyncio

import pytest

from headpond.testing.loop_executor import LoopExecutor


async def test_a_job_reports_its_result_or_its_error() -> None:
    loop, executor = asyncio.get_running_loop(), LoopExecutor(lambda: 0.0)
    assert await loop.run_in_executor(executor, len, "four") == 4
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(executor, lambda: 1 / 0)


async def test_a_shutdown_runs_the_jobs_that_are_left_except_cancelled_ones() -> None:
    executor = LoopExecutor(lambda: 3600.0)
    done: list[int] = []
    wanted, unwanted = executor.submit(done.append, 1), executor.submit(done.append, 2)
    unwanted.cancel()
    executor.shutdown()
    assert done == [1] and wanted.done()


async def test_a_kill_drops_the_jobs_that_are_left() -> None:
    executor = LoopExecutor(lambda: 0.0)
    done: list[int] = []
    executor.submit(done.append, 1)
    executor.shutdown(cancel_futures=True)
    await asyncio.sleep(0)
    assert done == []
