"""Every stored or spilled message arrives at both nodes, once and in order, after kills of each process.

``make torture-producer`` does the same with a million messages and prints the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fire.kill_producer import run


@pytest.mark.timeout(300)
def test_two_nodes_and_their_producer_are_killed_in_turn(tmp_path: Path) -> None:
    table = run(tmp_path, messages=60_000, kills=6, seed=3)
    assert table.balanced, f"\n{table}"
    assert all(table.kills.values())
