"""Segments made by hand on one connection, so that the node is what is measured and not the client."""

from __future__ import annotations

import os
import time

from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.fire.raw_client import RawClient, title_frame

VALUE_BYTES = 100


class Sender:
    """One block of a topic. Every segment has the same rows of ``VALUE_BYTES`` random bytes each.

    The rows of a segment are distinct, so the encoder cannot fold them. The segment is encoded once, and sent
    under new numbers: the node stores a body as it came, neither compresses it nor compares it with others, so
    a new body would cost the node the same, and the client the time that is to be the node's.
    """

    def __init__(self, address: tuple[str, int], topic: str, *, shards: int = 1, rows: int = 1) -> None:
        self.client = RawClient(address)
        self._segments = [0] * shards
        now_us = time.time_ns() // 1000
        values: list[bytes | None] = [os.urandom(VALUE_BYTES) for _ in range(rows)]
        self._body = encode_plain(rows_to_batch(values, None, None, None, [now_us] * rows))
        info = read_result(self.client.request(CreateTopic(topic, shards, exist_ok=True)), TopicInfo)
        power = shards.bit_length() - 1
        self.client.send(title_frame(os.urandom(16), info.uuid, power=power, topic=topic))

    def round(self, shards: int = 1, each: int = 1) -> None:
        """``each`` segments to each of the first ``shards`` shards; returns when all are acknowledged."""
        frames = []
        for shard in range(shards):
            for _ in range(each):
                number = self._segments[shard]
                frames.append(encode(FrameType.SEGMENT, self._body, shard=shard, segment=number))
                self._segments[shard] += 1
        self.client.send(*frames)
        left = shards * each
        while left:
            items = self.client.until(Ack).items
            assert all(item.outcome == "stored" for item in items)
            left -= len(items)

    def close(self) -> None:
        self.client.close()
