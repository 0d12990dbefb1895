"""``Pipeline``: a pipeline read from a file or built in Python, checked and started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadPipeline
from headpond.spark.pipeline.definition import Definition, Function
from headpond.spark.pipeline.plan import SECTIONS, Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headpond.spark.pipeline.run import PipelineRun


class Pipeline:
    """Sources, steps and sinks under a name. A step can take rows from the sources, and from steps above it."""

    def __init__(
        self,
        name: str,
        *,
        checkpoint: str | Path | None = None,
        url: str | None = None,
        token: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        given = {"name": name, "url": url, "token": token, "trigger": trigger}
        given["checkpoint"] = None if checkpoint is None else str(checkpoint)
        tables: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        tables["spark"] = {"conf": dict(conf or {})} | ({} if master is None else {"master": master})
        self.definition = Definition(tables | {section: {} for section in SECTIONS})

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Reads a file. Only ``plan``, ``check`` and ``start`` report faults in its tables."""
        pipeline = cls("")
        pipeline.definition = Definition.load(path)
        return pipeline

    def source(self, name: str, **table: Any) -> Pipeline:
        return self._add("sources", name, table)

    def step(self, name: str, *, python: str | Function | None = None, **table: Any) -> Pipeline:
        """``from_`` stands for ``from``; ``python`` may be the function itself."""
        if callable(python):
            self.definition.functions[name] = python
            python = f"{python.__module__}:{getattr(python, '__qualname__', 'function')}"
        return self._add("steps", name, table if python is None else table | {"python": python})

    def sink(self, name: str, **table: Any) -> Pipeline:
        return self._add("sinks", name, table)

    def _add(self, section: str, name: str, table: dict[str, Any]) -> Pipeline:
        tables = self.definition.tables[section]
        if name in tables:
            raise BadPipeline(f"{section} has {name} twice", hint="Choose a different name for each.")
        if "from_" in table:
            table["from"] = table.pop("from_")
        tables[name] = table
        return self

    def set_trigger(self, **trigger: Any) -> None:
        """Replaces the triggers of the pipeline and of all its sinks."""
        tables = self.definition.tables
        tables["trigger"] = trigger
        for sink in tables.get("sinks", {}).values():
            if isinstance(sink, dict):
                sink.pop("trigger", None)

    @property
    def plan(self) -> Plan:
        """The plan, with every check that needs no Spark; ``BadPipeline`` has every fault found."""
        return self.definition.plan

    def check(self, spark: SparkSession | None = None) -> None:
        """Builds all of it on Spark without running it; ``BadPipeline`` has every fault found."""
        from headpond.spark.pipeline.run import analyse

        analyse(self.definition, spark)

    def start(self, spark: SparkSession | None = None) -> PipelineRun:
        """Starts one query per sink."""
        from headpond.spark.pipeline.run import start

        return start(self.definition, spark)
