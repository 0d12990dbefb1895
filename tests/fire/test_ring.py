"""Nodes that follow each other end with the same messages, each once, after faults between them.

``make ring`` does the same with more messages, as a ring and as a mesh, and prints the tables.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fire.ring import run


@pytest.mark.timeout(400)
def test_three_nodes_in_a_mesh_are_killed_cut_off_and_put_back_to_an_old_copy(tmp_path: Path) -> None:
    table = asyncio.run(run(tmp_path, shape="mesh", messages=5_000, seed=3))
    assert table.balanced, f"\n{table}"
    assert table.harms["links cut"] and table.harms["nodes put back to an old copy"], f"\n{table}"
