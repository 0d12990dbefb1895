"""A session's start with and without ``headpond spark prepare``, in turn, each in a process of its own.

``python -m bench.spark_start [TURNS]``: seconds, and seconds of CPU that Java took, until the first count and
until the first rows of a topic are there. Medians. What is prepared stays in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import headpond.spark
import headpond.sync
from bench.node import running_node

TURNS = 5
TOPIC = "start"
STEPS = ("session", "count", "topic")


def start(url: str) -> None:
    """One start; prints what each step had taken by its end."""
    began = time.monotonic()
    took: dict[str, tuple[float, float]] = {}
    spark = headpond.spark.session("start", master="local[2]")
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    took["session"] = (time.monotonic() - began, _cpu_s(java))
    spark.range(1).count()
    took["count"] = (time.monotonic() - began, _cpu_s(java))
    assert spark.read.format("headpond").options(url=url, topic=TOPIC).load().count() == 1
    took["topic"] = (time.monotonic() - began, _cpu_s(java))
    print(json.dumps(took))


def _cpu_s(process: int) -> float:
    """What a process has taken; its children, Spark's Python workers, are not counted."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _turn(url: str, cache: str | None) -> dict[str, tuple[float, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_start", url],
        env=os.environ | ({} if cache is None else {"XDG_CACHE_HOME": cache}),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    took: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return took


def main(turns: int) -> None:
    from headpond.spark.start.class_cache import prepare

    with (
        tempfile.TemporaryDirectory() as plain,
        tempfile.TemporaryDirectory() as folder,
        running_node(Path(folder)) as node,
        headpond.sync.connect(node.url) as client,
    ):
        with client.producer(TOPIC) as producer:
            producer.send(b"a message")
        found = prepare()
        took = f"in {found.seconds:.0f} s" if found.made else "before"
        print(f"prepared for Java {found.java_version} {took}: {found.bytes / 1e6:.0f} MB", flush=True)
        seen = [(_turn(node.url, plain), _turn(node.url, None)) for _ in range(turns)]
    print(f"{'until':8}  {'s':>6}  {'prepared':>8}  {'CPU s':>6}  {'prepared':>8}")
    for step in STEPS:
        figures = [
            statistics.median(pair[which][step][what] for pair in seen) for what in (0, 1) for which in (0, 1)
        ]
        print(f"{step:8}  {figures[0]:6.1f}  {figures[1]:8.1f}  {figures[2]:6.1f}  {figures[3]:8.1f}")


if __name__ == "__main__":
    told = sys.argv[1] if len(sys.argv) > 1 else str(TURNS)
    if told.isdigit():
        main(int(told))
    else:
        start(told)
