"""A real node for jobs that read and write topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fire.real_node import RealNode


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """One node for all tests; each test uses its own topics."""
    with RealNode(tmp_path_factory.mktemp("jobs-node")) as running:
        yield running
