"""A short torture of every part breaks no promise, and finds it if a node does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT


def torture(folder: Path, *options: str) -> tuple[int, str, dict[str, int]]:
    """The exit code, everything printed, and the counts of the scoreboard."""
    command = [sys.executable, "-m", "tests.torture", "--seed", "7", "--folder", str(folder), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = re.findall(r"^ *(\S.*?)  +([\d,]+)$", done.stdout, re.MULTILINE)
    return (
        done.returncode,
        done.stdout + done.stderr,
        {name: int(count.replace(",", "")) for name, count in rows},
    )


@pytest.mark.timeout(300)
def test_nodes_producers_consumers_and_links_keep_every_promise_under_faults(tmp_path: Path) -> None:
    code, text, counts = torture(tmp_path, "--minutes", "0.3", "--parts", "nodes,producers,links")
    assert code == 0, text
    assert counts["stored"] and counts["nodes killed"] and counts["programs killed"], text


@pytest.mark.timeout(300)
def test_a_node_that_confirms_before_it_writes_is_found_out(tmp_path: Path) -> None:
    code, text, _ = torture(tmp_path, "--minutes", "0.3", "--parts", "nodes", "--break", "messages")
    assert code == 1 and "VIOLATION: lost at n1" in text, text


@pytest.mark.timeout(600)
def test_spark_writes_every_row_once_under_every_fault(tmp_path: Path) -> None:
    code, text, counts = torture(tmp_path, "--minutes", "0.7", "--parts", "spark")
    assert code == 0, text
    assert counts["batches committed"] and any(name.startswith("Spark: ") for name in counts), text
