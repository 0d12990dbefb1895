"""Errors that a user reads when the workers' Python lacks packages, or does not exist."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import headpond.sync
from tests.fire.lost_worker import fill, pipeline
from tests.fire.real_node import RealNode
from tests.spark.standalone import RUN_S_MAX, Cluster


@dataclass
class Found:
    """The last output of ``headpond spark run``, by what the workers lacked."""

    told: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        return "has no pyarrow" in self.told["packages"] and "and there is none" in self.told["a Python"]

    def __str__(self) -> str:
        return "\n".join(f"workers without {lack}:\n{text}" for lack, text in self.told.items())


def run(folder: Path) -> Found:
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=RUN_S_MAX)
    found = Found()
    with (
        RealNode(folder / "node") as node,
        Cluster(folder / "spark", workers=1) as cluster,
        headpond.sync.connect(node.url) as client,
    ):
        fill(client, 100)
        lacks = {"packages": bare / "bin" / "python", "a Python": folder / "gone" / "python"}
        for lack, python in lacks.items():
            file = pipeline(cluster, batch=100)
            done = subprocess.run(
                (
                    sys.executable,
                    "-m",
                    "headpond",
                    "spark",
                    "run",
                    file,
                    "--master",
                    cluster.url,
                    "--url",
                    node.url,
                ),
                env=cluster.environment | {"PYSPARK_PYTHON": str(python)},
                capture_output=True,
                text=True,
                timeout=RUN_S_MAX,
            )
            assert done.returncode == 1, done.stdout + done.stderr
            found.told[lack] = done.stderr.strip()
    return found
