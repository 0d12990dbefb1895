"""Formats and the public surface do not change: disks, other versions and users depend on them."""

from __future__ import annotations

import pytest

from tests.golden.contracts import CONTRACTS, FOLDER


@pytest.mark.parametrize("name", CONTRACTS)
def test_formats_and_public_names_are_unchanged(name: str) -> None:
    """A change on purpose: ``python -m tests.golden.contracts``, and a line in the changelog."""
    assert CONTRACTS[name]() == (FOLDER / name).read_text()
