"""The fixtures for pytest. Loading this module loads no node: a test that asks for one does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headpond.client.connect import Client
    from headpond.testing.blocking import BlockingNode
    from headpond.testing.memory_node import Node

try:
    from pytest_asyncio import fixture as asyncio_fixture
except ImportError:
    asyncio_fixture = pytest.fixture


@pytest.fixture
def headpond_node() -> Node:
    """A node in memory for an asyncio test; it starts on the test's loop with its first client."""
    from headpond.testing.memory_node import node

    return node()


@pytest.fixture
def headpond_client(request: pytest.FixtureRequest) -> Any:
    """An open ``headpond.Client`` of ``headpond_node``, with pytest-asyncio or anyio."""
    runner = "anyio" if "anyio_backend" in request.fixturenames else "asyncio"
    return request.getfixturevalue(f"_headpond_client_{runner}")


async def _open_client(headpond_node: Node) -> AsyncIterator[Client]:
    async with headpond_node, headpond_node.connect() as client:
        yield client


_headpond_client_anyio = pytest.fixture(_open_client, name="_headpond_client_anyio")
_headpond_client_asyncio = asyncio_fixture(_open_client, name="_headpond_client_asyncio")


@pytest.fixture
def headpond_sync_node(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BlockingNode]:
    """A running node for a blocking test, or for a program that connects to a URL; the refill is temporary."""
    from headpond.testing.blocking import blocking_node

    monkeypatch.setenv("HEADPOND_STATE", str(tmp_path_factory.mktemp("headpond")))
    with blocking_node() as node:
        yield node


@pytest.fixture
def headpond_url(headpond_sync_node: BlockingNode) -> str:
    """The URL of ``headpond_sync_node``."""
    return headpond_sync_node.url
