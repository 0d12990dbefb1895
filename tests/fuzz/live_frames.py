"""Altered frames of every kind against a real node, beside a producer and a consumer that must not notice.

The attacker has a token with all rights over its own tenant. A frame is sent as it is, with altered bytes, with
altered bytes under a right checksum, or with extreme values in its msgpack body.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import headpond.sync
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import HeadpondError
from headpond.node.bootstrap import bootstrap
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import Subscribe
from headpond.wire.control.greeting import Ping, Pong
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import HEADER, HEADER_BYTES, TRAILER, encode
from tests.fire.good_pair import GoodPair
from tests.fire.raw_client import RawClient, segment_frame, title_frame
from tests.fire.real_node import RealNode
from tests.fuzz.alter import KINDS, WORDS, alter, with_checksums
from tests.fuzz.node_targets import EVIL, frames_of

PER_CONNECTION = 10
REFUSED_MAX = 100
ANSWER_S = 0.1
CONFIG = "[limits]\nhandshake_s = 2.0\nframe_s = 2.0\n"
EXTREMES: list[Any] = [0, -1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**64 - 1, -(2**63), float("nan"), 1e308]
EXTREMES += [float("inf"), -0.001, "", "x" * 70_000, "\0", "..", "*", "💧" * 500, bytes(70_000), b"", None]
EXTREMES += [[], {}, [[0, 2**62]], [0, 2**62], [[0, 2**62]] * 20_000, dict.fromkeys(range(5000), 2**64 - 1)]


def extreme(data: Any, draw: random.Random) -> Any:
    """The data with one value replaced, mostly deep inside."""
    if isinstance(data, list) and data and draw.random() < 0.9:
        place = max(draw.randrange(len(data)) for _ in range(2))  # the first is mostly a number or a tag
        return [*data[:place], extreme(data[place], draw), *data[place + 1 :]]
    if isinstance(data, dict) and data and draw.random() < 0.7:
        key = draw.choice(list(data))
        return {**data, key: extreme(data[key], draw)}
    return data * 300 if isinstance(data, str) and draw.random() < 0.2 else draw.choice(EXTREMES)


def altered(frame: bytes, pool: list[bytes], draw: random.Random) -> bytes:
    way = draw.choice(["as it is", "bytes", "checksums", "checksums", "values", "values", "values", "values"])
    if way == "values":
        with suppress(*UNDECODABLE):
            data = extreme(msgspec.msgpack.decode(frame[HEADER_BYTES : -TRAILER.size]), draw)
            type_, shard, segment, _ = HEADER.unpack_from(frame)
            return encode(type_, msgspec.msgpack.encode(data), shard=shard, segment=segment)
    if way == "as it is":
        return frame
    places = [(draw.randrange(2**20), draw.randrange(2**20)) for _ in range(draw.choice((1, 1, 2, 4)))]
    done = alter(frame, [(draw.choice(KINDS), *each, draw.choice(WORDS)) for each in places], pool)
    return done if way == "bytes" else with_checksums(done)


class Attack:
    def __init__(self, address: tuple[str, int], token: str, seed: int) -> None:
        self._address = address
        self._token = token
        self._draw = random.Random(seed)
        self.frames = 0
        self.refused: Counter[str] = Counter()
        """Connections that could not be opened, by error code."""

    def run(self, seconds: float, frames_max: int) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.frames < frames_max and self.refused.total() < REFUSED_MAX:
            with suppress(OSError):
                self._connect()

    def _connect(self) -> None:
        """Sends some frames, or fewer if the node disconnects or waits for the rest of one."""
        greeted = self._draw.random() < 0.95
        with RawClient(self._address, greet=greeted, token=self._token) as client:
            try:
                pool = self._pool(client) if greeted else frames_of(bytes(16))
            except HeadpondError as error:
                self.refused[error.code] += 1
                return
            client.socket.settimeout(ANSWER_S)
            for _ in range(PER_CONNECTION):
                client.send(altered(self._draw.choice(pool), pool, self._draw), Ping(2**40 + self.frames))
                self.frames += 1
                if not self._answered(client, Pong(2**40 + self.frames - 1)):
                    return

    def _pool(self, client: RawClient) -> list[bytes]:
        """Valid frames of every kind, on a connection in which most of them are meaningful."""
        # An altered frame may have deleted the topic, or made it again with other shards.
        info = read_result(client.request(OpenTopic(EVIL, create=True)), TopicInfo)
        title = title_frame(self._draw.randbytes(16), info.uuid, power=info.shards.bit_length() - 1, topic=EVIL)
        kind = self._draw.choice(["shared", "key_shared", "failover"])
        name = f"{kind}-{self._draw.randrange(20)}"
        client.send(title, segment_frame([b"a", b"b"]))
        client.send(Subscribe(1, EVIL, name, kind, "non_resilient", "earliest", 10_000))
        return frames_of(info.uuid)

    def _answered(self, client: RawClient, pong: Pong) -> bool:
        with suppress(TimeoutError):
            while (event := client.next_event()) is not None and not isinstance(event, ConnectionFault):
                if event == pong:
                    return True
        return False


def live_frames(folder: Path, seconds: float, frames_max: int = 2**40, seed: int = 1) -> tuple[int, str]:
    """The number of frames sent, and what is wrong."""
    node = RealNode(folder, config=CONFIG)
    _, secret = bootstrap(node.data, "admin")
    with node:
        with headpond.sync.connect(node.url, token=secret) as client:
            make = client.admin.create_token
            rights = ["produce", "consume", "admin"]
            good, evil = (make(name, rights=rights, scopes=[name]).secret for name in ("good", "evil"))
        with GoodPair(node.url, token=good, topic="good/shop/till/orders") as pair:
            attack = Attack(node.address, evil, seed)
            attack.run(seconds, frames_max)
            assert node.alive, f"the node died: {node.errors[-2000:]}"
            pair.goes_on()
            with RawClient(node.address, token=secret) as raw:
                internal = raw.request(ShowNode())["counters"].get("faults_internal", 0)
        wrong = node.errors[-2000:] if internal or "Traceback" in node.errors else ""
    if attack.refused.total() >= REFUSED_MAX:  # such an attack tests little
        wrong += f"connections could not be opened: {dict(attack.refused)}"
    return attack.frames, wrong
