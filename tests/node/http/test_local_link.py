"""The link of HTTP's callers to their node: its rights, its limits and its end are those of any client."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headpond.broker.core import NodeCore
from headpond.broker.settings import Limits, Settings
from headpond.client.admin import Admin
from headpond.client.reader import Reader
from headpond.model.errors import (
    HeadpondError,
    LimitReached,
    NodeStopping,
    NotAllowed,
    TokenExpired,
    TokenNeeded,
    TokenRevoked,
    TopicNotFound,
)
from headpond.node.data_folder import NodeDisk
from headpond.node.http.lane import Lane
from headpond.node.http.local_link import LocalClient
from headpond.node.server import Server, clock_us, now_us
from headpond.wire.control.access import ShowAccess
from headpond.wire.control.catalog import OpenTopic, ShowTopic
from headpond.wire.control.reading import ReadEnds
from tests.node.http.nodes import HttpNode

Scenario = Callable[[Server], Awaitable[None]]


@asynccontextmanager
async def a_client(node: Server, token: str | None = None) -> AsyncIterator[LocalClient]:
    client = await LocalClient(node, token, "http").open()
    try:
        yield client
    finally:
        await client.close()


def with_node(folder: Path, scenario: Scenario, **limits: Any) -> None:
    settings = Settings(data=str(folder), listen="127.0.0.1:0", limits=Limits(**limits))

    async def run() -> None:
        disk = NodeDisk(folder)
        core = NodeCore(
            disk,
            settings,
            node="a" * 32,
            software="test",
            now_us=now_us,
            clock_us=clock_us,
            new_uuid=lambda: uuid.uuid4().bytes,
        )
        node = Server(disk, core, settings)
        await node.start()
        try:
            await asyncio.wait_for(scenario(node), 30)
        finally:
            await node.stop()

    asyncio.run(run())


async def opened_lane(client: LocalClient, topic: str = "t") -> Lane:
    return Lane(client.link, await client.link.ask(OpenTopic(topic, create=True)))


def rows(lane: Lane, *values: bytes) -> pa.RecordBatch:
    return lane.block.rows(pa.table({"value": list(values)}), now_us())


def is_unread(client: LocalClient) -> bool:
    session = client.link._local().session.session
    return session is not None and session.unread


def test_a_request_is_answered_with_the_nodes_own_object(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            made = await Admin(client.link).create_topic("t")
            shown = await client.link.ask(ShowTopic("default/default/default/t"))
            assert shown == await client.admin.show_topic("t")
            assert made.topic == "default/default/default/t"
            with pytest.raises(TopicNotFound):
                await client.admin.show_topic("nope")

    with_node(tmp_path, scenario)


def test_segments_are_stored_and_read_again_and_a_consumer_gets_them(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            lane = await opened_lane(client)
            receipts = await lane.send(rows(lane, b"a", b"b"))
            assert [receipt.entry for receipt in receipts] == [0, 1]
            async with Reader(client.link, "t") as reader:
                part = await reader.fetch(0, 0)
                assert [message.value for batch in part.batches for message in batch.messages()] == [b"a", b"b"]
            async with client.consumer("t", "s") as consumer, client.producer("t", "p") as producer:
                await producer.send(b"c")
                await lane.send(rows(lane, b"d"))
                await producer.send(b"e")  # under its own title again
                got = [await consumer.receive(5.0) for _ in range(5)]
            assert [message.value for message in got if message is not None] == [b"a", b"b", b"c", b"d", b"e"]

    with_node(tmp_path, scenario)


def test_it_is_one_connection_of_the_node(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        assert len(node.core.sessions) == 0
        async with a_client(node) as client:
            assert len(node.core.sessions) == 1
            assert (await client.admin.top()).node.connections == 1
        await asyncio.sleep(0)
        assert len(node.core.sessions) == 0

    with_node(tmp_path, scenario)


def test_it_counts_towards_the_limit_of_connections(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node), a_client(node):
            with pytest.raises(LimitReached, match=r"^this node takes at most 2 connections"):
                await LocalClient(node, None, "http").open()

    with_node(tmp_path, scenario, connections=2)


def test_a_token_has_its_rights_and_no_others(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            await client.admin.create_topic("t")
            token = await client.admin.create_token("root", rights=["admin"], scopes=["*"])
        async with a_client(node, token.secret) as root:
            reads = await root.admin.create_token("reads", rights=["consume"], scopes=["*"])
            async with a_client(node, reads.secret) as client:
                assert (await client.link.ask(ShowAccess())).rights == ["consume"]
                with pytest.raises(NotAllowed):
                    await client.admin.create_topic("u")
                lane = Lane(client.link, await root.link.ask(OpenTopic("t")))
                (receipt,) = await lane.send(rows(lane, b"x"))
                assert isinstance(receipt.error, NotAllowed)
        with pytest.raises(TokenNeeded):
            await LocalClient(node, None, "http").open()

    with_node(tmp_path, scenario)


def test_a_revocation_ends_a_request_that_waits(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            await client.admin.create_topic("t")
            root = await client.admin.create_token("root", rights=["admin"], scopes=["*"])
        async with a_client(node, root.secret) as admin:
            made = await admin.admin.create_token("short", rights=["consume"], scopes=["*"])
            async with a_client(node, made.secret) as client:
                ask = ReadEnds(["default/default/default/t"], [[0]], 20.0)
                waiting = asyncio.ensure_future(client.link.ask(ask))
                await asyncio.sleep(0.05)
                await admin.admin.revoke_token(made.info.token)
                with pytest.raises(TokenRevoked):
                    await waiting
                with pytest.raises(TokenRevoked):
                    await client.link.ask(ShowAccess())

    with_node(tmp_path, scenario)


def test_a_revocation_ends_messages_on_their_way(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            await client.admin.create_topic("t")
            root = await client.admin.create_token("root", rights=["admin"], scopes=["*"])
        async with a_client(node, root.secret) as admin:
            made = await admin.admin.create_token("short", rights=["produce"], scopes=["*"])
            async with a_client(node, made.secret) as client:
                lane = await opened_lane(client)
                sending = asyncio.ensure_future(lane.send(rows(lane, b"x")))
                await asyncio.sleep(0)
                node.core.sessions.refuse(client.link._local().session.number, TokenRevoked("it was revoked"))
                node.drain()
                with pytest.raises(TokenRevoked):
                    await sending

    with_node(tmp_path, scenario)


def test_a_token_that_expires_ends_the_link(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            root = await client.admin.create_token("root", rights=["admin"], scopes=["*"])
        async with a_client(node, root.secret) as admin:
            made = await admin.admin.create_token("short", rights=["consume"], scopes=["*"], lasts=0.3)
            async with a_client(node, made.secret) as client:
                await asyncio.sleep(0.35)
                with pytest.raises(TokenExpired):
                    await client.link.ask(ShowAccess())

    with_node(tmp_path, scenario)


def test_the_first_token_closes_the_node_to_links_without_one(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client, a_client(node) as other:
            await client.admin.create_token("root", rights=["admin"], scopes=["*"])
            with pytest.raises(TokenNeeded):
                await other.link.ask(ShowAccess())

    with_node(tmp_path, scenario)


def test_past_its_window_a_link_waits_until_the_disk_has_caught_up(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            lanes = [await opened_lane(client, f"t{number}") for number in range(4)]
            disk = threading.Event()
            for _ in range(32):  # all threads that write
                node._writers.submit(disk.wait, 5.0)
            sending = [asyncio.ensure_future(lane.send(rows(lane, os.urandom(30_000)))) for lane in lanes]
            await asyncio.sleep(0.1)
            asking = asyncio.ensure_future(client.link.ask(ShowAccess()))
            await asyncio.sleep(0.1)
            held = is_unread(client) and not asking.done()
            disk.set()
            assert held
            await asking
            assert not is_unread(client)
            assert [receipt.stored for each in sending for receipt in await each] == [True] * 4

    with_node(tmp_path, scenario, window_bytes=70_000)


def test_past_a_rate_of_its_tenant_a_link_waits(tmp_path: Path) -> None:
    async def scenario(node: Server) -> None:
        async with a_client(node) as client:
            lane = await opened_lane(client)
            await client.admin.set_tenant("default", tenant_bytes_s=10_000)
            began = time.monotonic()
            for _ in range(3):
                await lane.send(rows(lane, os.urandom(5000)))
            assert time.monotonic() - began > 0.4

    with_node(tmp_path, scenario)


def test_a_node_that_stops_refuses_requests_and_ends_those_that_wait(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    async def scenario(node: Server) -> None:
        client = await LocalClient(node, None, "http").open()
        await client.admin.create_topic("t")
        ask = ReadEnds(["default/default/default/t"], [[0]], 20.0)
        waiting = asyncio.ensure_future(client.link.request(ask))
        await asyncio.sleep(0.05)
        node.core.begin_stop()
        with pytest.raises(NodeStopping):
            await client.link.ask(ShowAccess())
        waiting.add_done_callback(lambda done: errors.append(done.exception() or AssertionError("an answer")))

    with_node(tmp_path, scenario)
    assert isinstance(errors[0], HeadpondError)


def test_a_fault_of_the_node_ends_the_link_and_the_next_one_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Server) -> None:
        def fault(session: object, operation: object) -> None:
            raise RuntimeError("a fault")

        handlers = dict(node.core.operations.handlers)
        node.core.operations.handlers = {**handlers, ShowAccess: fault}
        async with a_client(node) as client:
            with pytest.raises(HeadpondError):
                await client.link.request(ShowAccess())
            node.core.operations.handlers = handlers
            async with a_client(node) as other:
                await other.link.ask(ShowAccess())

    with caplog.at_level(logging.CRITICAL):
        with_node(tmp_path, scenario)


def test_one_key_sent_twice_at_once_is_stored_once_and_both_are_answered(door: HttpNode, topic: str) -> None:
    def send(number: int) -> str:
        with door.client() as http:
            headers = {"Idempotency-Key": f"same-{number // 4}"}
            answer = http.post(f"/v1/topics/{topic}/messages", json={"value": "tea"}, headers=headers)
            found: str = answer.json()["receipts"][0]["outcome"]
            return found

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(send, range(40)))
    assert (outcomes.count("stored"), outcomes.count("duplicate")) == (10, 30)
