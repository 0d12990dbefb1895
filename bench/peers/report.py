"""The tables, the JSON and the plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.peers.goals import GOALS
from bench.peers.rounds import Pair, Spread, figures, measured_metrics, ratios
from bench.peers.workloads import METRICS

MISSING = "missing"


def figures_table(pairs: Sequence[Pair], peers: Sequence[str]) -> Table:
    table = _table("Median of all rounds", ["Headpond", *peers])
    for metric in measured_metrics(pairs):
        row = [figures(pairs, metric, None), *(figures(pairs, metric, peer) for peer in peers)]
        cells = [
            _absent(pairs, peer) if each is None else _number(each.median)
            for peer, each in zip(["Headpond", *peers], row, strict=True)
        ]
        table.add_row(METRICS[metric].title, METRICS[metric].unit, *cells)
    return table


def ratios_table(pairs: Sequence[Pair], peers: Sequence[str]) -> Table:
    table = _table("Headpond / peer: median (lowest–highest round)", peers)
    for metric in measured_metrics(pairs):
        row = [ratios(pairs, metric, peer) for peer in peers]
        cells = [
            _absent(pairs, peer) if each is None else _spread(each)
            for peer, each in zip(peers, row, strict=True)
        ]
        better = "less" if METRICS[metric].less_is_better else "more"
        table.add_row(METRICS[metric].title, f"{better} is better", *cells)
    return table


def goals_table(pairs: Sequence[Pair]) -> Table:
    table = Table(title="Goals", title_justify="left")
    for name in ("figure", "goal", "measured", ""):
        table.add_column(name)
    for goal in GOALS:
        found = goal.measured(pairs)
        if found is None:
            continue
        verdict = "reached" if goal.is_reached(found) else "not reached"
        table.add_row(METRICS[goal.metric].title, goal.shown, _spread(found), verdict)
    return table


def as_json(machine: dict[str, Any], pairs: Sequence[Pair], missing: dict[str, str]) -> str:
    """``missing``: the command that installs each peer that was not there."""
    goals = [
        {"metric": goal.metric, "peer": goal.peer, "bound": goal.bound, "median": found.median}
        | {"low": found.low, "high": found.high, "reached": goal.is_reached(found)}
        for goal in GOALS
        if (found := goal.measured(pairs)) is not None
    ]
    report = {
        "machine": machine,
        "missing": missing,
        "metrics": {name: metric._asdict() for name, metric in METRICS.items()},
        "goals": goals,
        "pairs": [pair.as_json() for pair in pairs],
    }
    return json.dumps(report, indent=2) + "\n"


def draw(pairs: Sequence[Pair], peers: Sequence[str], folder: Path) -> list[Path]:
    """One picture per unit, with the figures of all brokers, and one of the ratios."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    metrics = measured_metrics(pairs)
    pictures: dict[str, list[str]] = {}
    for metric in metrics:
        pictures.setdefault(METRICS[metric].unit, []).append(metric)
    for unit, group in pictures.items():
        rows: dict[str | None, str] = {None: "Headpond", **{peer: peer for peer in peers}}
        spreads = {name: [figures(pairs, metric, key) for metric in group] for key, name in rows.items()}
        paths.append(folder / f"{unit.replace('/', '-per-').replace('µ', 'u')}.png")
        _bars(pyplot, spreads, group, unit, paths[-1])
    spreads = {peer: [ratios(pairs, metric, peer) for metric in metrics] for peer in peers}
    paths.append(folder / "ratios.png")
    _bars(pyplot, spreads, metrics, "Headpond / peer", paths[-1], line=1.0)
    return paths


def _bars(
    pyplot: Any,
    spreads: dict[str, list[Spread | None]],
    metrics: list[str],
    label: str,
    path: Path,
    line: float | None = None,
) -> None:
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.9 * len(metrics)), layout="constrained")
    height = 0.8 / len(spreads)
    for number, (name, row) in enumerate(spreads.items()):
        found = [(place, spread) for place, spread in enumerate(row) if spread is not None]
        middles = [spread.median for _, spread in found]
        errors = [
            [spread.median - spread.low for _, spread in found],
            [spread.high - spread.median for _, spread in found],
        ]
        places = [place + number * height for place, _ in found]
        axes.barh(places, middles, height, xerr=errors, label=name, error_kw={"linewidth": 0.8})
    axes.set_xscale("log")
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(metrics))])
    axes.set_yticklabels([METRICS[metric].title for metric in metrics])
    axes.invert_yaxis()
    axes.set_xlabel(f"{label} (bars: median, whiskers: lowest and highest round)")
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.8)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _absent(pairs: Sequence[Pair], peer: str) -> str:
    """A peer that was measured at all just has no such figure."""
    return "" if any(pair.peer == peer for pair in pairs) else MISSING


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(found: Spread) -> str:
    return f"{found.median:.3g} ({found.low:.3g}–{found.high:.3g})"
