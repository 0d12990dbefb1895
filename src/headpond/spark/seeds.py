"""``headpond sim run --spark``: the plans of a simulation, spread over the tasks of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headpond.sim.plan import Plan
from headpond.sim.runner import PLANS_PER_TASK, Scoreboard, run_plans, run_some
from headpond.sim.world import Outcome
from headpond.spark.jobs.work import SETTINGS, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("pickled", pa.binary())])


def run_on_spark(plans: list[Plan], on_progress: Callable[[Scoreboard], None]) -> Scoreboard:
    """Runs plans in the session of this process, or in a new one that it stops afterwards."""
    return run_job("sim run", lambda work: run_plans(plans, _spread(work.spark), on_progress), conf=SETTINGS)


def _spread(spark: SparkSession) -> Callable[[list[Plan]], Iterator[list[Outcome]]]:
    from pyspark.sql.pandas.types import from_arrow_schema

    def spread(plans: list[Plan]) -> Iterator[list[Outcome]]:
        if not plans:
            return
        table = _table(plans)
        tasks = -(-len(plans) // PLANS_PER_TASK)
        rows = spark.createDataFrame(table).repartition(tasks)
        found = rows.mapInArrow(_run_rows, from_arrow_schema(SCHEMA)).toArrow()
        yield [pickle.loads(row) for row in found["pickled"].to_pylist()]

    return spread


def _run_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        outcomes = run_some(pickle.loads(row) for row in batch["pickled"].to_pylist())
        yield from _table(outcomes).to_batches()


def _table(objects: Iterable[object]) -> pa.Table:
    return pa.table({"pickled": [pickle.dumps(each) for each in objects]}, schema=SCHEMA)
