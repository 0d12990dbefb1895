"""A producer of a typed topic over a real socket, made by hand: encoder, snapshots and all."""

from __future__ import annotations

import os
from typing import Any, Self

import pyarrow as pa

from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title, encode_title
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.form import Redundant
from headpond.wire.typed.rows import message_schema, row_schema, to_rows
from headpond.wire.typed.schema import encode_schema
from tests.fire.raw_client import RawClient

SENT_AT_US = 1_700_000_000_000_000


class TypedWriter:
    """One block of one shard; ``connect`` again after the node was away."""

    def __init__(self, address: tuple[str, int], topic: str, schema: pa.Schema) -> None:
        self._address = address
        self._topic = topic
        self.schema = schema
        self.block = os.urandom(16)
        self.encoder = RowEncoder(row_schema(schema), 0)
        self.redundants: list[Redundant] = []
        self.bodies: list[bytes] = []
        self.client: RawClient
        self.connect()

    def connect(self) -> None:
        self.client = RawClient(self._address)
        info = read_result(self.client.request(OpenTopic(self._topic)), TopicInfo)
        power = info.shards.bit_length() - 1
        title = Title(info.topic, info.uuid, "writer", schema=encode_schema(self.schema))
        self.client.send(encode(FrameType.TITLE, encode_title(self.block, power, title)))

    def encode(self, rows: list[dict[str, Any]], **envelope: Any) -> int:
        """Encodes the next segment; returns its number."""
        lines = [{"sent_at": SENT_AT_US, **envelope, "value": row} for row in rows]
        batch = pa.RecordBatch.from_pylist(lines, schema=message_schema(self.schema))
        segment, redundant = self.encoder.encode(to_rows(batch, self.schema))
        self.bodies.append(segment.body)
        self.redundants.append(redundant)
        return segment.key.segment

    def ship(self, segment: int) -> None:
        self.client.send(encode(FrameType.SEGMENT, self.bodies[segment], segment=segment))

    def ship_snapshot(self, segment: int) -> None:
        body = self.encoder.snapshot(self.redundants[segment:]).body
        self.client.send(encode(FrameType.SNAPSHOT, body, segment=segment))

    def answers(self, count: int) -> list[AckItem]:
        """The next ``count`` answers, in order."""
        found: list[AckItem] = []
        while len(found) < count:
            found += self.client.until(Ack).items
        return found

    def send(self, rows: list[dict[str, Any]], **envelope: Any) -> AckItem:
        self.ship(self.encode(rows, **envelope))
        (answer,) = self.answers(1)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
