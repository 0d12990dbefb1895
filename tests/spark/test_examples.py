"""The examples of Spark print what they promise, each in its own folder."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fire.real_node import RealNode
from tests.root import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples" / "spark"
OUTPUT = {
    "orders": ("orders.enriched: 990 messages, 990 ids", "orders.bad: 10 messages, 10 ids"),
    "metrics": ("metrics.minute: 42 rows, of minutes that are over", "2026-01-01 12:00:00"),
    "redrive": ("booked 20 of 30", "booked 7 more after the pipeline"),
}


@pytest.mark.parametrize("name", OUTPUT)
def test_an_example_prints_its_promised_output(
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
    for line in OUTPUT[name]:
        assert line in printed


def test_a_csv_file_of_a_million_rows_is_stored_and_summed(
    spark: SparkSession,
    node_of_pages: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADPOND_URL", f"headpond://{node_of_pages}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["csv_to_spark.py"])
    with RealNode(tmp_path / "node", listen=node_of_pages):
        runpy.run_path(str(ROOT / "examples" / "csv_to_spark.py"), run_name="__main__")
    printed = capfd.readouterr().out
    assert "1,000,000 rows stored" in printed
    assert "|Bern|499999.5|  333334|" in printed
