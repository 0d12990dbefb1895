"""The benchmarks: ``python -m bench.run [--json FILE] [--folder DIR] [--seconds S]``.

A node runs in a process of its own on a folder below ``--folder`` (choose one on the disk that is meant); the
client runs here. Every figure stands beside what the machine itself managed in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from bench import consume, limits, publish
from bench.figure import Figure
from penstock.cli.node_process import NodeProcess


@contextmanager
def running_node(folder: Path) -> Iterator[str]:
    """The URL of a node that runs for as long as the block."""
    node = NodeProcess(folder / "data")
    node.start()
    try:
        yield node.url
    finally:
        node.stop()


def measure(folder: Path, seconds: float) -> tuple[limits.Limits, list[Figure]]:
    machine = limits.measure(folder)
    figures: list[Figure] = []
    for part in (publish.measure, consume.measure):
        with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as url:
            figures += uvloop.run(part(url, machine, seconds))
    return machine, figures


def machine_of(found: limits.Limits) -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **asdict(found)}


def table_of(machine: dict[str, Any], figures: list[Figure]) -> Table:
    table = Table(title="Penstock beside its machine", title_justify="left")
    table.add_column("figure")
    for name in ("value", "unit", "limit", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("the limit is")
    for name, value in machine.items():
        table.add_row(f"machine: {name}", value if isinstance(value, str) else f"{value:,.0f}", "", "", "", "")
    table.add_section()
    for figure in figures:
        limit = "" if figure.limit is None else f"{figure.limit:,.0f}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(figure.name, f"{figure.value:,.0f}", figure.unit, limit, ratio, figure.limit_name)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="on the disk to measure")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="how long each figure is measured"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix=".bench-") as folder:
        found, figures = measure(Path(folder), asked.seconds)
    machine = machine_of(found)
    Console(width=120).print(table_of(machine, figures))
    if asked.json is not None:
        report = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
        asked.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
