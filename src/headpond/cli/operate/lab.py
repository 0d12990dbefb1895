"""``headpond lab run|sweep``: a route of pipes under faults, simulated and compared with the prediction."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import (
    EXIT_ERROR,
    make_console,
    note,
    print_fields,
    print_json,
    print_table,
    reports_errors,
)
from headpond.model.errors import BadRequest
from headpond.pipes.lab.faults import Crash, Delay, Faults
from headpond.pipes.lab.run import run as run_lab

if TYPE_CHECKING:
    from headpond.pipes.lab.measure import Measured
    from headpond.pipes.lab.predict import Predicted
    from headpond.pipes.lab.run import LabResult
    from headpond.spark.sweep.grid import Grid
    from headpond.spark.sweep.summary import RouteSummary
    from headpond.spark.sweep.sweep import SweepResult


EXIT_UNFINISHED = 3
"""Of a run or a sweep without a verdict: it was given up before it ended."""

ENDINGS = {
    "idle": "",
    "quiet": "; at the end only readers were active",
    "unfinished": "; UNFINISHED: workers still retried, but nothing more arrived",
}

lab_app = typer.Typer(
    help="Simulate a route under faults, and compare it with the prediction of `explain`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _rate(name: str, meaning: str) -> Any:
    return typer.Option(name, min=0.0, max=1.0, metavar="P", help=meaning)


@lab_app.command()
@reports_errors
def run(
    route: Annotated[
        str,
        typer.Option(
            "--route",
            metavar="ROUTE",
            help="Pipes, the innermost first: 'resend_many | dedup'; hops in a row: 'A -> B'.",
        ),
    ],
    loss: Annotated[float, _rate("--loss", "The share of messages that are lost.")] = 0.0,
    duplicate: Annotated[float, _rate("--duplicate", "The share of messages that arrive twice.")] = 0.0,
    reorder: Annotated[float, _rate("--reorder", "The share of messages that later ones overtake.")] = 0.0,
    confirm_loss: Annotated[float, _rate("--confirm-loss", "The share of answers that are lost.")] = 0.0,
    delay: Annotated[
        str,
        typer.Option(
            "--delay",
            metavar="DELAY",
            help="fixed:S, uniform:LOW,HIGH, exponential:MEAN or lognormal:MEDIAN,SIGMA, in seconds.",
        ),
    ] = "fixed:0.01",
    crash: Annotated[
        list[str] | None,
        typer.Option(
            "--crash",
            metavar="ROLE@N[+S]",
            help="sender, receiver, relay, storage, index, storage-loss, route or worker, once N messages have "
            "arrived; down for S seconds. Can be repeated.",
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0.0, metavar="N", help="Messages per second; 0 means as fast as possible."),
    ] = 0.0,
    work: Annotated[
        float,
        typer.Option("--work", min=0.0, metavar="S", help="Seconds that the worker needs for each message."),
    ] = 0.0,
    messages: Annotated[int, typer.Option("--messages", min=1, metavar="N", help="Messages to send.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same run.")] = 0,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write every event to FILE, one per line.")
    ] = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Simulate messages over a route under faults, and compare R, UR and order with the prediction.

    Exits with 1 if the measurement contradicts the prediction, and with 3 if the run did not finish.
    """
    faults = Faults(
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        confirm_loss=confirm_loss,
        delay=Delay.parse(delay),
        crashes=tuple(Crash.parse(each) for each in crash or ()),
        rate=rate,
        work_s=work,
    )
    result = _run(route, faults, messages, seed, trace)
    if as_json:
        print_json(result)
    else:
        _print(result)
    if result.predicted is not None and result.predicted.agrees is False:
        raise typer.Exit(EXIT_ERROR)
    if result.ended == "unfinished" or result.sent < result.messages:
        raise typer.Exit(EXIT_UNFINISHED)


def _run(route: str, faults: Any, messages: int, seed: int, trace: Path | None) -> LabResult:
    if trace is None:
        return run_lab(route, faults, messages, seed)
    try:
        with trace.open("w", encoding="utf-8", newline="\n") as file:
            return run_lab(route, faults, messages, seed, trace=file.write)
    except OSError as error:
        raise BadRequest(
            f"cannot write {trace}: {error.strerror}",
            hint="Give a file in a folder that exists and that you may write to.",
        ) from error


def _print(result: LabResult) -> None:
    print_fields(
        [
            ("route", result.route),
            ("faults", _faults_text(result)),
            ("sent", f"{result.sent:,} of {result.messages:,} messages, seed {result.seed}"),
            ("arrived", f"{result.unique:,} in {result.received:,} copies"),
            ("missing", _missing_text(result)),
            ("simulated", f"{result.simulated_s:.6g} s{ENDINGS[result.ended]}"),
            ("sent again", f"{result.retransmissions:,}; in all {result.transmissions:,} on the links"),
            ("latency", _latency_text(result)),
        ]
    )
    print()
    predicted = result.predicted
    rows = [
        ("R", _range(predicted, "reliability"), _measured_text(result.reliability)),
        ("UR", _range(predicted, "uniqueness"), _measured_text(result.uniqueness)),
        ("order", _order_text(predicted), ", ".join(result.orders) or "none"),
    ]
    print_table(("", "PREDICTED", "MEASURED"), rows)
    _print_counts(result)
    _print_verdict(predicted)


def _print_counts(result: LabResult) -> None:
    print()
    print_fields(
        [
            (name, ", ".join(f"{what} {count:,}" for what, count in counts.items()) or "nothing to report")
            for name, counts in result.workers.items()
        ]
    )


def _print_verdict(predicted: Predicted | None) -> None:
    print()
    if predicted is None:
        print("no prediction: the calculus has no numbers for such a run")
        return
    for sentence in (*predicted.sentences, *(f"no promise: {breach}" for breach in predicted.breaches)):
        print(sentence)


def _faults_text(result: LabResult) -> str:
    faults = result.faults
    names = ("loss", "duplicate", "reorder", "confirm_loss")
    parts = [f"{name.replace('_', ' ')} {getattr(faults, name):g}" for name in names if getattr(faults, name)]
    parts.append(f"delay {faults.delay}")
    return ", ".join([*parts, *(f"crash {crash}" for crash in faults.crashes)])


def _missing_text(result: LabResult) -> str:
    count = result.sent - result.unique
    if not count:
        return "none"
    shown = ", ".join(map(str, result.missing))
    return f"{count:,}: {shown}{', …' if count > len(result.missing) else ''}"


def _latency_text(result: LabResult) -> str:
    latency = result.latency
    shares = (
        ("50 %", latency.p50_s),
        ("90 %", latency.p90_s),
        ("99 %", latency.p99_s),
        ("99.9 %", latency.p999_s),
        ("all", latency.max_s),
    )
    return ", ".join(f"{name} in {value * 1000:.4g} ms" for name, value in shares if value is not None) or "-"


def _range(predicted: Predicted | None, name: str) -> str:
    if predicted is None or not predicted.holds:
        return "-"
    low, high = getattr(predicted, f"{name}_low"), getattr(predicted, f"{name}_high")
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def _order_text(predicted: Predicted | None) -> str:
    if predicted is None or not predicted.holds:
        return "-"
    return predicted.order or "none"


def _measured_text(value: Measured) -> str:
    return f"{value.value:.6g} ({value.low:.6g} to {value.high:.6g})"


OUT_DEFAULT = Path("lab-sweep")
_BETWEEN_ROUTES = re.compile(r",(?![^(]*\))")


def _rates(name: str, meaning: str) -> Any:
    return typer.Option(name, metavar="P,P…", help=meaning)


@lab_app.command()
@reports_errors
def sweep(
    routes: Annotated[
        list[str] | None,
        typer.Option(
            "--routes",
            metavar="ROUTE,ROUTE…",
            help="Routes, with commas between: 'resend_many | dedup, index'. Can be repeated.",
        ),
    ] = None,
    loss: Annotated[str, _rates("--loss", "The share of messages that are lost.")] = "0,0.1,0.2,0.4",
    duplicate: Annotated[str, _rates("--duplicate", "The share of messages that arrive twice.")] = "0,0.1,0.3",
    reorder: Annotated[str, _rates("--reorder", "The share of messages that later ones overtake.")] = "0.1",
    confirm_loss: Annotated[str, _rates("--confirm-loss", "The share of answers that are lost.")] = "0.2",
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Runs per combination.")] = 3,
    messages: Annotated[int, typer.Option("--messages", min=1, metavar="N", help="Messages per run.")] = 5_000,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder for the results; it is created if needed.")
    ] = OUT_DEFAULT,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results of an earlier sweep.", show_default=False)
    ] = False,
    master: Annotated[
        str, typer.Option("--master", metavar="MASTER", help="The Spark master to run on.")
    ] = "local[*]",
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of routes and faults on Spark, and write runs.parquet, R.png and UR.png.

    Exits with 1 if a run failed or more runs disagree than chance explains, with 3 if some did not finish.
    """
    rates = {
        name: _numbers(f"--{name.replace('_', '-')}", text)
        for name, text in (
            ("loss", loss),
            ("duplicate", duplicate),
            ("reorder", reorder),
            ("confirm_loss", confirm_loss),
        )
    }
    grid = _grid(_routes(routes), rates, seeds, messages)
    result = _sweep(grid, out, master, overwrite=overwrite)
    if as_json:
        print_json(result)
    else:
        _print_sweep(result)
    if not result.stands:
        raise typer.Exit(EXIT_ERROR)
    if result.unfinished:
        raise typer.Exit(EXIT_UNFINISHED)


def _grid(
    routes: tuple[str, ...] | None, rates: dict[str, tuple[float, ...]], seeds: int, messages: int
) -> Grid:
    from headpond.spark.sweep.grid import ROUTES, Grid

    return Grid(routes=routes or ROUTES, seeds=seeds, messages=messages, **rates)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers like 0,0.1", param_hint=f"'{option}'"
        ) from None
    if not all(0 <= number <= 1 for number in numbers):
        raise typer.BadParameter(f"{text!r} has a rate outside of 0 to 1", param_hint=f"'{option}'")
    if len(set(numbers)) < len(numbers):
        raise typer.BadParameter(f"{text!r} has a rate twice", param_hint=f"'{option}'")
    return numbers


def _routes(given: list[str] | None) -> tuple[str, ...] | None:
    """Splits at the commas between routes, not at those inside of parentheses. None for the default routes."""
    if given is None:
        return None
    routes = [route.strip() for text in given for route in _BETWEEN_ROUTES.split(text)]
    if not all(routes):
        raise typer.BadParameter("a route is empty", param_hint="'--routes'")
    return tuple(routes)


def _sweep(grid: Grid, out: Path, master: str, *, overwrite: bool) -> SweepResult:
    from headpond.spark.sweep.sweep import sweep as run_sweep

    if not sys.stderr.isatty():
        return run_sweep(grid, out, master=master, overwrite=overwrite)
    with _shown(len(grid)) as progress:
        return run_sweep(grid, out, master=master, overwrite=overwrite, progress=progress)


@contextmanager
def _shown(runs: int) -> Iterator[Callable[[int, int], None]]:
    """Shows the progress on a line of the terminal, from the start of Spark."""
    from rich.live import Live
    from rich.text import Text

    line = [f"starting Spark for {runs:,} runs"]

    class Line:
        def __rich__(self) -> Text:
            return Text(line[0])

    def progress(done: int, all_: int) -> None:
        line[0] = f"about {done:,} of {all_:,} runs"

    with Live(Line(), console=make_console(stderr=True), refresh_per_second=4, transient=True):
        yield progress


def _print_sweep(result: SweepResult) -> None:
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
            failed = f"{route.failed:,} of {route.runs:,} runs failed"
            print(f"\n{route.route}: {failed}, the first with {route.error}")
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
    """How far off; ``0`` only if there is no deviation at all."""
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
