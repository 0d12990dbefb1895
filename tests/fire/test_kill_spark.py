"""Every row is written once while Spark's driver, its tasks and the node are killed.

``make torture-spark`` does the same a hundred times and prints the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fire.kill_spark import run


@pytest.mark.timeout(900)
def test_a_driver_its_tasks_and_the_node_are_killed_between_stage_commit_and_checkpoint(tmp_path: Path) -> None:
    ledger = run(tmp_path, lives=2, seed=2844)
    assert ledger.balanced, f"\n{ledger}"
    assert ledger.kills["after-commit", "driver"] == ledger.kills["before-commit", "driver"] == 1, f"\n{ledger}"
    assert {victim for _, victim in ledger.kills} == {"task", "driver", "node"}, f"\n{ledger}"
