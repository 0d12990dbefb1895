"""Targets for a whole node in this process: frames from a client, and HTTP requests over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from os import urandom
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from headpond.broker.core import NodeCore
from headpond.broker.settings import HttpLimits, Settings
from headpond.node.bootstrap import bootstrap
from headpond.node.data_folder import NodeDisk
from headpond.node.http.bodies import ARROW, JSON, NDJSON, RAW
from headpond.node.http.server import HttpServer
from headpond.node.server import Server, now_us
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.access import CreateToken
from headpond.wire.control.catalog import CreateTopic, ShowTopic
from headpond.wire.control.codec import Request, encode_control
from headpond.wire.control.consuming import ShowSubscription
from headpond.wire.frame import FrameType, encode
from headpond.wire.typed.rows import to_rows
from headpond.wire.typed.schema import encode_schema
from tests.broker.access.guarded import TOPIC, GuardedNode, frames_about, samples
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import title_frame
from tests.fuzz.alter import with_checksums
from tests.fuzz.wire_targets import TYPED_ROWS
from tests.node.http.matrix import FILLED, PLACES, ROUTES
from tests.wire.typed.samples import SCHEMA, encode_all

Result = TypeVar("Result")
EVIL = "evil/shop/till/orders"
TYPED = "evil/shop/till/meters"


@cache
def a_node() -> tuple[MemoryDisk, bytes, bytes, str, str]:
    """A data folder, two topics of another tenant in it, the token of that tenant and that of the admin."""
    node = GuardedNode()
    uuid: bytes = node.admin.request(CreateTopic(EVIL))["uuid"]
    typed: bytes = node.admin.request(CreateTopic(TYPED, schema=encode_schema(SCHEMA)))["uuid"]
    token = node.made(node.admin, CreateToken("evil", ["produce", "consume", "admin"], ["evil"]))
    node.shell.core.close()
    return node.disk.copy(), uuid, typed, token.secret, node.admin_text


def about_others(admin: CoreClient) -> list[Any]:
    return [admin.request(ask) for ask in (ShowTopic(TOPIC), ShowSubscription(TOPIC, "billing"))]


def conversation(data: bytes) -> None:
    """Frames of a tenant's client make no fault of the node, and change nothing of another tenant."""
    disk, _, _, token, admin_token = a_node()
    shell = CoreShell(disk.copy(), seed=3, now_us=3_000_000)
    admin, client = shell.connect(admin_token), shell.connect(token)
    before = about_others(admin)
    client.send(with_checksums(data))
    shell.work_all()
    assert about_others(admin) == before
    assert "faults_internal" not in shell.core.context.counters


def typed_frames(uuid: bytes) -> bytes:
    """A block of a typed topic: two segments, and a snapshot at the second."""
    encoder, segments, redundants = encode_all([to_rows(TYPED_ROWS.slice(at, 2), SCHEMA) for at in (0, 2)])
    title = title_frame(b"t" * 16, uuid, topic=TYPED, schema=encode_schema(SCHEMA))
    first, second = (encode(FrameType.SEGMENT, each.body, segment=n) for n, each in enumerate(segments))
    return title + first + encode(FrameType.SNAPSHOT, encoder.snapshot(redundants[1:]).body, segment=1) + second


def frames_of(uuid: bytes) -> list[bytes]:
    """Valid frames of every kind about the topic of that tenant."""
    asked = [encode_control(Request(1, each)) for each in samples(EVIL, uuid).values()]  # type: ignore[arg-type]
    told = [
        b"".join(each if isinstance(each, bytes) else encode_control(each) for each in frames)
        for frames in frames_about(uuid, EVIL).values()
    ]
    return asked + told


# --- HTTP -----------------------------------------------------------------------------------------------

METHODS = ["GET", "POST", "PATCH", "DELETE", "HEAD", "PUT"]
MEDIA = [JSON, NDJSON, ARROW, RAW]
REQUESTS_MAX = 300
"""After as many the next request goes to a new node: the one before has other topics and tokens by then."""
ANSWER_S_MAX = 10.0
RAW_S = 0.02
"""How long bytes that may be no whole request wait for an answer."""


class HttpWorld:
    """A node with an HTTP server in this process, on a folder and a port of its own."""

    def __init__(self) -> None:
        self.requests = 0
        self._folder = TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        _, self.token = bootstrap(Path(self._folder.name), "admin")
        self._node, self._http = self.run(self._start())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    async def _start(self) -> tuple[Server, HttpServer]:
        disk = NodeDisk(Path(self._folder.name))
        data, place, limits = self._folder.name, "127.0.0.1:0", HttpLimits(wait_s=0.05)
        settings = Settings(data=data, listen=place, http=place, http_limits=limits)
        core = NodeCore(disk, settings, node="n", software="s", now_us=now_us, new_uuid=lambda: urandom(16))
        node = Server(disk, core, settings)
        await node.start()
        http = HttpServer(node, settings, None)
        await http.start()
        return node, http

    async def _stop(self) -> None:
        await self._http.stop()
        await self._node.stop()

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.close()
        self._folder.cleanup()

    async def ask(self, request: bytes, seconds: float) -> bytes:
        """The answer; the head of one that does not end, such as a stream of events."""
        self.requests += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self._http.url.rpartition(":")[2]))
        answer = b""
        with suppress(TimeoutError, ConnectionError):
            writer.write(request)
            async with asyncio.timeout(seconds):
                while b"text/event-stream" not in answer and (data := await reader.read(1 << 16)):
                    answer += data
        writer.close()
        return answer


_worlds: list[HttpWorld] = []


def a_world() -> HttpWorld:
    if _worlds and _worlds[0].requests > REQUESTS_MAX:
        _worlds.pop().stop()
    if not _worlds:
        _worlds.append(HttpWorld())
        for seed in HTTP_FURNITURE:
            http(seed)
    return _worlds[0]


def http(data: bytes) -> None:
    """A request to any path with any body, or any bytes at all, is answered, and never with a 500."""
    if b"peer" in data.lower():
        return  # the node would dial other machines
    world = a_world()
    lead, (line, _, body) = data[0] if data else 0, data[1:].partition(b"\n")
    request = data[1:]
    if lead < 0x80:
        media = MEDIA[lead // len(METHODS) % len(MEDIA)]
        head = (
            f"Host: localhost\r\nAuthorization: Bearer {world.token}\r\nContent-Type: {media}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        method = METHODS[lead % len(METHODS)].encode()
        request = method + b" " + line + b" HTTP/1.1\r\n" + head.encode() + body
    answer = world.run(world.ask(request, ANSWER_S_MAX if lead < 0x80 else RAW_S))
    assert answer or lead >= 0x80, "no answer"
    assert not answer.startswith(b"HTTP/1.1 500"), answer[-2000:]


def as_input(method: str, path: str, body: Any = None, query: dict[str, Any] | None = None) -> bytes:
    line = path + ("?" + urlencode(query) if query else "")
    content = b"" if body is None else msgspec.json.encode(body)
    return bytes((METHODS.index(method.upper()),)) + line.encode() + b"\n" + content


def _requests() -> list[bytes]:
    found = []
    for (method, path), route in ROUTES.items():
        place = next((name for level, name in PLACES.items() if f"/{level}/" in path), "")
        found.append(as_input(method, path.format(place=place, **FILLED), route.body, route.query))
    return [each for each in found if b"peer" not in each]


HTTP_FURNITURE = [
    as_input("post", "/v1/topics", {"topic": "acme/shop/till/orders", "shards": 2}),
    as_input("post", "/v1/topics", {"topic": "typed", "schema": [{"name": "n", "type": "int64"}]}),
    as_input("post", "/v1/topics/acme:shop:till:orders/subscriptions", {"subscription": "billing"}),
    as_input("post", "/v1/topics/acme:shop:till:orders/messages", {"messages": [{"value": "a"}] * 5}),
]
SEEDS = {conversation: [*frames_of(a_node()[1]), typed_frames(a_node()[2])], http: _requests()}
