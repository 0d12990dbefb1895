"""A node on a real disk confirms messages and settlements after the system call that makes them durable."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path

import pytest

import headpond
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.node.data_folder import lock_folder
from headpond.node.server import Server, now_us
from tests.client.reading import receive

MESSAGES = 6
SYNC_S = 0.02
"""A slow disk: a confirmation that does not wait for the sync comes before its end."""


def test_a_message_and_a_settlement_are_confirmed_after_their_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    """The folders of the files that were synced since the last confirmation."""
    fdatasync = os.fdatasync

    def slow(handle: int) -> None:
        time.sleep(SYNC_S)
        fdatasync(handle)
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).relative_to(tmp_path).parts[0])

    async def scenario(server: Server) -> None:
        async with (
            headpond.connect(await server.start()) as client,
            client.producer("t", refill=None) as producer,
            client.consumer("t", "s") as consumer,
        ):
            for _ in range(MESSAGES):
                synced.clear()
                await producer.send(b"message")
                assert "topics" in synced
                message = await receive(consumer)
                synced.clear()
                await consumer.ack(message)
                await consumer.flush()
                assert "settlements" in synced
        await server.stop()

    async def run() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", create_on_first_use=True)
        disk = lock_folder(tmp_path)
        core = NodeCore(
            disk, settings, node="n", software="test", now_us=now_us, new_uuid=lambda: uuid.uuid4().bytes
        )
        await scenario(Server(disk, core, settings))
        disk.unlock()

    monkeypatch.setattr(os, "fdatasync", slow)
    asyncio.run(run())
