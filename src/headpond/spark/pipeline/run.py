"""A running pipeline: one query of Spark per sink, started and stopped together."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headpond.model.errors import PipelineFailed
from headpond.spark.causes import cause_of
from headpond.spark.checkpoints import clear_unfinished_start
from headpond.spark.connection import NodeConnection
from headpond.spark.options import node_at
from headpond.spark.pipeline.definition import Definition
from headpond.spark.pipeline.faults import PlanFault, interval
from headpond.spark.pipeline.frames import Frames, QueryOutlet, resolve_path
from headpond.spark.pipeline.outlets import parquet_writer, printer
from headpond.spark.pipeline.plan import Plan, Trigger
from headpond.spark.pipeline.progress import BatchSample, QueryProgress
from headpond.spark.start.session import register_format, session

POLL_S = 0.2
SAMPLES_MAX = 1000
STOP_WITHIN_S = 60.0
REORDER_EVERY = "1s"
"""The default trigger with ``reorder``: Spark runs a batch per trigger for timers, even without rows."""
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULTS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
}


def start(
    definition: Definition, spark: SparkSession | None = None, *, node: NodeConnection | None = None
) -> PipelineRun:
    """Builds the plan on Spark and starts one query per sink, or none if any part has a fault."""
    frames = analyse(definition, spark, node=node)
    run = PipelineRun(frames.plan)
    for outlet in frames.outlets:
        try:
            run.queries[outlet.name] = _start(frames, frames.own(outlet))
        except BaseException as error:
            with suppress(PipelineFailed):
                run.stop(within_s=0)
            if not isinstance(error, PySparkException):
                raise
            cause = cause_of(error)
            raise definition.refuse([PlanFault(outlet.path, cause.message, cause.hint)]) from error
    return run


def analyse(
    definition: Definition, spark: SparkSession | None = None, *, node: NodeConnection | None = None
) -> Frames:
    """The plan as DataFrames, not run; ``BadPipeline`` has every fault that Spark or the node found.

    They are in a new session, so that views and settings do not affect other users of Spark.
    """

    plan = definition.plan
    if spark is None:
        spark = session(plan.name, master=plan.spark.master, conf=plan.spark.conf)
    own = register_format(spark.newSession())
    for key, value in {**_DEFAULTS, **plan.spark.conf}.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, str(value).lower() if isinstance(value, bool) else str(value))
    frames = Frames(definition, plan, own, node or node_of(plan)).build()
    if frames.faults:
        raise definition.refuse(frames.faults) from frames.errors[0]
    return frames


def node_of(plan: Plan) -> NodeConnection:
    """The node that the plan names, else the environment or the context in use."""
    return node_at(plan.url, plan.token)


def _start(frames: Frames, outlet: QueryOutlet) -> StreamingQuery:
    plan, sink = frames.plan, outlet.sink
    if sink.parquet is not None:
        writer = parquet_writer(outlet.rows, sink, resolve_path(sink.parquet, frames.definition.folder))
    elif sink.console:
        writer = outlet.rows.writeStream.foreachBatch(printer(outlet.name))
    else:
        writer = outlet.rows.writeStream.format("headpond").options(**frames.sink_options(sink))
    trigger = _trigger(plan, sink.trigger or plan.trigger)
    writer = writer.trigger(**trigger) if trigger else writer
    checkpoint = frames.checkpoint_of(outlet.name)
    clear_unfinished_start(frames.spark, checkpoint)
    writer = writer.option("checkpointLocation", checkpoint).outputMode(sink.mode)
    return writer.queryName(f"{plan.name}.{outlet.name}").start()


def _trigger(plan: Plan, trigger: Trigger) -> dict[str, Any]:
    """The arguments of Spark's ``trigger``; empty: the next batch as soon as there are rows."""
    if trigger.available_now:
        return {"availableNow": True}
    every = trigger.every or (REORDER_EVERY if plan.reorders else None)
    return {} if every is None else {"processingTime": interval(every)}


@dataclass(slots=True)
class PipelineRun:
    """The queries of a pipeline, by sink."""

    plan: Plan
    queries: dict[str, StreamingQuery] = field(default_factory=dict)
    _following: dict[str, QueryProgress] = field(default_factory=dict)
    _seen: deque[BatchSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    _rows_at: float = field(default_factory=time.monotonic)

    @property
    def active(self) -> bool:
        """Whether any query runs."""
        return any(query.isActive for query in self.queries.values())

    def wait(self, timeout: float | None = None, *, idle: float | None = None) -> bool:
        """Waits until every query has ended; False after ``timeout`` seconds. A failed query stops the others.

        With ``idle``, stops the run after so many seconds without rows.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.active:
            self.check()
            self._look()
            if idle is not None and self.idle_s >= idle:
                self.stop()
            elif until is not None and time.monotonic() >= until:
                return False
            else:
                time.sleep(POLL_S)
        self.check()
        return True

    @property
    def idle_s(self) -> float:
        """Seconds since the last batch with rows ended or ran."""
        for name, query in self.queries.items():
            first = name not in self._following or not self._following[name].began
            if query.isActive and (first or query.status["isDataAvailable"]):
                self._rows_at = time.monotonic()
        return time.monotonic() - self._rows_at

    def check(self) -> None:
        """Raises the error of a query that failed, after it has stopped the others."""
        for name, query in self.queries.items():
            if not query.isActive and (error := query.exception()) is not None:
                with suppress(PipelineFailed):  # report why it failed, not that another is slow to end
                    self.stop(within_s=0)
                cause = cause_of(error)
                raise PipelineFailed(f"{self.plan.name}.{name}: {cause.message}", hint=cause.hint) from error

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """Ends each query between two batches, or after the time within one, which the next start repeats.

        A query that does not end, because it waits for an unreachable node, does not keep the others running.
        """
        until = time.monotonic() + within_s
        late: dict[str, Exception] = {}
        for name, query in self.queries.items():
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                time.sleep(0.02)
            try:
                query.stop()
            except Exception as error:  # noqa: BLE001  # Spark waited as long as it may (stopTimeout)
                late[name] = error
        if late:
            names = ", ".join(f"{self.plan.name}.{name}" for name in late)
            raise PipelineFailed(
                f"{names} did not end in time",
                hint="End the process; the next start repeats its batch.",
            ) from next(iter(late.values()))

    def samples(self) -> Iterator[BatchSample]:
        """The batches since the last call; at most the newest 1,000."""
        self._look()
        while self._seen:
            yield self._seen.popleft()

    def _look(self) -> None:
        for name, query in self.queries.items():
            following = self._following.setdefault(name, QueryProgress(name))
            for progress in query.recentProgress:
                if (sample := following.take(json.loads(progress.json))) is not None:
                    self._seen.append(sample)
                    if sample.rows:
                        self._rows_at = time.monotonic()

    def doing(self, sink: str) -> str:
        """The current activity of a sink's query, as Spark reports it."""
        query = self.queries[sink]
        return str(query.status["message"]) if query.isActive else "ended"
