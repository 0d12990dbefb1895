"""A client of the shared node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headpond.sync


@pytest.fixture
def client(shared_url: str) -> Iterator[headpond.sync.Client]:
    with headpond.sync.connect(shared_url) as made:
        yield made
