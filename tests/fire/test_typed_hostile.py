"""Typed segments, snapshots and schemas that are broken or malicious, against a real node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headpond.model.errors import SchemaMismatch
from headpond.wire.control.catalog import CreateTopic, OpenTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title, encode_title
from headpond.wire.typed.schema import encode_schema
from tests.fire.raw_client import RawClient
from tests.fire.real_node import RealNode
from tests.fire.typed_writer import TypedWriter

MIB = 1024 * 1024
SCHEMA = pa.schema(
    [("value", pa.int64()), ("host", pa.string()), ("labels", pa.map_(pa.string(), pa.string()))]
)
RSS_GROWTH_MAX = 200 * MIB
CONFIG = f"[limits]\nconnection_decoder_bytes = {MIB}\ndecoder_bytes = {4 * MIB}\n"


class Target:
    """The node under attack, with a writer that must not notice."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        with RawClient(node.address) as client:
            client.request(CreateTopic("m", schema=encode_schema(SCHEMA)))
        self.writer = TypedWriter(node.address, "m", SCHEMA)
        self.rss_bytes = node.rss_bytes
        self._sent = 0

    def goes_on(self) -> None:
        self._sent += 1
        rows = [{"value": self._sent, "host": f"host-{self._sent}", "labels": [("n", str(self._sent))]}]
        assert self.writer.send(rows).outcome == "stored"

    def counters(self) -> dict[str, int]:
        with RawClient(self.node.address) as client:
            found: dict[str, int] = client.request(ShowNode())["counters"]
            return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with RealNode(tmp_path_factory.mktemp("typed-hostile"), config=CONFIG) as node:
        target = Target(node)
        with target.writer:
            yield target


@pytest.fixture
def target(running: Target) -> Iterator[Target]:
    """After every attack: the node lives, its memory is bounded, and the writer continues."""
    running.goes_on()
    yield running
    assert running.node.alive
    running.goes_on()
    assert running.node.rss_bytes < running.rss_bytes + RSS_GROWTH_MAX
    assert "Traceback" not in running.node.errors, running.node.errors
    assert "faults_internal" not in running.counters()


def answered(client: RawClient, *frames: bytes) -> list[AckItem]:
    """Sends frames and returns the answers: one for each segment."""
    client.send(*frames)
    found: list[AckItem] = []
    while len(found) < sum(frame[0] == FrameType.SEGMENT for frame in frames):
        found += client.until(Ack).items
    return found


def row(number: int) -> dict[str, Any]:
    return {"value": number, "host": f"h{number}", "labels": [("a", f"x{number}")]}


def test_a_segment_that_claims_more_rows_than_memory_is_refused(target: Target) -> None:
    with TypedWriter(target.node.address, "m", SCHEMA) as evil:
        evil.encode([{"value": None, "host": None, "labels": None}])
        for rows in (b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x40", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"):
            body = evil.bodies[0][:1] + rows + evil.bodies[0][2:]
            (answer,) = answered(evil.client, encode(FrameType.SEGMENT, body, segment=0))
            assert (answer.outcome, answer.code) == ("rejected", "bad-segment")
            evil.block = os.urandom(16)
            evil.client.close()
            evil.connect()


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.binary(2**27))]),
        pa.schema([("x", pa.list_(pa.list_(pa.int64(), 10_000), 10_000))]),
    ],
    ids=str,
)
def test_a_schema_whose_rows_would_fill_the_memory_is_refused(target: Target, schema: pa.Schema) -> None:
    encoded = bytes(schema.serialize())
    with RawClient(target.node.address) as client:
        with pytest.raises(SchemaMismatch, match="per row"):
            client.request(CreateTopic("wide", schema=encoded))
        info = read_result(client.request(OpenTopic("m")), TopicInfo)
        title = Title(info.topic, info.uuid, schema=encoded)
        frames = (
            encode(FrameType.TITLE, encode_title(os.urandom(16), 0, title)),
            encode(FrameType.SEGMENT, b"x"),
        )
        (answer,) = answered(client, *frames)
        assert answer.code == "schema-mismatch"


def test_many_blocks_with_large_dictionaries_stay_within_the_bounds(target: Target) -> None:
    before = target.counters().get("decoders_dropped", 0)
    rows = [
        {"value": 1, "host": f"a host with a long name {number:08}", "labels": []} for number in range(20_000)
    ]
    for _ in range(4):
        with TypedWriter(target.node.address, "m", SCHEMA) as writer:
            assert writer.send(rows).outcome == "stored"
            for _ in range(3):
                writer.encoder = type(writer.encoder)(writer.encoder.schema, 0)
                writer.bodies.clear()
                writer.block = os.urandom(16)
                info = read_result(writer.client.request(OpenTopic("m")), TopicInfo)
                title = Title(info.topic, info.uuid, schema=encode_schema(SCHEMA))
                writer.client.send(encode(FrameType.TITLE, encode_title(writer.block, 0, title)))
                assert writer.send(rows).outcome == "stored"
    assert target.counters()["decoders_dropped"] > before
