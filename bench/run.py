"""The benchmarks: ``python -m bench.run [PART …] [--json FILE] [--plots DIR] [--folder DIR] [--seconds S]``.

A part is a file of this folder; without one, all of them run. Nodes run in processes of their own on folders
below ``--folder`` (choose one on the disk that is meant). Each figure stands beside what the machine itself, or
the other way of doing it, managed in the same run; ratios are what to compare on a machine that is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import (
    alone,
    busy_logs,
    console,
    consume,
    crowd,
    growth,
    idle,
    lab,
    limits,
    opening,
    pipes,
    publish,
    segments,
    syncs,
    typed,
    unacked,
    wire,
)
from bench.figure import Figure

Part = Callable[[Path, limits.Limits, float], list[Figure]]


def spark(folder: Path, found: limits.Limits, seconds: float) -> list[Figure]:
    """Loaded when it is its turn: Spark takes seconds."""
    from bench import spark as part

    return part.measure(folder, found, seconds)


def cluster(folder: Path, found: limits.Limits, seconds: float) -> list[Figure]:
    """Loaded when it is its turn: nothing else needs NATS."""
    from bench import cluster as part

    return part.measure(folder, found, seconds)


PARTS: dict[str, Part] = {
    "publish": publish.measure,
    "alone": alone.measure,
    "consume": consume.measure,
    "segments": segments.measure,
    "idle": idle.measure,
    "busy_logs": busy_logs.measure,
    "crowd": crowd.measure,
    "growth": growth.measure,
    "unacked": unacked.measure,
    "opening": opening.measure,
    "typed": typed.measure,
    "console": console.measure,
    "syncs": syncs.measure,
    "cluster": cluster,
    "wire": wire.measure,
    "pipes": pipes.measure,
    "lab": lab.measure,
    "spark": spark,
}


def machine_of(found: limits.Limits) -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **asdict(found)}


def table_of(machine: dict[str, Any], figures: list[Figure]) -> Table:
    table = Table(title="Headpond beside its machine", title_justify="left")
    table.add_column("figure")
    for name in ("value", "unit", "limit", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("the limit is, or what is counted")
    for name, value in machine.items():
        table.add_row(f"machine: {name}", value if isinstance(value, str) else f"{value:,.0f}", "", "", "", "")
    table.add_section()
    for figure in figures:
        limit = "" if figure.limit is None else shown(figure.limit)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
        table.add_row(
            figure.name, shown(figure.value), figure.unit, limit, ratio, figure.limit_name or figure.note
        )
    return table


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw growth.png there, if `growth` runs")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="on the disk to measure")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="how long each figure is measured"
    )
    parser.add_argument("part", nargs="*", default=[], metavar="PART", help=", ".join(PARTS))
    asked = parser.parse_args()
    if unknown := set(asked.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix=".bench-") as folder:
        found = limits.measure(Path(folder))
        for name in asked.part or PARTS:
            figures += PARTS[name](Path(folder), found, asked.seconds)
            print(f"{name}: done", file=sys.stderr)
    machine = machine_of(found)
    Console(width=120).print(table_of(machine, figures))
    if asked.json is not None:
        report = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
        asked.json.write_text(json.dumps(report, indent=2) + "\n")
    if asked.plots is not None and "growth" in (asked.part or PARTS):
        asked.plots.mkdir(parents=True, exist_ok=True)
        growth.draw(figures, asked.plots / "growth.png")


if __name__ == "__main__":
    main()
