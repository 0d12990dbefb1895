"""A producer of a typed topic against the node's core, every frame by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headpond.wire.control.catalog import CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Predecessor, Title, encode_title
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.form import Redundant
from headpond.wire.typed.rows import message_schema, row_schema, to_rows
from headpond.wire.typed.schema import encode_schema
from tests.fire.core_shell import CoreClient, CoreShell

SCHEMA = pa.schema([pa.field("at", pa.int64(), False), ("value", pa.int32()), ("host", pa.string())])
BLOCK = b"b" * 16
SENT_AT_US = 1_700_000_000_000_000

Rows = list[dict[str, Any]]


def messages(rows: Rows, schema: pa.Schema, **envelope: Any) -> pa.RecordBatch:
    """Rows as a batch of messages; the envelope is the same for all."""
    lines = [{"sent_at": SENT_AT_US, **envelope, "value": row} for row in rows]
    return pa.RecordBatch.from_pylist(lines, schema=message_schema(schema))


def segment_frame(body: bytes, segment: int, shard: int = 0) -> bytes:
    return encode(FrameType.SEGMENT, body, shard=shard, segment=segment)


def snapshot_frame(body: bytes, segment: int, shard: int = 0) -> bytes:
    return encode(FrameType.SNAPSHOT, body, shard=shard, segment=segment)


class TypedSender:
    """One block on one connection. Its encoder continues, whatever the node answers."""

    def __init__(
        self,
        shell: CoreShell,
        schema: pa.Schema = SCHEMA,
        *,
        topic_schema: pa.Schema | None = None,
        block: bytes = BLOCK,
        shards: int = 1,
        titled: bytes | None = None,
        predecessor: Predecessor | None = None,
    ) -> None:
        self.shell = shell
        self.schema = schema
        self.block = block
        self.client: CoreClient = shell.connect()
        create = CreateTopic("m", shards, exist_ok=True, schema=encode_schema(topic_schema or schema))
        self.info = read_result(self.client.request(create), TopicInfo)
        encoded = encode_schema(schema) if titled is None else titled
        title = Title(self.info.topic, self.info.uuid, "p", schema=encoded or None, predecessor=predecessor)
        self.title = encode(FrameType.TITLE, encode_title(block, shards.bit_length() - 1, title))
        self.client.send(self.title)
        self.encoder = RowEncoder(row_schema(schema), 0)
        self.redundants: list[Redundant] = []
        self.bodies: list[bytes] = []

    def encode(self, rows: Rows, **envelope: Any) -> bytes:
        """The next segment's frame; nothing is sent."""
        flat = to_rows(messages(rows, self.schema, **envelope), self.schema)
        segment, redundant = self.encoder.encode(flat)
        self.bodies.append(segment.body)
        self.redundants.append(redundant)
        return segment_frame(segment.body, segment.key.segment)

    def snapshot(self, segment: int) -> bytes:
        """The SNAPSHOT frame at a segment."""
        return snapshot_frame(self.encoder.snapshot(self.redundants[segment:]).body, segment)

    def again(self, segment: int) -> bytes:
        return segment_frame(self.bodies[segment], segment)

    def ask(self, *frames: bytes) -> list[AckItem]:
        """Sends frames, lets the disk work, and returns the answers."""
        self.client.send(*frames)
        self.shell.work_all()
        return [item for ack in self.client.take(Ack) for item in ack.items]

    def send(self, rows: Rows, **envelope: Any) -> AckItem:
        (answer,) = self.ask(self.encode(rows, **envelope))
        return answer

    def reconnect(self) -> None:
        """The same block on a new connection, which does not know it."""
        self.client = self.shell.connect()
        self.client.send(self.title)

    @property
    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.client.request(ShowNode())["counters"]
        return found

    def entries(self) -> int:
        info = read_result(self.client.request(ShowTopic("m")), TopicInfo)
        return sum(shard.entry_next for shard in info.shard_list)


def row(number: int, host: str = "a") -> dict[str, Any]:
    return {"at": number, "value": number, "host": host}
