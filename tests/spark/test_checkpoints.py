"""Files of a driver that was killed before its first batch are found in the checkpoint, and removed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headpond.cli.spark.pipeline import _note_unfinished
from headpond.spark.checkpoints import clear_unfinished_start, newest_batch, unfinished_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT = ".0.6f1d2d7a-8d1b-4f0c.tmp"


def files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("v1")
    return folder


def test_temporary_files_of_a_first_offset_are_removed_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    cut = files(tmp_path / "cut", "metadata", f"offsets/{LEFT}", f"offsets/.{LEFT}.crc", f"commits/{LEFT}")
    assert [path.rpartition("/cut/")[2] for path in unfinished_start(spark, str(cut))] == [
        f"offsets/{LEFT}",
        f"commits/{LEFT}",
    ]
    clear_unfinished_start(spark, str(cut))
    assert [path.name for path in cut.rglob("*") if path.is_file()] == ["metadata"]


def test_a_check_of_a_pipeline_names_the_files_that_the_next_run_removes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path / "ck" / "out", f"offsets/{LEFT}")
    frames: Any = SimpleNamespace(
        spark=spark,
        checkpoint_of=lambda outlet: str(tmp_path / "ck" / outlet),
        outlets=[SimpleNamespace(name="out"), SimpleNamespace(name="other")],
    )
    _note_unfinished(frames)
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.startswith("out: a driver was killed before its first batch") and printed.endswith(LEFT)


def test_a_checkpoint_that_has_a_batch_or_none_of_these_files_is_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    begun = files(tmp_path / "begun", "offsets/0", f"offsets/{LEFT}")
    lost = files(tmp_path / "lost", f"offsets/{LEFT}", "commits/7", "commits/9.compact")
    other = files(tmp_path / "other", "offsets/notes.tmp", "state/0/0/1.zip")
    for checkpoint in (begun, lost, other, tmp_path / "none"):
        before = sorted(checkpoint.rglob("*"))
        assert unfinished_start(spark, str(checkpoint)) == []
        clear_unfinished_start(spark, str(checkpoint))
        assert sorted(checkpoint.rglob("*")) == before
    assert newest_batch(spark, f"{lost}/commits") == 9 and newest_batch(spark, f"{lost}/offsets") is None
