"""A topic of messages that were sent one at a time, in files that a real node has packed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import headpond
from tests.fire.real_node import RealNode, wait_until

CONFIG = "[log]\nrotate_bytes = 32768\npreallocate_bytes = 4096\nindex_every_bytes = 1024\n"
COUNT = 2000
PRODUCER = "till"


def value(entry: int) -> bytes:
    return b"%d" % entry


def fill_packed(node: RealNode, topic: str) -> list[Path]:
    """Stores ``COUNT`` messages in one shard; returns the packed files when all closed ones are packed."""

    async def fill() -> None:
        async with (
            headpond.connect(node.url) as client,
            client.producer(topic, batch_rows=1, name=PRODUCER) as producer,
        ):
            for entry in range(COUNT):
                producer.post(value(entry), key=b"k%d" % (entry % 7))
                if entry % 200 == 199:  # a write larger than a file makes a larger file
                    await producer.flush()
            await producer.flush()

    asyncio.run(fill())
    wait_until(lambda: len(_files(node, packed=True)) > 2 and len(_files(node, packed=False)) == 1)
    return _files(node, packed=True)


def _files(node: RealNode, *, packed: bool) -> list[Path]:
    found = sorted(node.data.glob("topics/*/00000/*.log"))
    return [path for path in found if path.name.endswith(".00000001.log") == packed]
