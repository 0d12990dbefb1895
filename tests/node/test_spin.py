"""The node's loop spins between the messages of a program that sends one after the other."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

import headpond
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.client.link import spin
from headpond.client.link.spin import LoopSpin, Spin
from headpond.node import server as shell
from headpond.node.data_folder import lock_folder

SPIN_S = 0.2


@pytest.mark.parametrize("spin_s", [0.0, SPIN_S])
async def test_the_loop_spins_after_messages_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spin_s: float
) -> None:
    turns = 0
    turn = LoopSpin._turn

    def note(it: LoopSpin) -> None:
        nonlocal turns
        turns += it is server._awake
        turn(it)

    monkeypatch.setattr(LoopSpin, "_turn", note)
    monkeypatch.setattr(spin, "cores", lambda: 2.0)
    monkeypatch.setattr(spin, "SPARE", 100.0)
    monkeypatch.setattr(shell, "HERE_S_MAX", 60.0)  # every short write runs on the loop
    settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", create_on_first_use=True)
    disk = lock_folder(tmp_path)
    core = NodeCore(
        disk, settings, node="n", software="test", now_us=shell.now_us, new_uuid=lambda: uuid.uuid4().bytes
    )
    server = shell.Server(disk, core, settings, spin=Spin(spin_s) if spin_s else None)
    async with (
        headpond.connect(await server.start()) as client,
        client.producer("t", refill=None) as producer,
    ):
        await producer.send(b"creates the file")
        await asyncio.sleep(2 * SPIN_S)
        before = turns
        await producer.send(b"alone")
        await asyncio.sleep(2 * SPIN_S)
        assert turns == before
        await producer.send(b"first")
        await producer.send(b"second")
        await asyncio.sleep(2 * SPIN_S)
        after = turns
        assert (after > before) == (spin_s > 0)
        await asyncio.sleep(SPIN_S)
        assert turns == after
    await server.stop()
    disk.unlock()
