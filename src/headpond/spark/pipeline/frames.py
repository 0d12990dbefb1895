"""A plan as DataFrames of Spark: sources read, steps applied in order, each a view that SQL can name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headpond.model.errors import BadRequest, HeadpondError
from headpond.spark.causes import cause_of
from headpond.spark.connection import NodeConnection
from headpond.spark.options import (
    READING_OPTIONS,
    STREAM_OPTIONS,
    TOPIC_OPTIONS,
    read_sink_options,
    read_source_options,
)
from headpond.spark.pipeline import steps
from headpond.spark.pipeline.definition import Definition
from headpond.spark.pipeline.faults import PlanFault, dead_name, nearest, views_of
from headpond.spark.pipeline.outlets import check_folder, check_partitions, message_columns
from headpond.spark.pipeline.plan import Plan, SinkTable, SourceTable, StepTable, kind_of
from headpond.spark.pipeline.reorder import reorder

_TRACEBACK = "Traceback (most recent call last)"
_SOURCE_OPTIONS = {
    re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", option.name): option.name
    for option in (*TOPIC_OPTIONS, *STREAM_OPTIONS, *READING_OPTIONS)
}
"""The option of ``format("headpond")`` for each key of a source's table: the same words, joined by ``_``."""


def node_options(node: NodeConnection, table: SourceTable | SinkTable) -> dict[str, str]:
    """The options that reach a table's topics; the node's token and certificate go to the node alone."""
    if table.url in (None, node.url):
        return node.options() | ({} if table.token is None else {"token": table.token})
    return NodeConnection(table.url, table.token).options()


@dataclass(frozen=True, slots=True)
class QueryOutlet:
    """Rows on their way into a sink."""

    name: str
    sink: SinkTable
    rows: DataFrame
    path: tuple[str, ...]
    """The place of its table in the plan."""


@dataclass(slots=True)
class Frames:
    """The DataFrames of a plan, without those parts that Spark refuses (``faults``) and their dependents."""

    definition: Definition
    plan: Plan
    spark: SparkSession
    node: NodeConnection
    """The node that topics are on, unless a source or sink names another."""
    outlet: str | None = None
    """The only outlet to build, with its own subscriptions; None builds all."""
    views: dict[str, DataFrame] = field(default_factory=dict)
    outlets: list[QueryOutlet] = field(default_factory=list)
    faults: list[PlanFault] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    """The errors of Spark or the node behind the faults."""
    _lost: set[str] = field(default_factory=set)

    def own(self, outlet: QueryOutlet) -> QueryOutlet:
        """The same outlet with separate subscriptions.

        If queries shared one, the fastest would advance it: the node could delete entries that others have not
        read, and a query without a checkpoint would skip them.
        """
        if not any(source.subscription for source in self.plan.sources.values()):
            return outlet
        built = Frames(self.definition, self.plan, self.spark, self.node, outlet.name).build()
        if built.faults:  # it had none a moment ago
            raise self.definition.refuse(built.faults) from built.errors[0]
        return next(each for each in built.outlets if each.name == outlet.name)

    def build(self) -> Frames:
        for name, source in self.plan.sources.items():
            self._try("sources", name, self._add_source, source)
        for name, step in self.plan.steps.items():
            if step.from_ not in self._lost:
                self._try("steps", name, self._add_step, step)
            else:
                self._lost.update(views_of(name, step))
        for name, sink in self.plan.sinks.items():
            if sink.from_ in self.views:
                self._try("sinks", name, self._add_sink, sink)
        return self

    def _try(self, section: str, name: str, add: Callable[[str, Any], None], table: Any) -> None:
        try:
            add(name, table)
        except (HeadpondError, PySparkException) as error:
            self._lost.update(views_of(name, table) if section == "steps" else [name])
            if (fault := self._fault_of((section, name), error)) is not None:
                self.faults.append(fault)
                self.errors.append(error)

    # --- sources ------------------------------------------------------------------------------------

    def _add_source(self, name: str, source: SourceTable) -> None:
        rows = self._parquet(source) if source.parquet is not None else self._topics(source)
        self._view(name, rows if source.watermark is None else steps.watermark(rows, source.watermark))

    def _topics(self, source: SourceTable) -> DataFrame:
        options = node_options(self.node, source)
        for key, option in _SOURCE_OPTIONS.items():
            if (value := getattr(source, key, None)) is not None:
                options[option] = ",".join(value) if isinstance(value, list) else str(value)
        if source.subscription is not None and self.outlet is not None:
            options["subscription"] = f"{source.subscription}.{self.outlet}"
        read_source_options(options, streaming=True)
        return self.spark.readStream.format("headpond").options(**options).load()

    def _parquet(self, source: SourceTable) -> DataFrame:
        assert source.parquet is not None
        path = resolve_path(source.parquet, self.definition.folder)
        if not source.streams:
            return self.spark.read.parquet(path)
        reader = self.spark.readStream
        reader = reader.schema(source.schema or self.spark.read.parquet(path).schema)
        if source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
        return reader.parquet(path)

    # --- steps --------------------------------------------------------------------------------------

    def _add_step(self, name: str, step: StepTable) -> None:
        if step.sql is not None:
            steps.check_query(self.spark, step.sql)
            self._view(name, self.spark.sql(step.sql))
            return
        assert step.from_ is not None
        rows = self.views[step.from_]
        if step.python is not None:
            given = self.definition.functions.get(name)
            function = given or steps.find_function(step.python, self.definition.folder, self.spark)
            self._view(name, steps.call_function(step.python, function, rows))
        elif step.watermark is not None:
            self._view(name, steps.watermark(rows, step.watermark))
        elif step.dedup is not None:
            self._view(name, steps.dedup(rows, step.dedup))
        elif step.reorder is not None:
            self._view(name, reorder(rows, step.reorder))
        elif step.route is not None:
            for view, some in steps.route(name, rows, step.route).items():
                self._view(view, some)
        else:
            assert step.dead_letter is not None
            _check_grows(step.from_, rows)
            good, dead = steps.dead_letter(name, rows, step.dead_letter)
            self._view(name, good)
            sink = SinkTable(from_=name, topic=step.dead_letter.topic)
            self.outlets.append(QueryOutlet(dead_name(name), sink, dead, ("steps", name, "dead_letter")))

    def _view(self, name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        self.views[name] = rows

    # --- sinks --------------------------------------------------------------------------------------

    def _add_sink(self, name: str, sink: SinkTable) -> None:
        rows = self.views[sink.from_]
        _check_grows(sink.from_, rows)
        if sink.topic is not None or sink.topics:
            read_sink_options(self.sink_options(sink), streaming=True)
            rows = message_columns(rows, sink)
        if sink.parquet is not None:
            check_partitions(rows, sink)
            folder = resolve_path(sink.parquet, self.definition.folder)
            check_folder(self.spark, folder, self.checkpoint_of(name))
        self.outlets.append(QueryOutlet(name, sink, rows, ("sinks", name)))

    def sink_options(self, sink: SinkTable) -> dict[str, str]:
        """The options of a sink that writes to topics."""
        given = {"topic": sink.topic, "sinkId": sink.sink_id, "onRepeat": sink.on_repeat}
        return node_options(self.node, sink) | {
            name: value for name, value in given.items() if value is not None
        }

    def checkpoint_of(self, outlet: str) -> str:
        folder = resolve_path(self.plan.checkpoint or f"checkpoints/{self.plan.name}", self.definition.folder)
        return f"{folder.rstrip('/')}/{outlet}"

    # --- faults -------------------------------------------------------------------------------------

    def _fault_of(self, path: tuple[str, ...], error: HeadpondError | Exception) -> PlanFault | None:
        if isinstance(error, HeadpondError):
            table = {"sources": self.plan.sources, "steps": self.plan.steps, "sinks": self.plan.sinks}[path[0]]
            kinds = kind_of(table[path[1]])  # type: ignore[index]
            return PlanFault((*path, *kinds), error.message, error.hint)
        return self._spark_fault(path, error)

    def _spark_fault(self, path: tuple[str, ...], error: Any) -> PlanFault | None:
        """The message of Spark, with the line inside of the SQL; None if another fault is the cause."""
        text = str(error.getMessage() or error)
        if _TRACEBACK in text:  # raised in Python, for example by the source: the cause is behind it
            return self._fault_of(path, cause_of(error))
        message = text.strip().split("\n")[0].split(" SQLSTATE:")[0]
        missing = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
        if missing in self._lost:
            return None
        hint = nearest(missing, self.views) if missing else ""
        step = self.plan.steps.get(path[1])
        if path[0] != "steps" or step is None or step.sql is None:
            return PlanFault(path, message, hint)
        first = self.definition.first_line_of((*path, "sql"))
        context = error.getQueryContext()
        if first is None or not context:
            return PlanFault((*path, "sql"), message, hint)
        return PlanFault((*path, "sql"), message, hint, first + _line_in(step.sql, context))


def _check_grows(name: str, rows: DataFrame) -> None:
    if not rows.isStreaming:
        raise BadRequest(
            f"it has no streaming input: {name} is a batch read",
            hint="Set stream = true in its Parquet source.",
        )


def _line_in(sql: str, context: Any) -> int:
    try:
        return sql[: context[0].startIndex()].count("\n")
    except PySparkException:  # some contexts have no position
        return 0


def resolve_path(path: str, folder: Path) -> str:
    """A path relative to the pipeline's folder, unless it is absolute or a URL."""
    return path if "://" in path or Path(path).is_absolute() else str(folder / path)
