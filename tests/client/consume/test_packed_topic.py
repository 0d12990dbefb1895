"""Consumers of every kind and mode get the messages of packed files, each once and in its order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import headpond
from tests.client.consume.cells import CELLS, take
from tests.fire import packed_topic
from tests.fire.real_node import RealNode

COUNT = 60


def test_every_kind_and_mode_gets_the_messages_of_packed_files(tmp_path: Path) -> None:
    async def consume(client: headpond.Client, kind: Any, mode: Any) -> list[bytes]:
        name = f"{kind}-{mode}"
        async with client.consumer("t", subscription=name, kind=kind, mode=mode) as consumer:
            return [message.value for message in await take(consumer, COUNT)]

    async def scenario() -> None:
        async with headpond.connect(node.url) as client:
            for kind, mode in CELLS:
                assert await consume(client, kind, mode) == list(map(packed_topic.value, range(COUNT))), (
                    kind,
                    mode,
                )

    with RealNode(tmp_path, config=packed_topic.CONFIG) as node:
        packed_topic.fill_packed(node, "t")
        asyncio.run(scenario())
