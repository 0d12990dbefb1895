"""The machine's clock: it stands still while the route is away, and jumps when packets are lost."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.drivers.end import Prefix, Runner, new_epoch
from headpond.pipes.machines.machine import Effects, Submit
from headpond.pipes.machines.resend import ResendSender
from headpond.pipes.machines.timeout import TimeoutSettings
from tests.client.peer import until


def runner_of(timeout_s: float) -> tuple[Runner, list[Effects]]:
    steps: list[Effects] = []
    machine = ResendSender(epoch=1, timeout=TimeoutSettings(initial_s=timeout_s))
    return Runner(machine, steps.append), steps


async def test_no_time_passes_for_the_machine_until_it_resumes() -> None:
    runner, steps = runner_of(0.01)
    runner.resume()
    runner.step(Submit([b"a"]))
    runner.pause()
    before = runner.now
    await asyncio.sleep(0.05)
    assert runner.now == before
    assert len(steps) == 1, "a timer ran though the clock stood still"
    runner.resume()
    await until(lambda: len(steps) > 1)
    assert [packet.numbers for packet in steps[1].packets] == [[0]]
    runner.close()


async def test_the_clock_never_falls_and_takes_up_where_it_stood() -> None:
    runner, _ = runner_of(1000.0)
    seen = [runner.now]
    for _ in range(5):
        runner.resume()
        await asyncio.sleep(0.002)
        runner.pause()
        seen += [runner.now, runner.now]
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] >= 0.009
    runner.close()


async def test_after_a_loss_the_next_timer_is_due_at_once() -> None:
    runner, steps = runner_of(1000.0)
    runner.step(Submit([b"a", b"b"]))
    runner.resume(lost=True)
    await until(lambda: len(steps) > 1)
    assert [packet.numbers for packet in steps[1].packets] == [[0, 1]]
    runner.close()


async def test_a_closed_runner_has_no_timer() -> None:
    runner, steps = runner_of(0.01)
    runner.resume()
    runner.close()
    runner.step(Submit([b"a"]))
    await asyncio.sleep(0.05)
    assert len(steps) == 1


def test_a_session_that_starts_later_has_a_higher_epoch() -> None:
    first = new_epoch()
    second = new_epoch()
    assert 0 < first <= second < 1 << 63


@given(st.permutations(range(12)), st.integers(0, 12))
def test_a_prefix_ends_at_the_first_that_is_not_done(order: list[int], count: int) -> None:
    prefix = Prefix()
    prefix.add(order[:3])
    prefix.add(order[1:count])  # some of them again
    done = set(order[:3]) | set(order[1:count])
    assert prefix.floor == min(set(range(13)) - done)
