"""The pictures of a sweep: R and UR of every route over two kinds of fault, predicted beside measured.

The two axes that have the most values span the surface. Where more than two vary, there is a picture for each
combination of the others, named by it. A cell holds its number: seeds are pooled in the measured one, without
runs that were not finished, and the predicted one is from-to where the calculus leaves it open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headpond.pipes.lab.world import Ending
from headpond.spark.sweep.grid import AXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PICTURES_MAX = 24
"""Of each quantity; a grid of more combinations needs other tools."""
COLUMNS_WIDE = 2
COLOURS = "viridis"
NOTHING = "#e4e4e4"
WRONG = "#d62728"
DARK = 0.55
"""Below this share of the colour scale a cell is dark and its number white."""

Point = tuple[float, ...]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A drawn quantity: its name, its columns and the counts whose ratio it is."""

    name: str
    column: str
    title: str
    over: str


QUANTITIES = (
    Quantity("R", "r", "R: of the messages sent, the share that arrived", "sent"),
    Quantity("UR", "ur", "UR: of the copies received, the share that was no repeat", "received"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of one point, pooled."""

    measured: float | None
    low: float | None
    high: float | None
    disagreeing: int
    failed: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class Picture:
    """One file: a quantity over two axes, the others fixed."""

    quantity: Quantity
    across: str
    up: str
    fixed: dict[str, float]
    """The other axes."""
    named: tuple[str, ...]
    """The other axes that differ between pictures, which name the file."""
    columns: list[float]
    rows: list[float]
    cells: dict[str, dict[Point, Cell]]
    """By route, then by (across, up)."""
    seeds: int
    messages: int
    confidence: float

    @property
    def file_name(self) -> str:
        rates = [f"{_words(axis, '-')}-{self.fixed[axis]:g}" for axis in self.named]
        return "-".join([self.quantity.name, *rates])


def draw(runs: pa.Table, folder: Path) -> list[Path]:
    """Writes the pictures of a sweep and returns their files."""
    written = []
    for picture in pictures_of(runs.to_pylist()):
        path = folder / f"{picture.file_name}.png"
        _figure(picture).savefig(path, dpi=120)
        written.append(path)
    return written


# --- from runs to cells -------------------------------------------------------------------------------


def pictures_of(rows: list[Row]) -> Iterator[Picture]:
    values = {axis: sorted({row[axis] for row in rows}) for axis in AXES}
    across, up, *rest = sorted(AXES, key=lambda axis: -len(values[axis]))
    named = tuple(axis for axis in rest if len(values[axis]) > 1)
    combinations = itertools.product(*(values[axis] for axis in rest))
    for rates in itertools.islice(combinations, PICTURES_MAX):
        fixed = dict(zip(rest, rates, strict=True))
        of_it = [row for row in rows if all(row[axis] == rate for axis, rate in fixed.items())]
        points: dict[str, dict[Point, list[Row]]] = {}
        for row in of_it:
            points.setdefault(row["route"], {}).setdefault((row[across], row[up]), []).append(row)
        for quantity in QUANTITIES:
            yield Picture(
                quantity=quantity,
                across=across,
                up=up,
                fixed=fixed,
                named=named,
                columns=values[across],
                rows=values[up],
                cells={
                    route: {point: _cell(its, quantity) for point, its in its_points.items()}
                    for route, its_points in points.items()
                },
                seeds=len({row["seed"] for row in of_it}),
                messages=of_it[0]["messages"],
                confidence=max((row["confidence"] or 0.0 for row in of_it), default=0.0),
            )


def _cell(rows: list[Row], quantity: Quantity) -> Cell:
    ran = [row for row in rows if row["error"] is None]
    done = [row for row in ran if row["ended"] != Ending.UNFINISHED]
    unique, over = sum(row["unique"] for row in done), sum(row[quantity.over] for row in done)
    promised = next((row for row in ran if row["promised"]), None)
    return Cell(
        measured=unique / over if over else None,
        low=None if promised is None else promised[f"{quantity.column}_predicted_low"],
        high=None if promised is None else promised[f"{quantity.column}_predicted_high"],
        disagreeing=sum(row[f"{quantity.column}_agrees"] is False for row in done),
        failed=len(rows) - len(ran),
        unfinished=len(ran) - len(done),
    )


# --- from cells to a figure -----------------------------------------------------------------------------


def _figure(picture: Picture) -> Figure:
    # A figure with its own canvas uses no window system and no global state of other threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    wide = min(COLUMNS_WIDE, len(picture.cells))
    high = math.ceil(len(picture.cells) / wide)
    panel = (0.75 * len(picture.columns) + 0.3, 0.38 * len(picture.rows) + 0.55)
    width = max(wide * (2 * panel[0] + 0.9) + 0.9, 6.5)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    figure = Figure(figsize=(width, high * (panel[1] + 0.6) + 1.3), layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(picture.quantity.title, fontsize=13, fontweight="bold")
    figure.supxlabel(_caption(picture), fontsize=8.5, color="#444444")
    lowest = _lowest(picture)
    blocks = figure.subfigures(high, wide, squeeze=False)
    for block, (route, cells) in zip(blocks.flat, picture.cells.items(), strict=False):
        block.suptitle(route, fontsize=11, family="monospace")
        left, right = block.subplots(1, 2, sharey=True)
        _panel(left, picture, {point: _predicted(cell) for point, cell in cells.items()}, lowest)
        _panel(right, picture, {point: _measured(cell) for point, cell in cells.items()}, lowest)
        left.set_title("predicted", fontsize=9)
        right.set_title("measured", fontsize=9)
        left.set_ylabel(_words(picture.up), fontsize=9)
        for point, cell in cells.items():
            if cell.disagreeing:
                _mark(right, picture, point)
    return figure


Shown = tuple[float | None, str]
"""The number that gives the colour, and the text."""


def _predicted(cell: Cell) -> Shown:
    if cell.low is None or cell.high is None:
        return None, "–"
    if cell.low == cell.high:
        return cell.low, _number(cell.low)
    return cell.low, f"{_number(cell.low, 2)}–{_number(cell.high, 2)}"


def _measured(cell: Cell) -> Shown:
    if cell.measured is None:
        return None, "failed" if cell.failed else "unfinished" if cell.unfinished else "–"
    return cell.measured, _number(cell.measured)


def _panel(axes: Axes, picture: Picture, cells: dict[Point, Shown], lowest: float) -> None:
    from matplotlib import colormaps

    colours = colormaps[COLOURS].with_extremes(bad=NOTHING)
    shown = {point: number for point, (number, _) in cells.items() if number is not None}
    numbers = [[shown.get((x, y), math.nan) for x in picture.columns] for y in picture.rows]
    axes.imshow(numbers, cmap=colours, vmin=lowest, vmax=1.0, origin="lower", aspect="auto")
    for (x, y), (number, text) in cells.items():
        share = 1.0 if number is None else (number - lowest) / (1.0 - lowest)
        at = (picture.columns.index(x), picture.rows.index(y))
        colour = "white" if share < DARK else "black"
        axes.text(*at, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(picture.columns)), [f"{rate:g}" for rate in picture.columns], fontsize=8)
    axes.set_yticks(range(len(picture.rows)), [f"{rate:g}" for rate in picture.rows], fontsize=8)
    axes.set_xlabel(_words(picture.across), fontsize=9)
    for between in range(1, len(picture.columns)):
        axes.axvline(between - 0.5, color="white", linewidth=1)
    for between in range(1, len(picture.rows)):
        axes.axhline(between - 0.5, color="white", linewidth=1)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _mark(axes: Axes, picture: Picture, point: Point) -> None:
    from matplotlib.patches import Rectangle

    x, y = picture.columns.index(point[0]), picture.rows.index(point[1])
    axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, fill=False, edgecolor=WRONG, linewidth=2))


def _lowest(picture: Picture) -> float:
    """The start of the colour scale, the same in all panels, so that they can be compared."""
    shown = [
        number
        for cells in picture.cells.values()
        for cell in cells.values()
        for number in (cell.measured, cell.low)
        if number is not None
    ]
    return min(math.floor(min(shown, default=0.0) * 10) / 10, 0.9)


def _caption(picture: Picture) -> str:
    cells = [cell for cells in picture.cells.values() for cell in cells.values()]
    notes = [
        *(f"{_words(axis)} {rate:g}" for axis, rate in picture.fixed.items()),
        f"a measured cell pools {picture.seeds} runs of {picture.messages:,} messages",
    ]
    if any(cell.low != cell.high for cell in cells):
        notes.append("from–to: coloured by its lower end")
    if any(cell.disagreeing for cell in cells):
        notes.append(f"red: a run disagrees with what is predicted, at {picture.confidence:g}")
    if any(cell.low is None for cell in cells):
        notes.append("grey: nothing is promised")
    return " · ".join(notes)


def _number(value: float, digits: int = 3) -> str:
    """A share as text; only an exact 1 or 0 is printed as such: 0.9996 is 1.000."""
    return f"{value:g}" if value in (0.0, 1.0) else f"{value:.{digits}f}"


def _words(axis: str, between: str = " ") -> str:
    return axis.replace("_", between)
