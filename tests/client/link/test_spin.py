"""When a thread may spin."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headpond.client.link import spin
from headpond.client.link.spin import LOOK_S, LoopSpin, Spin


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Eight cores, of which four are ours. Returns the file of the container's limit, which is not there."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(spin, "CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(spin, "LOAD", tmp_path / "loadavg")
    spin._load_file.cache_clear()
    yield tmp_path / "cpu.max"
    spin._load_file.cache_clear()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000", 4.0), ("150000 100000", 1.5), ("800000 100000", 4.0), ("damaged", 4.0)],
)
def test_cores_are_those_of_the_machine_up_to_the_containers_limit(
    machine: Path, limit: str, expected: float
) -> None:
    machine.write_text(limit)
    assert spin.cores() == expected
    assert looked(Spin(1.0), 100) == (expected >= 2)


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert spin.cores() == 8.0


@pytest.mark.parametrize(("running", "may"), [(1, True), (8, True), (9, False)])
def test_it_begins_while_the_machine_has_a_core_for_each_thread(running: int, may: bool) -> None:
    spin.LOAD.write_text(f"0.20 0.18 0.12 {running}/80 11206")
    assert looked(Spin(1.0), 100) == may


def test_one_look_does_not_decide() -> None:
    it = Spin(1.0)
    spin.LOAD.write_text("0.20 0.18 0.12 8/80 11206")
    assert not it.may_begin(1.0)
    assert looked(it, 100)
    spin.LOAD.write_text("0.20 0.18 0.12 9/80 11206")
    assert it.may_begin(100.0)
    assert not looked(it, 100, 200.0)


@pytest.mark.parametrize("text", [None, "", "0.20 0.18 0.12 many"])
def test_it_begins_where_the_machine_does_not_say(text: str | None) -> None:
    if text is not None:
        spin.LOAD.write_text(text)
    assert looked(Spin(1.0), 100)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[LoopSpin]:
    """Each turn of a loop that spins; the machine has room for it."""
    monkeypatch.setattr(spin, "cores", lambda: 2.0)
    monkeypatch.setattr(spin, "SPARE", 100.0)
    turns: list[LoopSpin] = []
    turn = LoopSpin._turn

    def note(it: LoopSpin) -> None:
        turns.append(it)
        turn(it)

    monkeypatch.setattr(LoopSpin, "_turn", note)
    return turns


async def test_a_loop_spins_until_the_end_of_work_that_followed_soon(turns: list[LoopSpin]) -> None:
    it = LoopSpin(Spin(5.0))
    it.end(it.begin())
    await asyncio.sleep(0.01)
    assert turns == [], "nothing came before the first"
    began_s = it.begin()
    await asyncio.sleep(0.01)  # another task has its turn
    seen = len(turns)
    assert seen > 1
    it.end(began_s)
    await asyncio.sleep(0.01)
    assert len(turns) <= seen + 1
    began_s = it.begin()
    await asyncio.sleep(0)
    assert len(turns) > seen, "it begins again"


async def test_a_loop_that_was_never_answered_sleeps_after_a_moment(turns: list[LoopSpin]) -> None:
    it = LoopSpin(Spin(0.2))
    it.end(it.begin())
    it.begin()
    await asyncio.sleep(0.3)
    seen = len(turns)
    await asyncio.sleep(0.02)
    assert 0 < seen == len(turns)


async def test_work_that_took_long_or_came_late_is_worth_no_spin(turns: list[LoopSpin]) -> None:
    it = LoopSpin(Spin(0.02))
    it.end(it.begin() - 0.03)
    it.begin()
    await asyncio.sleep(0.01)
    assert turns == [], "after a slow answer"
    it.end(it.begin())
    await asyncio.sleep(0.03)
    it.begin()
    await asyncio.sleep(0.01)
    assert turns == [], "after a pause"


def looked(it: Spin, times: int, from_s: float = 10.0) -> bool:
    """What it says after many looks."""
    return [it.may_begin(from_s + 2 * LOOK_S * number) for number in range(times)][-1]
