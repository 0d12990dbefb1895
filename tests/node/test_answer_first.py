"""What a node does with a message that comes alone, in order: sync, answer, delivery, STATUS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

import headpond
from headpond.broker.core import NodeCore
from headpond.broker.effects import Send
from headpond.broker.settings import Settings
from headpond.node import server as shell
from headpond.node.data_folder import lock_folder
from headpond.storage.append import STATUS_BYTES
from headpond.wire.frame import FrameType

WARM_UP = 3


async def test_a_lone_message_is_synced_then_answered_then_delivered_then_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    pwritev, fdatasync, send = os.pwritev, os.fdatasync, shell.Server._send

    def is_log(handle: int) -> bool:
        return "topics" in os.readlink(f"/proc/self/fd/{handle}")

    def write(handle: int, parts: Sequence[bytes], offset: int) -> int:
        size = pwritev(handle, parts, offset)
        if is_log(handle):
            done.append("status" if size == STATUS_BYTES else "frames")
        return size

    def sync(handle: int) -> None:
        fdatasync(handle)
        if is_log(handle):
            done.append("sync")

    def answer(server: shell.Server, effect: Send) -> None:
        done.append(FrameType(effect.parts[0][0]).name)
        send(server, effect)

    monkeypatch.setattr(os, "pwritev", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(shell.Server, "_send", answer)
    monkeypatch.setattr(shell, "HERE_S_MAX", 60.0)  # every short write runs on the loop
    settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", create_on_first_use=True)
    disk = lock_folder(tmp_path)
    core = NodeCore(
        disk, settings, node="n", software="test", now_us=shell.now_us, new_uuid=lambda: uuid.uuid4().bytes
    )
    server = shell.Server(disk, core, settings)
    async with (
        headpond.connect(await server.start()) as client,
        client.producer("t", refill=None) as producer,
        client.consumer("t", "s", kind="shared") as consumer,
    ):
        for _ in range(WARM_UP):
            await producer.send(b"")
            assert await consumer.receive(10.0) is not None
        done.clear()
        await producer.send(b"message")
        assert await consumer.receive(10.0) is not None
        assert done[:5] == ["frames", "sync", "ACK", "DELIVER", "status"]
        assert core.context.counters["writes_on_loop"] > 0
    await server.stop()
    disk.unlock()
