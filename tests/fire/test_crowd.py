"""Many connections: the limit holds, and silent connections keep no client out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headpond.wire.connection import ConnectionFault
from headpond.wire.control.catalog import ListTopics
from headpond.wire.control.codec import encode_control
from headpond.wire.control.greeting import Hello
from tests.fire.raw_client import RawClient
from tests.fire.real_node import RealNode, wait_until

LIMIT = 30
CONFIG = f"[limits]\nconnections = {LIMIT}\nhandshake_s = 600.0\nidle_s = 600.0\n"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with RealNode(tmp_path_factory.mktemp("crowded"), config=CONFIG) as node:
        yield node


def test_connections_that_say_nothing_make_room_for_those_that_do(crowded: RealNode) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(RawClient(crowded.address, greet=False)) for _ in range(LIMIT)]
        known = [stack.enter_context(RawClient(crowded.address)) for _ in range(LIMIT)]
        assert [client.end() for client in silent] == ["limit"] * LIMIT, "the oldest first, with the reason"
        for client in known:
            assert client.request(ListTopics()) == []


def said_to_one_more(node: RealNode) -> str:
    """The first answer to one more client: a welcome, or an error code."""
    with RawClient(node.address, greet=False) as client:
        client.send(encode_control(Hello([1], "late")))
        event = client.next_event()
        return event.error.code if isinstance(event, ConnectionFault) else type(event).__name__


def test_a_connection_beyond_the_limit_is_refused_and_the_others_are_served(crowded: RealNode) -> None:
    with contextlib.ExitStack() as stack:
        known = [stack.enter_context(RawClient(crowded.address)) for _ in range(LIMIT)]
        assert said_to_one_more(crowded) == "limit"
        for client in known:
            assert client.request(ListTopics()) == []
        known[0].close()
        wait_until(lambda: said_to_one_more(crowded) == "Welcome")


def test_idle_connections_cost_little_memory(tmp_path: Path) -> None:
    with RealNode(tmp_path) as node, contextlib.ExitStack() as stack:
        first = stack.enter_context(RawClient(node.address))
        first.request(ListTopics())
        before = node.rss_bytes
        for _ in range(500):
            stack.enter_context(RawClient(node.address))
        first.request(ListTopics())
        assert (node.rss_bytes - before) / 500 < 64 * 1024
