"""A topic filled by a real client, its files, and the messages that a node serves afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import headpond
from headpond.storage.frame_file import Found, scan
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.frame import FrameType
from headpond.wire.record import RecordHeader, decode_record_header
from tests.fire.real_node import RealNode

CONFIG = """
[log]
rotate_bytes = 16384
preallocate_bytes = 4096
index_every_bytes = 1024
pack_segments_min = 1000000
"""
"""A short topic has several files, and they keep their names: nothing is packed."""
TOPIC = "kept"
ROWS = 5
"""Of each segment."""


@dataclass(frozen=True)
class Served:
    """The messages that a new subscription gets."""

    values: dict[int, bytes]
    """By entry."""
    lost: list[headpond.LostSpan]
    info: TopicInfo

    @property
    def lost_entries(self) -> set[int]:
        return {entry for span in self.lost for entry in range(span.start, span.end)}

    @property
    def damaged_entries(self) -> set[int]:
        """The output of ``topic show``."""
        return {entry for start, end in self.info.shard_list[0].damaged for entry in range(start, end)}


def value(entry: int) -> bytes:
    return random.Random(entry).randbytes(100)


def fill(url: str, segments: int = 120, topic: str = TOPIC) -> dict[int, bytes]:
    """Stores segments of ``ROWS`` messages each; returns the values by entry."""

    async def run() -> dict[int, bytes]:
        stored: dict[int, bytes] = {}
        async with headpond.connect(url) as client, client.producer(topic) as producer:
            for number in range(segments):
                values = [value(number * ROWS + row) for row in range(ROWS)]
                receipt = await producer.send_batch(pa.table({"value": values}))
                for one, sent in zip(receipt.receipts, values, strict=True):
                    assert one.entry is not None
                    stored[one.entry] = sent
        return stored

    return asyncio.run(run())


def serve(url: str, subscription: str = "audit", topic: str = TOPIC, *, settle: bool = False) -> Served:
    """Reads the rest of the topic with the subscription; ``settle`` acknowledges everything."""

    async def run() -> Served:
        async with headpond.connect(url) as client:
            values: dict[int, bytes] = {}
            async with client.consumer(topic, subscription=subscription) as consumer:
                while True:
                    while (message := await consumer.receive(timeout=0.05)) is not None:
                        assert message.entry not in values, "served twice"
                        values[message.entry] = message.value
                        if settle:
                            await consumer.ack(message)
                    await consumer.flush()
                    if await nothing_left(client, 0 if settle else len(values)):
                        break
                lost = list(consumer.lost)
            return Served(values, lost, await client.admin.show_topic(topic))

    async def nothing_left(client: headpond.Client, held: int) -> bool:
        """Whether the consumer has everything that is not settled."""
        infos = await client.admin.list_subscriptions(topic)
        (info,) = [info for info in infos if info.subscription == subscription]
        return info.unsettled == info.in_flight == held

    return asyncio.run(run())


def log_files(node: RealNode) -> list[Path]:
    """The files of the only topic with messages, oldest first."""
    return sorted(node.data.glob("topics/*/00000/*.log"))


def records(path: Path) -> Iterator[tuple[Found, RecordHeader]]:
    """The stored segments in a file."""
    file = OsDisk(path.parent).open(path.name)
    try:
        for item in scan(file):
            if isinstance(item, Found) and item.frame.type == FrameType.SEGMENT:
                yield item, decode_record_header(item.frame.body)
    finally:
        file.close()


def first_entry(path: Path) -> int:
    return int(path.stem)


def flip(path: Path, offset: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def frames_end(path: Path) -> int:
    """Where the last frame of a file ends."""
    file = OsDisk(path.parent).open(path.name)
    try:
        return max(item.end for item in scan(file))
    finally:
        file.close()
