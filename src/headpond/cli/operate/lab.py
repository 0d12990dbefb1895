"""``headpond lab run|sweep``: a route of pipes under faults, simulated and compared with the prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headpond.cli.command import command, group
from headpond.cli.operate.explain import rate_texts
from headpond.cli.options import flag, option, rate, wrong_use
from headpond.cli.output import (
    Output,
    note,
    print_fields,
    print_objects,
    print_table,
    progress_line,
)
from headpond.model.errors import BadRequest
from headpond.pipes.lab.faults import Crash, Delay, Faults
from headpond.pipes.lab.run import run as run_lab

if TYPE_CHECKING:
    from headpond.pipes.calculus.interval import Interval
    from headpond.pipes.lab.measure import Predicted
    from headpond.pipes.lab.run import LabResult
    from headpond.spark.sweep.grid import Grid
    from headpond.spark.sweep.sweep import RouteSummary, SweepResult


EXIT_UNFINISHED = 3
"""Of a run or a sweep without a verdict: it was given up before it ended."""

ENDINGS = {
    "idle": "",
    "quiet": "; at the end only readers were active",
    "unfinished": "; UNFINISHED: workers still retried, but nothing more arrived",
}

lab_app = group("Simulate a route under faults, and compare it with the prediction of `explain`.")

LOSS_HELP = "The share of messages that are lost."
DUPLICATE_HELP = "The share of messages that arrive twice."
REORDER_HELP = "The share of messages that later ones overtake."
CONFIRM_LOSS_HELP = "The share of answers that are lost."
ROUTE_HELP = "Pipes, the innermost first: 'resend_many | dedup'; hops in a row: 'A -> B'."
DELAY_HELP = "fixed:S, uniform:LOW,HIGH, exponential:MEAN or lognormal:MEDIAN,SIGMA, in seconds."
CRASH_HELP = (
    "sender, receiver, relay, storage, index, storage-loss, route or worker, once N messages have arrived; "
    "down for S seconds. Can be repeated."
)
RATE_HELP = "Messages per second; 0 means as fast as possible."
WORK_HELP = "Seconds that the worker needs for each message."
TRACE_HELP = "Write every event to FILE, one per line."


@command(lab_app)
def run(
    output: Output,
    route: Annotated[str, option("--route", "ROUTE", ROUTE_HELP)],
    loss: Annotated[float, rate("--loss", LOSS_HELP)] = 0.0,
    duplicate: Annotated[float, rate("--duplicate", DUPLICATE_HELP)] = 0.0,
    reorder: Annotated[float, rate("--reorder", REORDER_HELP)] = 0.0,
    confirm_loss: Annotated[float, rate("--confirm-loss", CONFIRM_LOSS_HELP)] = 0.0,
    delay: Annotated[str, option("--delay", "DELAY", DELAY_HELP)] = "fixed:0.01",
    crash: Annotated[list[str] | None, option("--crash", "ROLE@N[+S]", CRASH_HELP)] = None,
    messages_s: Annotated[float, option("--rate", "N", RATE_HELP, min=0.0)] = 0.0,
    work: Annotated[float, option("--work", "S", WORK_HELP, min=0.0)] = 0.0,
    messages: Annotated[int, option("--messages", "N", "Messages to send.", min=1)] = 10_000,
    seed: Annotated[int, option("--seed", "N", "The same seed gives the same run.")] = 0,
    trace: Annotated[Path | None, option("--trace", "FILE", TRACE_HELP)] = None,
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
        rate=messages_s,
        work_s=work,
    )
    result = _run(route, faults, messages, seed, trace)
    contradicted = result.predicted is not None and result.predicted.agrees is False
    output.show(result, partial(_print, result), ok=not contradicted)
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
    print()
    print_fields([(name, _counts_text(counts)) for name, counts in result.workers.items()])
    print()
    if predicted is None:
        print("no prediction: the calculus has no numbers for such a run")
        return
    for sentence in (*predicted.sentences, *(f"no promise: {breach}" for breach in predicted.breaches)):
        print(sentence)


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.items()) or "nothing to report"


def _faults_text(result: LabResult) -> str:
    crashes = [f"crash {crash}" for crash in result.faults.crashes]
    return ", ".join([*rate_texts(result.faults), f"delay {result.faults.delay}", *crashes])


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


def _measured_text(value: Interval) -> str:
    return f"{value.value:.6g} ({value.low:.6g} to {value.high:.6g})"


OUT_DEFAULT = Path("lab-sweep")
_BETWEEN_ROUTES = re.compile(r",(?![^(]*\))")


ROUTES_HELP = "Routes, with commas between: 'resend_many | dedup, index'. Can be repeated."
OUT_HELP = "The folder for the results; it is created if needed."
RATES = "P,P…"


@command(lab_app)
def sweep(
    output: Output,
    routes: Annotated[list[str] | None, option("--routes", "ROUTE,ROUTE…", ROUTES_HELP)] = None,
    loss: Annotated[str, option("--loss", RATES, LOSS_HELP)] = "0,0.1,0.2,0.4",
    duplicate: Annotated[str, option("--duplicate", RATES, DUPLICATE_HELP)] = "0,0.1,0.3",
    reorder: Annotated[str, option("--reorder", RATES, REORDER_HELP)] = "0.1",
    confirm_loss: Annotated[str, option("--confirm-loss", RATES, CONFIRM_LOSS_HELP)] = "0.2",
    seeds: Annotated[int, option("--seeds", "N", "Runs per combination.", min=1)] = 3,
    messages: Annotated[int, option("--messages", "N", "Messages per run.", min=1)] = 5_000,
    out: Annotated[Path, option("--out", "DIR", OUT_HELP)] = OUT_DEFAULT,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the results of an earlier sweep.")] = False,
    master: Annotated[str, option("--master", "MASTER", "The Spark master to run on.")] = "local[*]",
) -> None:
    """Run every combination of routes and faults on Spark, and write runs.parquet, R.png and UR.png.

    Exits with 1 if a run failed or more runs disagree than chance explains, with 3 if some did not finish.
    """
    rates = {
        "loss": _numbers("--loss", loss),
        "duplicate": _numbers("--duplicate", duplicate),
        "reorder": _numbers("--reorder", reorder),
        "confirm_loss": _numbers("--confirm-loss", confirm_loss),
    }
    wanted = _routes(routes)
    from headpond.spark.sweep.grid import ROUTES, Grid

    grid = Grid(routes=wanted or ROUTES, seeds=seeds, messages=messages, **rates)
    result = _sweep(grid, out, master, overwrite=overwrite)
    output.show(result, partial(_print_sweep, result), ok=result.stands)
    if result.unfinished:
        raise typer.Exit(EXIT_UNFINISHED)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        raise wrong_use(option, f"{text!r} is not a list of numbers like 0,0.1") from None
    if not all(0 <= number <= 1 for number in numbers):
        raise wrong_use(option, f"{text!r} has a rate outside of 0 to 1")
    if len(set(numbers)) < len(numbers):
        raise wrong_use(option, f"{text!r} has a rate twice")
    return numbers


def _routes(given: list[str] | None) -> tuple[str, ...] | None:
    """Splits at the commas between routes, not at those inside of parentheses. None for the default routes."""
    if given is None:
        return None
    routes = [route.strip() for text in given for route in _BETWEEN_ROUTES.split(text)]
    if not all(routes):
        raise wrong_use("--routes", "a route is empty")
    return tuple(routes)


def _sweep(grid: Grid, out: Path, master: str, *, overwrite: bool) -> SweepResult:
    from headpond.spark.sweep.sweep import sweep as run_sweep

    with progress_line(f"starting Spark for {len(grid):,} runs") as show:

        def progress(done: int, all_: int) -> None:
            if show is not None:
                show(f"about {done:,} of {all_:,} runs")

        return run_sweep(grid, out, master=master, overwrite=overwrite, progress=show and progress)


def _print_sweep(result: SweepResult) -> None:
    columns = "route runs failed unfinished promised agree=agreeing share worst_R worst_UR verdict"
    print_objects([_row(route) for route in result.routes], columns)
    for route in result.routes:
        if route.error is not None:
            failed = f"{route.failed:,} of {route.runs:,} runs failed"
            print(f"\n{route.route}: {failed}, the first with {route.error}")
    print()
    for file in result.files:
        print(file)
    note(f"{result.runs:,} runs in {result.seconds:.1f} s")


def _row(route: RouteSummary) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(route),
        "share": f"{100 * route.agreeing / route.promised:.4g} %" if route.promised else "-",
        "worst_R": _deviation(route.r_deviation_max),
        "worst_UR": _deviation(route.ur_deviation_max),
        "verdict": _verdict(route),
    }


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
