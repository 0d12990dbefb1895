"""``headpond spark audit`` and its neighbours: what they print, how they exit, and what is refused at once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import HEADPOND, Cli, clean_environment
from tests.spark.standalone import QUICK_JAVA

AUDIT_S_MAX = 250
BLOCK = "0" * 32


def write(folder: Path, *rows: int) -> Path:
    folder.mkdir()
    table = pa.table({"identity": [f"{BLOCK}/0/0/{row}" for row in rows], "producer": ["till-1"] * len(rows)})
    pq.write_table(table, folder / "rows.parquet")
    return folder


@pytest.mark.timeout(300)
def test_an_audit_prints_its_figures_and_exits_with_1_if_something_is_missing(tmp_path: Path) -> None:
    sent, received = write(tmp_path / "sent", 0, 1, 2, 3), write(tmp_path / "received", 0, 1, 1, 3)
    done = subprocess.run(
        [*HEADPOND, "spark", "audit", str(sent), str(received), "--master", "local[1]", "--out", "out"],
        cwd=tmp_path,
        env=clean_environment() | {"JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=AUDIT_S_MAX,
    )
    assert done.returncode == 1, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:9] == [
        "sent 4",
        "received 4",
        "unique 3",
        "missing 1",
        "repeated 1",
        "strangers 0",
        "R 0.750000",
        "UR 0.750000",
        "copies 1 came 0 times, 2 came 1 times, 1 came 2 times",
    ]
    assert f"{BLOCK}/0/0/2 till-1 0 -" in lines
    assert lines[-1] == "out"
    assert done.stderr.splitlines()[-1].startswith("4 sent and 4 received, compared in ")
    assert json.loads((tmp_path / "out" / "audit.json").read_bytes())["arrivals"] == {"0": 1, "1": 2, "2": 1}
    assert (tmp_path / "out" / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["audit", "./nowhere", "orders"], 1, "there is no nowhere"),
        (["audit", "a", "a"], 1, "both sides are topic:default/default/default/a"),
        (["audit", "a", "b", "--window", "soon"], 1, "not a length of time"),
        (["audit", "a", "b", "--follow", "--by", "id"], 2, "--by"),
        (["audit", "a", "b", "--follow", "--out", "x"], 2, "--out"),
        (["audit", "./x.parquet", "b", "--follow"], 1, "is not a topic"),
        (["audit", "a", "b", "--url", "headpond://127.0.0.1:1"], 1, "127.0.0.1:1"),
        (["run", "a.toml", "--idle", "soon"], 2, "--idle"),
        (["archive", "a", "x", "--follow", "--compact"], 2, "--compact"),
        (["archive", "a", "s3a://b/c"], 1, "renames in one step"),
        (["compact", "."], 1, "is not an archive"),
        (["replay", "a", "a"], 1, "written to itself"),
        (["reshard", "a", "b"], 2, "--shards"),
        (["reshard", "a", "a", "--shards", "2"], 1, "cannot become itself"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_reported_before_spark_starts(
    cli: Cli, arguments: list[str], code: int, text: str
) -> None:
    done = cli("spark", *arguments, PATH="")
    assert (done.code, done.out) == (code, b"")
    assert text in done.err
