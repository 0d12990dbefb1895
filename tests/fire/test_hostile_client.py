"""Clients that are broken or malicious, against a real node.

The node answers or closes each one, and counts it; none harms the node or a well-behaved client.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headpond.model.bounds import TOPIC_LENGTH_MAX
from headpond.model.errors import HeadpondError
from headpond.wire.control.catalog import CreateTopic, ListTopics, OpenTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import Request, encode_control, read_result
from headpond.wire.control.consuming import Credit, Settle, Subscribe, Subscribed, Unsubscribe
from headpond.wire.control.greeting import Error, Ping, Pong
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack, AckItem, BlockEnd, Hole
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import HEADER, FrameType, encode
from headpond.wire.plain.few_rows import HEADER as SEGMENT_HEADER
from tests.fire.good_pair import GoodPair
from tests.fire.raw_client import RawClient, segment_body, segment_frame, title_frame
from tests.fire.real_node import RealNode, wait_until

MIB = 1024 * 1024
CONFIG = f"""
[limits]
handshake_s = 1.0
frame_s = 1.0
partial_bytes = {32 * MIB}
unsent_bytes = {8 * MIB}
"""
RSS_GROWTH_MAX = 160 * MIB


class Target:
    """The node under attack, with a producer and a consumer that must not notice."""

    def __init__(self, node: RealNode, pair: GoodPair) -> None:
        self.node = node
        self.pair = pair
        self.rss_bytes = node.rss_bytes

    def connect(self, *, greet: bool = True) -> RawClient:
        return RawClient(self.node.address, greet=greet)

    def counters(self) -> dict[str, int]:
        with self.connect() as client:
            found: dict[str, int] = client.request(ShowNode())["counters"]
            return found

    def topic(self, name: str, shards: int = 1) -> bytes:
        """Creates a topic and returns its uuid."""
        with self.connect() as client:
            return read_result(client.request(CreateTopic(name, shards, exist_ok=True)), TopicInfo).uuid

    def stored(self, name: str) -> int:
        with self.connect() as client:
            info = read_result(client.request(ShowTopic(name)), TopicInfo)
            return sum(shard.entry_next for shard in info.shard_list)

    @contextmanager
    def counts(self, counter: str, at_least: int = 1) -> Iterator[None]:
        """Asserts that this counter of the node rises inside the block."""
        before = self.counters().get(counter, 0)
        yield
        wait_until(lambda: self.counters().get(counter, 0) >= before + at_least)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with RealNode(tmp_path_factory.mktemp("hostile"), config=CONFIG) as node, GoodPair(node.url) as pair:
        yield Target(node, pair)
        pair.goes_on()
        assert "Traceback" not in node.errors, node.errors


@pytest.fixture
def target(running: Target) -> Iterator[Target]:
    """After every attack: the node lives, its memory is bounded, and the pair continues."""
    said = len(running.node.errors)
    yield running
    assert running.node.alive
    running.pair.goes_on()
    assert running.node.rss_bytes < running.rss_bytes + RSS_GROWTH_MAX
    new = running.node.errors[said:]
    assert "Traceback" not in new, new


def frame(type_: int, body: bytes, size: int | None = None) -> bytes:
    """A frame of any type; ``size`` makes its header claim another length."""
    whole = encode(type_, body)
    return whole if size is None else HEADER.pack(type_, 0, 0, size) + whole[HEADER.size :]


# --- bytes that are no conversation -------------------------------------------------------------------

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(189)
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(HTTP, "unknown-frame", id="an HTTP request"),
        pytest.param(TLS_HELLO, "unknown-frame", id="a TLS hello"),
        pytest.param(bytes(64), "unknown-frame", id="zeros"),
        pytest.param(frame(FrameType.HELLO, b"", size=2**32 - 1), "frame-too-large", id="a claim of 4 GiB"),
        pytest.param(encode_control(Ping(1)), "protocol", id="no greeting"),
        pytest.param(frame(200, b"x"), "unknown-frame", id="an unknown type"),
        pytest.param(frame(FrameType.MARKS, b"x"), "unknown-frame", id="a type that only files have"),
        pytest.param(frame(FrameType.HELLO, b"\x93\x91\x63\xa1x\xc0"), "version-unsupported", id="version 99"),
    ],
)
def test_a_connection_without_a_greeting_is_refused_with_a_reason(
    target: Target, data: bytes, code: str
) -> None:
    with target.counts(f"faults_{code}"), target.connect(greet=False) as client:
        client.send(data)
        assert client.end() == code


# --- time and room ------------------------------------------------------------------------------------


def test_a_client_that_says_nothing_is_closed(target: Target) -> None:
    with target.counts("connections_refused_timeout"), target.connect(greet=False) as client:
        assert client.end() == "timeout"


@pytest.mark.parametrize("cut", [1, 40])
def test_half_a_frame_and_then_silence_is_closed(target: Target, cut: int) -> None:
    with target.counts("connections_refused_timeout"), target.connect() as client:
        client.send(title_frame(bytes(16), bytes(16))[:cut])
        assert client.end() == "timeout"


def test_a_frame_that_comes_a_byte_at_a_time_is_closed_too(target: Target) -> None:
    with target.connect() as client:
        client.socket.settimeout(0.05)
        sent = frame(FrameType.SEGMENT, bytes(1000))
        with suppress(OSError):
            for place in range(len(sent)):
                client.send(sent[place : place + 1])
                if client.closed:
                    break
                with suppress(TimeoutError):
                    if not client.socket.recv(4096):
                        break
        assert place < len(sent) - 1, "it was let go on for ever"


def test_a_busy_producer_is_not_taken_for_one_that_stopped_in_a_frame(target: Target) -> None:
    """Its bytes nearly always end inside a frame, but never inside the same one."""
    uuid = target.topic("busy")
    whole = b"".join(segment_frame([bytes(3000)], segment=number) for number in range(400))
    with target.connect() as client:
        client.send(title_frame(os.urandom(16), uuid, topic="busy"))
        step = len(whole) // 350 + 7
        for place in range(0, len(whole), step):
            client.send(whole[place : place + step])
            time.sleep(0.01)
        acks: list[AckItem] = []
        while len(acks) < 400:
            acks += client.until(Ack).items
        assert {item.outcome for item in acks} == {"stored"}


def test_many_half_sent_frames_do_not_fill_the_memory(target: Target) -> None:
    half = HEADER.pack(FrameType.SEGMENT, 0, 0, 8 * MIB) + bytes(7 * MIB)
    with ExitStack() as stack, target.counts("connections_refused_limit"):
        for _ in range(30):
            client = stack.enter_context(target.connect())
            client.socket.settimeout(5.0)
            client.send(half)
        target.pair.goes_on()


def test_a_thousand_connections_that_come_and_go(target: Target) -> None:
    with target.counts("connections_closed", at_least=1000):
        for number in range(1000):
            peer = socket.create_connection(target.node.address)
            if number % 3 == 0:
                peer.sendall(b"\x10")
            if number % 3 == 1:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
    with target.connect() as client:
        assert client.request(ShowNode())["connections"] < 20


def test_a_client_that_asks_and_never_reads_is_closed(target: Target) -> None:
    for number in range(20):
        target.topic(f"long-answers-{number}")
    asks = b"".join(encode_control(Request(number, ListTopics())) for number in range(200))
    with target.connect() as client, target.counts("connections_refused_unsent"):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            client.send(asks)


def fill(target: Target, topic: str, segments: int) -> None:
    """Segments of 4 MiB."""
    uuid = target.topic(topic)
    with target.connect() as producer:
        producer.send(title_frame(os.urandom(16), uuid, topic=topic))
        for segment in range(segments):
            producer.send(segment_frame([os.urandom(4 * MIB)], segment=segment))
            producer.until(Ack)


def test_a_consumer_that_never_reads_costs_the_node_no_memory(target: Target) -> None:
    fill(target, "unread", 24)
    before = target.node.rss_bytes
    with target.connect() as consumer:
        consumer.send(Subscribe(1, "unread", "s", "unique", "non_resilient", "earliest", 2**40))
        consumer.until(Subscribed)
        target.pair.goes_on()
        target.pair.goes_on()
        assert target.node.rss_bytes < before + 48 * MIB


def test_a_client_that_was_refused_is_gone_even_if_it_does_not_read(target: Target) -> None:
    """Otherwise it would hold its subscription for ever."""
    fill(target, "kept", 6)
    ask = Subscribe(1, "kept", "s", "unique", "non_resilient", "earliest", 2**40)
    with target.connect() as stuck:
        stuck.send(ask)
        stuck.until(Subscribed)
        stuck.send(b"\x04")  # half a frame, for which it is refused

        def is_free() -> bool:
            with target.connect() as client:
                client.send(ask)
                return isinstance(client.next_event(), Subscribed)

        wait_until(is_free)


# --- a conversation with wrong content ----------------------------------------------------------------


def arrow_of(columns: dict[str, Any], **options: Any) -> bytes:
    """A segment in the IPC form that claims to hold value and sent_at."""
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()
    schema_end = 8 + struct.unpack_from("<I", stream, 4)[0]
    return bytes(SEGMENT_HEADER.pack(1, 0b10001, 0, 0, batch.num_rows) + stream[schema_end:-8])


SENT_AT = pa.array([1] * 100, pa.timestamp("us", "UTC"))
SEGMENTS = [
    pytest.param(b"", id="empty"),
    pytest.param(b"not arrow at all", id="text"),
    pytest.param(os.urandom(5000), id="random bytes"),
    pytest.param(b"\x01" + os.urandom(5000), id="random bytes in the IPC form"),
    pytest.param(b"\x02" + os.urandom(5000), id="random bytes in the bare form"),
    pytest.param(SEGMENT_HEADER.pack(2, 17, 0, 0, 2**32 - 1) + bytes(100), id="4 Gi rows in 100 bytes"),
    pytest.param(arrow_of({"a": pa.array(range(100)), "b": pa.array(range(100))}), id="another schema"),
    pytest.param(
        arrow_of({"value": pa.array([bytes(10_000)] * 100), "sent_at": SENT_AT}, compression="zstd"),
        id="a compressed body",
    ),
    pytest.param(segment_body([b"x"])[:-3], id="cut short"),
    pytest.param(segment_body([b"x"]) + b"more", id="bytes behind the end"),
]


@pytest.mark.parametrize("body", SEGMENTS)
def test_an_invalid_segment_is_refused_for_good_and_the_next_is_taken(target: Target, body: bytes) -> None:
    uuid = target.topic("refused")
    before = target.stored("refused")
    with target.counts("segments_refused"), target.connect() as client:
        client.send(title_frame(os.urandom(16), uuid, topic="refused"), encode(FrameType.SEGMENT, body))
        (item,) = client.until(Ack).items
        assert (item.outcome, item.code) in (("rejected", "bad-segment"), ("rejected", "schema-mismatch"))
        client.send(segment_frame([b"good"], segment=1))
        (item,) = client.until(Ack).items
        assert (item.outcome, item.first_entry) == ("stored", before)


def test_a_good_ipc_segment_is_taken_so_that_the_bad_ones_above_are_refused_for_their_faults(
    target: Target,
) -> None:
    uuid = target.topic("refused")
    body = arrow_of({"value": pa.array([bytes(1000)] * 100), "sent_at": SENT_AT})
    with target.connect() as client:
        client.send(title_frame(os.urandom(16), uuid, topic="refused"), encode(FrameType.SEGMENT, body))
        (item,) = client.until(Ack).items
        assert item.outcome == "stored", item


@pytest.mark.parametrize(
    ("uuid", "power", "shard", "segment", "code"),
    [
        pytest.param(bytes(16), 0, 0, 0, "topic-not-found", id="a topic that is not there"),
        pytest.param(b"short", 0, 0, 0, "topic-not-found", id="a uuid of 5 bytes"),
        pytest.param(None, 3, 0, 0, "topic-mismatch", id="another number of shards"),
        pytest.param(None, 0, 65535, 0, "topic-mismatch", id="a shard that is not there"),
        pytest.param(None, 0, 0, 2**32 - 1, "gap", id="a segment far ahead"),
    ],
)
def test_a_segment_in_the_wrong_place_is_rejected_with_the_reason(
    target: Target, uuid: bytes | None, power: int, shard: int, segment: int, code: str
) -> None:
    known = target.topic("places")
    with target.counts(f"segments_rejected_{code}"), target.connect() as client:
        title = title_frame(os.urandom(16), known if uuid is None else uuid, power=power, topic="no-such-topic")
        client.send(title, segment_frame([b"x"], shard=shard, segment=segment))
        (item,) = client.until(Ack).items
        assert (item.outcome, item.code) == ("rejected", code)
        client.send(Ping(1))
        client.until(Pong)


def test_a_segment_before_any_title_ends_the_connection(target: Target) -> None:
    with target.counts("connections_refused_protocol"), target.connect() as client:
        client.send(segment_frame([b"x"]))
        assert client.end() == "protocol"


@pytest.mark.parametrize(
    "name",
    ["..", "a/../b/c", "../../../etc/passwd", "a\0b", "x" * 10_000, "", "/", "a/b/c/d/e", "naïve", "💧", " "],
)
def test_an_invalid_topic_or_subscription_name_is_refused(target: Target, name: str) -> None:
    code = "bad-topic-name" if len(name) <= TOPIC_LENGTH_MAX else "bad-request"
    with target.connect() as client:
        for ask in (CreateTopic(name), OpenTopic(name, True), ShowTopic(name)):
            with pytest.raises(HeadpondError) as refused:
                client.request(ask)
            assert refused.value.code == code
        client.send(Subscribe(1, name, "s", "unique", "non_resilient", "earliest", 1000, "", True))
        assert client.until(Error).code == code
        client.send(Subscribe(2, "good", name, "unique", "non_resilient", "earliest", 1000))
        assert client.until(Error).code == "bad-request"
    folders = {path.name for path in Path(target.node.data).iterdir()}
    journals = {"admin_log", "catalog", "peers", "runs", "settlements", "tokens", "writers"}
    assert folders <= {"NODE", "LOCK", "topics", *journals}


@pytest.mark.parametrize("shards", [0, -1, 3, 8192, 2**62])
def test_an_impossible_number_of_shards_is_refused(target: Target, shards: int) -> None:
    with target.connect() as client, pytest.raises(HeadpondError) as refused:
        client.request(CreateTopic("shards", shards))
    assert refused.value.code == "bad-request"


SETTLEMENTS = [
    pytest.param({"acked": [(0, 2**40)]}, id="beyond the log"),
    pytest.param({"acked": [(3, 2)]}, id="backwards"),
    pytest.param({"skipped": [(-5, 1)]}, id="below zero"),
    pytest.param({"shard": 7, "acked": [(0, 1)]}, id="another shard"),
    pytest.param({"shard": -1, "acked": [(0, 1)]}, id="a shard below zero"),
    pytest.param({"acked": [(0, 1)], "nacked": [(0, -1.0)]}, id="a delay below zero"),
    pytest.param({"nacked": [(0, float("nan"))]}, id="a delay that is no number"),
    pytest.param({"nacked": [(0, 1e300)]}, id="a delay without end"),
    pytest.param({"nacked": [(-1, None)]}, id="an entry below zero given back"),
    pytest.param({"nacked": [(2**63, None)]}, id="an entry beyond everything given back"),
]


@pytest.mark.parametrize("wrong", SETTLEMENTS)
def test_an_impossible_settlement_is_refused_and_settles_nothing(target: Target, wrong: dict[str, Any]) -> None:
    uuid = target.topic("settled")
    with target.connect() as client:
        client.send(title_frame(os.urandom(16), uuid, topic="settled"), segment_frame([b"a", b"b", b"c", b"d"]))
        client.until(Ack)
        name = os.urandom(4).hex()
        client.send(Subscribe(1, "settled", f"s{name}", "unique", "non_resilient", "earliest", 1 << 20))
        client.until(Subscribed)
        client.send(Settle(1, 1, **{"shard": 0, **wrong}))
        assert client.until(Error).code == "bad-request"
        client.send(Unsubscribe(1), Subscribe(2, "settled", f"s{name}", "unique", "non_resilient", 0, 1000))
        assert client.until(Subscribed).positions == [0]


STRANGE: list[Control] = [
    Credit(1, -1),
    Credit(1, -(2**62)),
    Hole(bytes(16), -1, 5),
    Hole(bytes(16), -(2**40), 5),
    Hole(bytes(16), 2**40, 5),
    Hole(bytes(16), 0, 2**60),
    Hole(bytes(16), 0, -1),
    BlockEnd(bytes(16), {-(2**40): 1}),
    BlockEnd(bytes(16), {2**40: 1, 0: -1}),
]


@pytest.mark.parametrize("message", STRANGE, ids=repr)
def test_strange_numbers_are_refused_or_ignored_and_break_nothing(target: Target, message: Control) -> None:
    uuid = target.topic("strange")
    with target.connect() as client:
        client.send(title_frame(bytes(16), uuid, topic="strange"))
        client.send(Subscribe(1, "strange", "s", "unique", "non_resilient", "latest", 2**62))
        client.until(Subscribed)
        client.send(message, Ping(7))
        event: object = None
        while event is None or not isinstance(event, Pong):
            event = client.next_event()
            if event is None:
                return  # a closed connection is an answer too; the fixture checks that nothing broke
    with target.connect() as client:
        client.send(title_frame(os.urandom(16), uuid, topic="strange"), segment_frame([b"x"]))
        (item,) = client.until(Ack).items
        assert item.outcome == "stored"


@pytest.mark.parametrize("credit", [-1, -(2**60)])
def test_a_consumer_with_credit_below_0_is_refused(target: Target, credit: int) -> None:
    target.topic("credit")
    with target.counts("consumers_refused_bad-request"), target.connect() as client:
        client.send(Subscribe(1, "credit", "s", "unique", "non_resilient", "earliest", credit))
        assert client.until(Error).code == "bad-request"


def test_a_second_consumer_under_the_same_number_is_refused(target: Target) -> None:
    target.topic("twice")
    with target.connect() as client:
        for name in ("one", "two"):
            client.send(Subscribe(1, "twice", name, "unique", "non_resilient", "earliest", 1000))
        client.until(Subscribed)
        assert client.until(Error).code == "protocol"
