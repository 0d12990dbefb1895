"""The examples of Spark do what they say, each in a folder of its own."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fire.real_node import RealNode
from tests.root import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples" / "spark"
TOLD = {
    "orders": ("orders.enriched: 990 messages, 990 ids", "orders.bad: 10 messages, 10 ids"),
    "metrics": ("metrics.minute: 42 rows, of minutes that are over", "2026-01-01 12:00:00"),
    "redrive": ("booked 20 of 30", "booked 7 more after the pipeline"),
}


@pytest.mark.parametrize("name", TOLD)
def test_an_example_prints_what_it_promises(
    name: str,
    spark: SparkSession,
    node: RealNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "spark", ignore=shutil.ignore_patterns("made"))
    monkeypatch.setenv("HEADPOND_URL", node.url)
    runpy.run_path(str(tmp_path / "spark" / f"{name}.py"), run_name="__main__")
    printed = capfd.readouterr().out
    for line in TOLD[name]:
        assert line in printed
