"""The table of all pipes: what each claims against what was measured, at three fault levels.

``python -m bench.pipes [--messages N] [--seed S]`` exits 1 where a measurement contradicts its claim. A pipe
that needs a route that delivers at least once stands on ``resend_many``; the last rows are pipes in a row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figure import Figure
from bench.limits import Limits
from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.measure import Predicted
from headpond.pipes.lab.run import LabResult, run

ROUTES = (
    "resend",
    "resend_many",
    "stream",
    "sequential",
    "index",
    "index(strict=false)",
    "resend_many | continuous",
    "resend_many | continuous(strict=false)",
    "resend_many | continuous(gaps=false)",
    "dedup",
    "dedup(by=index)",
    "resend_many | dedup",
    "dedup -> dedup",
    "resend_many(confirm=settled) | dedup -> resend_many | dedup",
)
LEVELS = {
    "calm": Faults(),
    "rough": Faults(loss=0.1, duplicate=0.02, reorder=0.05, confirm_loss=0.05),
    "storm": Faults(loss=0.3, duplicate=0.1, reorder=0.2, confirm_loss=0.2),
}
ONE_AT_A_TIME = ("resend", "sequential")
"""These simulate one round trip per message, so they get a tenth of the messages."""


def claimed(low: float, high: float) -> str:
    return f"{low:.4g}" if high - low < 1e-12 else f"{low:.4g} to {high:.4g}"


def row(route: str, level: str, result: LabResult, predicted: Predicted) -> list[str]:
    measured = result.orders[-1] if result.orders else "none"  # the strongest
    return [
        route,
        level,
        claimed(predicted.reliability_low, predicted.reliability_high),
        f"{result.reliability.value:.4f}",
        claimed(predicted.uniqueness_low, predicted.uniqueness_high),
        f"{result.uniqueness.value:.4f}",
        predicted.order or "none",
        measured,
        "unfinished" if predicted.agrees is None else "yes" if predicted.agrees else "NO",
    ]


def runs(messages: int, seed: int) -> Iterator[tuple[str, str, LabResult, Predicted]]:
    for route in ROUTES:
        slow = route.rpartition(" ")[2] in ONE_AT_A_TIME
        for level, faults in LEVELS.items():
            result = run(route, faults, messages // (10 if slow else 1), seed)
            assert result.predicted is not None
            yield route, level, result, result.predicted


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    """R of each route, beside what it claims at the least; ``main`` prints all of it."""
    return [
        Figure(f"R of {route}, {level}", result.reliability.value, "", "claimed", predicted.reliability_low)
        for route, level, result, predicted in runs(round(1000 * seconds), 7)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    headings = ("route", "faults", "R claimed", "R", "UR claimed", "UR", "order claimed", "order", "agrees")
    table = Table(*headings, title=f"All pipes, {options.messages:,} messages a run, seed {options.seed}")
    contradicted = 0
    for route, level, result, predicted in runs(options.messages, options.seed):
        contradicted += predicted.agrees is not True
        table.add_row(*row(route, level, result, predicted), end_section=level == "storm")
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 1 if contradicted else 0


if __name__ == "__main__":
    sys.exit(main())
