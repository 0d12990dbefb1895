"""A node that the tests share."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.node.http.nodes import HttpNode


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """An open node on loopback."""
    with HttpNode(tmp_path_factory.mktemp("http") / "node") as running:
        yield running


@pytest.fixture
def http(door: HttpNode) -> Iterator[httpx.Client]:
    with door.client() as client:
        yield client
