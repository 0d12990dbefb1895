"""Every row is written once while Spark's tasks, its driver and the node are killed.

``make torture-spark`` does the same some hundred times and prints the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fire.kill_spark import run

KINDS = ("staged.kill", "staged.twice", "before-commit.node", "after-commit.both")


@pytest.mark.timeout(900)
def test_tasks_driver_and_node_are_killed_between_stage_commit_and_checkpoint(tmp_path: Path) -> None:
    ledger = run(tmp_path, [(kind, 1) for kind in KINDS])
    assert ledger.balanced, f"\n{ledger}"
    assert ledger.kinds["staged.kill"].orphaned and ledger.kinds["staged.twice"].orphaned, f"\n{ledger}"
    assert ledger.drivers == 2 and ledger.nodes == 3, f"\n{ledger}"
