"""Altered frames of every kind against a real node, beside a producer and a consumer that must not notice.

``python -m tests.fire.fuzz_frames --frames 20000 --seed 1`` (``make fuzz-frames``) prints the frames and
answers, the node's memory, and the longest latency of the healthy pair. It exits with 1 if the node died,
stopped answering or had an internal error, if a message of the healthy producer was not received, or if many
connections could not be opened: such an attack tests little.

The attacker has a token with all rights over its own tenant. A frame is altered in one of these ways:

    bytes     flipped, overwritten, cut or spliced as they are (the checksum is wrong)
    body      the same within the body, under a good checksum
    values    numbers, texts and lists of the body made extreme, under a good checksum
    header    another type, shard, segment or size
    order     as it is, but wherever chance puts it
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import headpond.sync
from headpond.model.errors import HeadpondError
from headpond.node.bootstrap import bootstrap
from headpond.wire.connection import ConnectionFault, Event
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.codec import Request, encode_control, read_result
from headpond.wire.control.consuming import Subscribe
from headpond.wire.control.greeting import Error, Ping, Pong
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import HEADER, HEADER_BYTES, TRAILER, Frame, FrameType, encode
from tests.broker.access.guarded import frames_about, samples
from tests.fire.good_pair import GoodPair
from tests.fire.raw_client import RawClient, segment_frame, title_frame
from tests.fire.real_node import RealNode
from tests.wire.mutations import KINDS, WORDS, alter

TOPIC = "evil/shop/till/orders"
PER_CONNECTION = 10
REFUSED_MAX = 100
TITLE_LEAD_BYTES = 17
CONFIG = "[limits]\nhandshake_s = 2.0\nframe_s = 2.0\n"
NUMBERS = [0, -1, 1, 255, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
REALS = [0.0, -0.001, float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324]
TEXTS = ["", "x" * 70_000, "\0", "..", "a/b", "*", "💧" * 500, "default/default/default/x", " "]
LISTS = [[[0, 2**62]], [0, 2**62], [[0, 0, 2**62]], [[0, 2**62]] * 20_000, list(range(20_000)), None]
WAYS = ["bytes", "body", "values", "values", "values", "values", "header", "order"]
ANSWER_S = 0.1
NAMES = {int(each) for each in FrameType}


# --- altered frames -----------------------------------------------------------------------------------


class Alterer:
    def __init__(self, draw: random.Random, pool: list[bytes]) -> None:
        self._draw = draw
        self._pool = pool
        self.ways: dict[str, Callable[[bytes], bytes]] = {
            "bytes": self._bytes,
            "body": lambda frame: self._with_body(frame, self._bytes(frame[HEADER_BYTES : -TRAILER.size])),
            "values": self._values,
            "header": self._header,
            "order": lambda frame: frame,
        }

    def _bytes(self, data: bytes) -> bytes:
        draw = self._draw
        count = draw.choice((1, 1, 2, 4))
        numbers = [(draw.randrange(2**20), draw.randrange(2**20)) for _ in range(count)]
        return alter(data, [(draw.choice(KINDS), *each, draw.choice(WORDS)) for each in numbers], self._pool)

    def _with_body(self, frame: bytes, body: bytes) -> bytes:
        type_, shard, segment, _ = HEADER.unpack_from(frame)
        return encode(type_, body, shard=shard, segment=segment)

    def _header(self, frame: bytes) -> bytes:
        type_, shard, segment, size = HEADER.unpack_from(frame)
        draw, body = self._draw, frame[HEADER_BYTES : -TRAILER.size]
        match draw.randrange(4):
            case 0:
                type_ = draw.choice([0, 255, *NAMES])
            case 1:
                shard = draw.choice([1, 4095, 4096, 65535])
            case 2:
                segment = draw.choice([1, 2**31, 2**32 - 1])
            case _:
                claimed = draw.choice([0, size + 1, max(size - 1, 0), 2**20, 2**32 - 1])
                return HEADER.pack(type_, shard, segment, claimed) + frame[HEADER_BYTES:]
        return encode(type_, body, shard=shard, segment=segment)

    def _values(self, frame: bytes) -> bytes:
        """Makes one or two values of a msgpack body extreme; alters any other body as bytes."""
        lead = TITLE_LEAD_BYTES if frame[0] == FrameType.TITLE else 0
        body = frame[HEADER_BYTES : -TRAILER.size]
        try:
            data = msgspec.msgpack.decode(body[lead:])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return self._with_body(frame, self._bytes(body))
        for _ in range(self._draw.choice((1, 1, 2))):
            data = self._extreme(data)
        return self._with_body(frame, body[:lead] + msgspec.msgpack.encode(data))

    def _extreme(self, data: Any) -> Any:
        draw = self._draw
        if isinstance(data, list) and data and draw.random() < 0.9:
            place = max(draw.randrange(len(data)) for _ in range(2))  # the first is mostly a number or a tag
            return [*data[:place], self._extreme(data[place]), *data[place + 1 :]]
        if isinstance(data, dict) and data and draw.random() < 0.7:
            key = draw.choice(list(data))
            return {**data, key: self._extreme(data[key])}
        if isinstance(data, list):
            return draw.choice([[], data * 3, [data], *LISTS])
        if isinstance(data, dict):
            return draw.choice([{}, dict.fromkeys(range(5000), 2**64 - 1), {"x" * 300: 1}, None])
        if isinstance(data, bytes):
            return draw.choice([b"", data * 2, data[:-1], bytes(70_000), "text", 0])
        if isinstance(data, str) and draw.random() < 0.7:
            return draw.choice([data * 300, f"{data}x", *TEXTS])
        return draw.choice([*NUMBERS, *REALS, True, None, "", b"", [], {}])


# --- the attack ---------------------------------------------------------------------------------------


class Attack:
    def __init__(self, address: tuple[str, int], token: str, seed: int) -> None:
        self._address = address
        self._token = token
        self._draw = random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.connections = 0
        self.refused: Counter[str] = Counter()
        """Connections that could not be opened, by error code."""

    def run(self, frames: int) -> None:
        while (left := frames - sum(self.sent.values())) > 0 and sum(self.refused.values()) < REFUSED_MAX:
            with contextlib.suppress(OSError):
                self._connection(min(PER_CONNECTION, left))

    def _connection(self, count: int) -> None:
        """Sends frames one by one, with or without waiting for answers, until the node disconnects."""
        self.connections += 1
        draw = self._draw
        greeted = draw.random() < 0.95
        with RawClient(self._address, greet=greeted, token=self._token) as client:
            try:
                pool = self._pool(client if greeted else None)
            except HeadpondError as error:
                self.refused[error.code] += 1
                return
            alterer = Alterer(draw, pool)
            for number in range(count):
                way = draw.choice(WAYS)
                client.send(alterer.ways[way](draw.choice(pool)))
                self.sent[way] += 1
                if not self._listen(client, number):
                    return

    def _pool(self, client: RawClient | None) -> list[bytes]:
        """Valid frames of every kind, and a connection in which most of them are meaningful."""
        uuid = b"u" * 16
        if client is not None:
            # An altered frame may have deleted the topic, or made it again with other shards.
            info = read_result(client.request(OpenTopic(TOPIC, create=True)), TopicInfo)
            uuid, power = info.uuid, info.shards.bit_length() - 1
            block, kind = self._draw.randbytes(16), self._draw.choice(["shared", "key_shared", "failover"])
            client.send(title_frame(block, uuid, power=power, topic=TOPIC), segment_frame([b"a", b"b"]))
            name, mode = f"{kind}-{self._draw.randrange(20)}", "non_resilient"
            client.send(Subscribe(1, TOPIC, name, kind, mode, "earliest", 10_000))
        found: list[bytes | Control] = [
            Request(number, operation)  # type: ignore[arg-type]
            for number, operation in enumerate(samples(TOPIC, uuid).values())
            if not isinstance(operation, Subscribe)
        ]
        for frames in frames_about(uuid, TOPIC).values():
            found += frames * 4  # there are far fewer of them than of requests
        return [each if isinstance(each, bytes) else encode_control(each) for each in found]

    def _listen(self, client: RawClient, number: int) -> bool:
        """Counts the node's answers to a frame; returns whether the connection is still usable."""
        client.socket.settimeout(ANSWER_S)
        client.send(Ping(2**40 + number))
        try:
            while (event := client.next_event()) is not None:
                if event == Pong(2**40 + number):
                    return True
                self.answers[shown(event)] += 1
        except TimeoutError:  # it waits for the rest of a frame
            self.answers["(waits for more)"] += 1
        return False


def shown(event: Event) -> str:
    if isinstance(event, ConnectionFault):
        return f"closed: {event.error.code}"
    if isinstance(event, Error):
        return f"ERROR {event.code}"
    if isinstance(event, Ack):
        item = event.items[0] if event.items else None
        return f"ACK {item.code or item.outcome}" if item is not None else "ACK"
    return "SEGMENT" if isinstance(event, Frame) else type(event).__name__


# --- all of it ----------------------------------------------------------------------------------------


def fuzz(folder: Path, frames: int, seed: int, say: Callable[[str], None] = print) -> list[str]:
    """Runs an attack; returns one line per fault."""
    node = RealNode(folder, config=CONFIG)
    _, secret = bootstrap(node.data, "admin")
    with node:
        with headpond.sync.connect(node.url, token=secret) as client:
            client.admin.create_topic("good/shop/till/orders")
            client.admin.create_topic(TOPIC)
            rights = ["produce", "consume", "admin"]
            make = client.admin.create_token
            good, evil = (make(name, rights=rights, scopes=[name]).secret for name in ("good", "evil"))
        with GoodPair(node.url, token=good, topic="good/shop/till/orders") as pair:
            before, pair.longest_s = node.rss_bytes, 0.0
            attack = Attack(node.address, evil, seed)
            attack.run(frames)
            alive = node.alive
            if alive:
                pair.goes_on()
            say(f"frames sent      {sum(attack.sent.values()):,} over {attack.connections:,} connections")
            say(f"  altered        {', '.join(f'{way} {count:,}' for way, count in attack.sent.most_common())}")
            say(f"  not set up     {sum(attack.refused.values())} connections")
            say("answers")
            for kind, count in attack.answers.most_common():
                say(f"  {kind:<32} {count:>8,}")
            if not alive:
                return ["the node died"]
            with RawClient(node.address, token=secret) as raw:
                internal = raw.request(ShowNode())["counters"].get("faults_internal", 0)
            memory = [size // 2**20 for size in (before, node.rss_bytes, node.rss_peak_bytes)]
            say("memory (RSS)     {} MiB before, {} MiB after, {} MiB at the most".format(*memory))
            say(f"healthy pair     {pair.received:,} messages sent and received, {pair.reconnects} reconnects")
            say(f"longest message  {pair.longest_s * 1000:.0f} ms from its sending to its being received")
        traces = node.errors.count("Traceback")
        say(f"faults of the node's own: {internal}, tracebacks in its log: {traces}")
    wrong = ["the node met faults of its own"] if internal or traces else []
    if sum(attack.refused.values()) >= REFUSED_MAX:
        wrong.append(f"{REFUSED_MAX} connections could not be set up")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Altered frames of every kind against a real node.")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            wrong = fuzz(asked.folder or Path(folder), asked.frames, asked.seed)
        except AssertionError as lost:
            wrong = [str(lost)]
    for line in wrong:
        print(f"WRONG: {line}")
    print("nothing was lost" if not wrong else "failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
