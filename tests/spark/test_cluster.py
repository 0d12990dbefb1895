"""On a cluster of processes: a pipeline and a submitted program are exact, though a worker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fire.lost_worker import run


@pytest.mark.timeout(900)
def test_counts_are_exact_on_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    found = run(tmp_path, 5_000)
    assert found.exact, str(found)
    assert 0 < found.killed_after < found.sent, "it was killed while the pipeline ran"
    assert len(found.ran) == 2, "both workers had something to do"
