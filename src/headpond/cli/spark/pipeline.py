"""``headpond spark run`` and ``check``: a pipeline's file, run or checked."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.command import Node, command
from headpond.cli.options import argument, flag, option, said, wrong_use
from headpond.cli.output import json_text, make_console, note
from headpond.model.errors import BadSetting
from headpond.storage.folder_lock import state_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headpond.spark.connection import NodeConnection
    from headpond.spark.pipeline.frames import Frames
    from headpond.spark.pipeline.plan import Plan
    from headpond.spark.pipeline.progress import BatchSample, Metrics
    from headpond.spark.pipeline.run import PipelineRun


LOOK_S = 0.5

Update = Callable[["PipelineRun", dict[str, "BatchSample | None"]], None]

File = Annotated[Path, argument("FILE.toml", "A pipeline's file.")]
Master = Annotated[str | None, option("--master", "MASTER", "The Spark master; default: the file's.")]
ONCE_HELP = "Process the present rows, then end; overrides the trigger."


@command()
def check(
    node: Node,
    context: typer.Context,
    file: File,
    offline: Annotated[bool, flag("--offline", "Check the file alone, without Spark or a node.")] = False,
    master: Master = None,
) -> None:
    """Check a pipeline's file without running it."""
    from headpond.spark.pipeline.pipeline import Pipeline

    pipeline = Pipeline.load(file)
    plan = pipeline.plan
    if not offline:
        from headpond.spark.pipeline.run import analyse

        target = _node(context, plan, node.url, node.token)
        _note_unfinished(analyse(pipeline.definition, _session(plan, master), node=target))
    parts = {"sources": list(plan.sources), "steps": list(plan.steps), "sinks": list(plan.sinks)}
    lines = [f"{file}: pipeline {plan.name} is in order{' as far as the file shows' if offline else ''}"]
    lines += [f"  {part}: {', '.join(names) or 'none'}" for part, names in parts.items()]
    node.show({"pipeline": plan.name, **parts, "tried": not offline}, "\n".join(lines))


@command()
def run(
    node: Node,
    context: typer.Context,
    file: File,
    once: Annotated[bool, flag("--once", ONCE_HELP)] = False,
    idle: Annotated[str | None, option("--idle", "TIME", "End after this time without rows: 30s, 5m.")] = None,
    metrics: Annotated[
        str | None, option("--metrics", "HOST:PORT", "Serve metrics for Prometheus there.")
    ] = None,
    master: Master = None,
) -> None:
    """Run a pipeline until it ends or is stopped; the next run continues where it was.

    Ctrl-C or SIGTERM ends it between two batches, a second one at once. With --json, prints an object per
    batch.
    """
    from headpond.spark.pipeline.pipeline import Pipeline
    from headpond.spark.pipeline.run import start

    idle_s = None if idle is None else _idle(idle)
    pipeline = Pipeline.load(file)
    if once:
        pipeline.set_trigger(available_now=True)
    plan = pipeline.plan
    page = _metrics(plan.name, metrics)
    log = state_folder() / "spark" / f"{plan.name}.log"
    if not node.as_json:
        note(f"starting Spark for {plan.name}; its own output is in {log}")
    try:
        with _signals() as signals:
            with _stderr_to(log):
                spark = _session(plan, master)
            work = start(pipeline.definition, spark, node=_node(context, plan, node.url, node.token))
            _follow(work, signals, page, idle_s=idle_s, as_json=node.as_json)
    finally:
        if page is not None:
            page.close()


def _note_unfinished(frames: Frames) -> None:
    from headpond.spark.checkpoints import unfinished_start

    for outlet in frames.outlets:
        for file in unfinished_start(frames.spark, frames.checkpoint_of(outlet.name)):
            note(f"{outlet.name}: a driver was killed before its first batch; the next run removes {file}")


def _node(context: typer.Context, plan: Plan, url: str, token: str | None) -> NodeConnection:
    """The command line's, else the file's, else the environment's; a context's token goes to its own node."""
    from headpond.spark.connection import NodeConnection

    chosen = url if said(context, "url", on_line=True) or plan.url is None else plan.url
    if said(context, "token", on_line=True):
        return NodeConnection(chosen, token)
    if plan.token is not None and plan.url in (None, chosen):
        return NodeConnection(chosen, plan.token)
    # A token of the environment goes to any URL; a context's token goes to the context's URL alone.
    return NodeConnection(chosen, token if chosen == url or said(context, "token") else None)


def _session(plan: Plan, master: str | None) -> SparkSession:
    from headpond.spark.start.session import session

    return session(plan.name, master=master or plan.spark.master, conf=plan.spark.conf)


def _idle(text: str) -> float:
    from headpond.spark.pipeline.faults import seconds

    try:
        return seconds(text)
    except BadSetting:
        raise wrong_use("--idle", f"{text!r} is no length of time like 30s, 5m or 1.5h") from None


def _metrics(name: str, text: str | None) -> Metrics | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise wrong_use("--metrics", f"{text!r} is not HOST:PORT")
    from headpond.spark.pipeline.progress import Metrics

    return Metrics(name, host, int(port))


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Sends the stderr of Java and its workers to a file, so that the screen shows the pipeline alone."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# --- at work ------------------------------------------------------------------------------------------


class StopSignals:
    """Counts the signals to stop; the second one exits at once."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: object) -> None:
        self.count += 1
        if self.count == 1:
            note("stopping after this batch; once more stops at once")
        else:
            note("stopped; the next start repeats the current batch")
            os._exit(130)


@contextmanager
def _signals() -> Iterator[StopSignals]:
    signals = StopSignals()
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(
    work: PipelineRun, signals: StopSignals, page: Metrics | None, *, idle_s: float | None, as_json: bool
) -> None:
    """Shows the progress until the run ends or a signal stops it; raises the error of a query that fails."""
    live = sys.stderr.isatty() and not as_json
    last: dict[str, BatchSample | None] = dict.fromkeys(work.queries)
    with _screen(live) as update:
        while True:
            active = work.active
            for sample in work.samples():
                last[sample.sink] = sample
                _report(sample, page, as_json=as_json, live=live)
            update(work, last)
            work.check()
            if not active:
                break
            if signals.count or (idle_s is not None and work.idle_s >= idle_s):
                work.stop()
            else:
                time.sleep(LOOK_S)
    rows = sum(sample.rows_all for sample in last.values() if sample is not None)
    if not as_json:
        note(f"{work.plan.name}: {'stopped' if signals.count else 'ended'} after {rows:,} rows read")


def _report(sample: BatchSample, page: Metrics | None, *, as_json: bool, live: bool) -> None:
    from headpond.spark.pipeline.progress import line

    if page is not None:
        page.take(sample)
    if as_json:
        print(json_text(sample), flush=True)
    elif not live and sample.rows:
        note(line(sample))


@contextmanager
def _screen(live: bool) -> Iterator[Update]:
    if not live:
        yield lambda work, last: None
        return
    from rich.live import Live

    from headpond.spark.pipeline.progress import table

    with Live(console=make_console(stderr=True), auto_refresh=False) as screen:

        def update(work: PipelineRun, last: dict[str, BatchSample | None]) -> None:
            rows = table((name, sample, work.doing(name)) for name, sample in last.items())
            screen.update(rows, refresh=True)

        yield update
