"""``headpond lab sweep``: routes under a grid of faults, run on Spark, written as Parquet and drawn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.lab import EXIT_UNFINISHED
from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import EXIT_ERROR, make_console, note, print_json, print_table, reports_errors

if TYPE_CHECKING:
    from headpond.spark.grid import Grid
    from headpond.spark.summary import RouteSummary
    from headpond.spark.sweep import SweepResult

OUT_DEFAULT = Path("lab-sweep")
_BETWEEN_ROUTES = re.compile(r",(?![^(]*\))")


def _rates(name: str, meaning: str) -> Any:
    return typer.Option(name, metavar="P,P…", help=meaning)


@reports_errors
def sweep(
    routes: Annotated[
        list[str] | None,
        typer.Option(
            "--routes",
            metavar="ROUTE,ROUTE…",
            help="Routes, with commas between: 'resend_many | dedup, index'. May be repeated.",
        ),
    ] = None,
    loss: Annotated[str, _rates("--loss", "How often a message is lost.")] = "0,0.1,0.2,0.4",
    duplicate: Annotated[str, _rates("--duplicate", "How often one that arrives arrives twice.")] = "0,0.1,0.3",
    reorder: Annotated[str, _rates("--reorder", "How often a copy arrives late.")] = "0.1",
    confirm_loss: Annotated[str, _rates("--confirm-loss", "How often an answer is lost.")] = "0.2",
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Runs of each point.")] = 3,
    messages: Annotated[int, typer.Option("--messages", min=1, metavar="N", help="Sent in a run.")] = 5_000,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the results go; made if it is not there.")
    ] = OUT_DEFAULT,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results of an earlier sweep.", show_default=False)
    ] = False,
    master: Annotated[
        str, typer.Option("--master", metavar="MASTER", help="The Spark master that runs it.")
    ] = "local[*]",
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Run a grid of routes and faults on Spark.

    Exits with 1 if a run failed or too many disagree, else with 3 if some runs were not finished.
    """
    told = _routes(routes)
    rates = {
        name: _numbers(f"--{name.replace('_', '-')}", text)
        for name, text in (
            ("loss", loss),
            ("duplicate", duplicate),
            ("reorder", reorder),
            ("confirm_loss", confirm_loss),
        )
    }
    grid = _grid(told, rates, seeds, messages)
    result = _sweep(grid, out, master, overwrite=overwrite)
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not result.stands:
        raise typer.Exit(EXIT_ERROR)
    if result.unfinished:
        raise typer.Exit(EXIT_UNFINISHED)


def _grid(
    routes: tuple[str, ...] | None, rates: dict[str, tuple[float, ...]], seeds: int, messages: int
) -> Grid:
    from headpond.spark.grid import ROUTES, Grid

    return Grid(routes=routes or ROUTES, seeds=seeds, messages=messages, **rates)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of numbers like 0,0.1", param_hint=f"'{option}'"
        ) from None
    if not all(0 <= number <= 1 for number in numbers):
        raise typer.BadParameter(f"{text!r} holds a rate outside of 0 to 1", param_hint=f"'{option}'")
    if len(set(numbers)) < len(numbers):
        raise typer.BadParameter(f"{text!r} names a rate twice", param_hint=f"'{option}'")
    return numbers


def _routes(given: list[str] | None) -> tuple[str, ...] | None:
    """Cut at the commas between routes; those inside of a pipe's settings stay. None for the default ones."""
    if given is None:
        return None
    routes = [route.strip() for text in given for route in _BETWEEN_ROUTES.split(text)]
    if not all(routes):
        raise typer.BadParameter("a route is empty", param_hint="'--routes'")
    return tuple(routes)


def _sweep(grid: Grid, out: Path, master: str, *, overwrite: bool) -> SweepResult:
    from headpond.spark.sweep import sweep as run_sweep

    if not sys.stderr.isatty():
        return run_sweep(grid, out, master=master, overwrite=overwrite)
    with _shown(len(grid)) as progress:
        return run_sweep(grid, out, master=master, overwrite=overwrite, progress=progress)


@contextmanager
def _shown(runs: int) -> Iterator[Callable[[int, int], None]]:
    """A line on the terminal that counts along, from the moment that Spark starts."""
    from rich.live import Live
    from rich.text import Text

    said = [f"starting Spark for {runs:,} runs"]

    class Line:
        def __rich__(self) -> Text:
            return Text(said[0])

    def progress(done: int, all_: int) -> None:
        said[0] = f"about {done:,} of {all_:,} runs"

    with Live(Line(), console=make_console(stderr=True), refresh_per_second=4, transient=True):
        yield progress


def _print(result: SweepResult) -> None:
    headings = (
        "ROUTE",
        "RUNS",
        "FAILED",
        "UNFINISHED",
        "PROMISED",
        "AGREE",
        "SHARE",
        "WORST R",
        "WORST UR",
        "VERDICT",
    )
    print_table(headings, [_line(route) for route in result.routes])
    for route in result.routes:
        if route.error is not None:
            told = f"{route.failed:,} of {route.runs:,} runs failed, the first with {route.error}"
            print(f"\n{route.route}: {told}")
    print()
    for file in result.files:
        print(file)
    note(f"{result.runs:,} runs in {result.seconds:.1f} s")


def _line(route: RouteSummary) -> tuple[object, ...]:
    share = f"{100 * route.agreeing / route.promised:.4g} %" if route.promised else "-"
    return (
        route.route,
        route.runs,
        route.failed,
        route.unfinished,
        route.promised,
        route.agreeing,
        share,
        _deviation(route.r_deviation_max),
        _deviation(route.ur_deviation_max),
        _verdict(route),
    )


def _deviation(value: float | None) -> str:
    """How far off; ``0`` only where it is none at all."""
    return "-" if value is None else f"{value:.2g}"


def _verdict(route: RouteSummary) -> str:
    if route.failed:
        return "FAILED"
    if route.order_broken:
        return "ORDER BROKEN"
    if not route.stands:
        return "DISAGREES"
    if not route.promised:
        if route.unfinished:
            return "no verdict"
        return "nothing promised"
    return "agrees" if route.agreeing == route.promised else "agrees, up to chance"
