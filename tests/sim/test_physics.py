"""The loop, the network and the processes of the simulation behave as machines do."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from headpond.sim.loop import Livelock, SimLoop
from headpond.sim.network import Network, Weather
from headpond.sim.process import Killed, Machine
from headpond.sim.surroundings import simulated


class Collector(asyncio.Protocol):
    transport: asyncio.WriteTransport

    def __init__(self) -> None:
        self.got = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Stage:
    """Two machines, one of which listens."""

    def __init__(self) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = Network(self.loop, "1")
        self.here, self.there = (Machine(self.loop, self.network, name, "1") for name in ("here", "there"))
        self.server = Collector()
        self.client = Collector()

    def run(self, scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        try:
            with simulated(self.loop, "1"):
                self.loop.run_until_complete(scenario(self))
        finally:
            self.loop.close()

    async def connect(self) -> asyncio.Transport:
        listening = self.there.start("server")
        self.network.listen(listening, lambda: self.server, ("there", 1))
        transport, _ = await self.network.dial(self.here.start("client"), lambda: self.client, ("there", 1))
        return transport


def test_bytes_come_late_in_pieces_and_in_order() -> None:
    async def scenario(stage: Stage) -> None:
        stage.network.weather = Weather(delay_s=0.5, stall=0.5, split=0.5)
        transport = await stage.connect()
        for number in range(200):
            transport.write(b"%d," % number)
        await asyncio.sleep(0.0001)
        assert stage.server.got == b""
        await asyncio.sleep(1000.0)
        assert stage.server.got == b"".join(b"%d," % number for number in range(200))

    Stage().run(scenario)


def test_a_partition_holds_bytes_back_in_one_direction() -> None:
    async def scenario(stage: Stage) -> None:
        transport = await stage.connect()
        await asyncio.sleep(1.0)
        stage.network.cut("here", "there")
        transport.write(b"to there")
        stage.server.transport.write(b"to here")
        await asyncio.sleep(10.0)
        assert (stage.server.got, stage.client.got) == (b"", b"to here")
        stage.network.heal_between("here", "there")
        await asyncio.sleep(1.0)
        assert stage.server.got == b"to there"

    Stage().run(scenario)


def test_a_killed_process_runs_nothing_more_and_its_peer_sees_the_end() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.connect()
        process = stage.here.processes[0]
        ran = []

        async def program() -> None:
            try:
                while True:
                    ran.append(stage.loop.time())
                    await asyncio.sleep(1.0)
            finally:
                process.disk.create("left behind")

        process.spawn(program())
        await asyncio.sleep(3.5)
        process.kill()
        await asyncio.sleep(10.0)
        assert (len(ran), stage.server.lost, stage.here.disk.paths()) == (4, True, [])

    Stage().run(scenario)


def test_a_stopped_process_continues_where_it_was() -> None:
    async def scenario(stage: Stage) -> None:
        process = stage.here.start("stopped")
        ran = []

        async def program() -> None:
            for _ in range(3):
                ran.append(stage.loop.time())
                await asyncio.sleep(1.0)

        process.spawn(program())
        await asyncio.sleep(0.5)
        process.stop()
        await asyncio.sleep(10.0)
        assert len(ran) == 1
        process.resume()
        await asyncio.sleep(5.0)
        assert len(ran) == 3

    Stage().run(scenario)


def test_a_point_kills_and_nothing_after_it_happens() -> None:
    async def scenario(stage: Stage) -> None:
        process = stage.here.start("doomed")
        process.kill_after = 1

        async def program() -> None:
            for number in range(5):
                process.disk.create(f"{number}")

        task = process.spawn(program())
        await asyncio.sleep(1.0)
        assert isinstance(task.exception(), Killed)
        assert (stage.here.disk.paths(), process.killed_at) == (["0"], "disk create 1")

    Stage().run(scenario)


def test_callbacks_that_follow_one_another_without_an_end_end_the_run() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_later(0.0, again)

    async def spin(number: int) -> None:
        await asyncio.sleep(0)
        asyncio.get_running_loop().create_task(spin(number + 1))

    async def callbacks(stage: Stage) -> None:
        again()
        await asyncio.sleep(1.0)

    async def tasks(stage: Stage) -> None:
        stage.loop.create_task(spin(0))
        await asyncio.sleep(1.0)

    for scenario, name in ((callbacks, "again"), (tasks, "spin")):
        with pytest.raises(Livelock, match=name):
            Stage().run(scenario)


def test_a_callback_that_does_not_return_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headpond.sim.loop.CALLBACK_S_MAX", 0.05)

    async def scenario(stage: Stage) -> None:
        stage.loop.call_later(1.0, endless)
        await asyncio.sleep(10.0)

    def endless() -> None:
        while True:
            pass

    with pytest.raises(Livelock, match="endless does not return"):
        Stage().run(scenario)


def test_time_is_that_of_the_machine() -> None:
    async def scenario(stage: Stage) -> None:
        stage.there.skew_us = 5_000_000
        seen: list[float] = []

        async def look() -> None:
            seen.append(time.time() - time.monotonic())

        await stage.here.start("right").spawn(look())
        await stage.there.start("wrong").spawn(look())
        assert round(seen[1] - seen[0], 3) == 5.0

    Stage().run(scenario)


def test_a_module_that_is_imported_during_a_run_has_the_real_clock_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = ModuleType("headpond.imported_late")
    monkeypatch.setitem(sys.modules, late.__name__, late)
    with simulated(SimLoop(), "0"):  # type: ignore[abstract]
        late.monotonic = time.monotonic  # type: ignore[attr-defined]
    assert late.monotonic is time.monotonic
