"""``dedup``: each identity once, if its repeats come within a time of the first.

Spark remembers an identity until the watermark has passed it, and drops rows older than the watermark. With the
time at which a row was sent or stored that loses rows: all rows of a shard that lags behind others are late. So
the default is the time of arrival, one per micro-batch and stored in the checkpoint: it never goes back, so no
row is late, and a repeated batch has the same time.

Spark takes nulls as equal. A row without an id is no repeat of another without one, and passes.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from headpond.model.errors import BadRequest
from headpond.spark.pipeline.flow import seconds
from headpond.spark.pipeline.plan import ARRIVAL, Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARRIVED = "_headpond_arrived"
NAMELESS = "_headpond_nameless"
WATERMARK_KEY = "spark.watermarkDelayMs"
_NODE = "EventTimeWatermark"


def dedup(rows: DataFrame, step: Dedup) -> DataFrame:
    from pyspark.sql import functions as F

    names = [step.by] if isinstance(step.by, str) else list(step.by)
    no_name = reduce(or_, (F.col(name).isNull() for name in names))
    rows = rows.withColumn(NAMELESS, F.when(no_name, F.expr("uuid()")))
    by = [*names, NAMELESS]
    if not rows.isStreaming:
        return rows.dropDuplicates(by).drop(NAMELESS)
    if step.time != ARRIVAL:
        return _watermarked(rows, step).dropDuplicatesWithinWatermark(by).drop(NAMELESS)
    if has_watermark(rows):
        raise BadRequest(
            "the rows have a watermark already, and Spark takes one in a flow",
            hint="Name its column in dedup as `time`; rows that come later than it are then dropped as late.",
        )
    arrived = rows.withColumn(ARRIVED, F.current_timestamp())
    marked = arrived.withWatermark(ARRIVED, f"{round(seconds(step.within) * 1000)} milliseconds")
    return marked.dropDuplicatesWithinWatermark(by).drop(ARRIVED, NAMELESS)


def _watermarked(rows: DataFrame, step: Dedup) -> DataFrame:
    """Rows with a watermark on the column ``time``; an existing one must be long enough."""
    within_ms = round(seconds(step.within) * 1000)
    found = watermark_of(rows)
    if found is None:
        return rows.withWatermark(step.time, f"{within_ms} milliseconds")
    column, delay_ms = found
    if column != step.time or delay_ms < within_ms:
        raise BadRequest(
            f"the rows have a watermark of {delay_ms / 1000:g} s on {column}, and dedup wants one of "
            f"{within_ms / 1000:g} s on {step.time}",
            hint="There is one watermark in a flow: make both the same.",
        )
    return rows


def has_watermark(rows: DataFrame) -> bool:
    """Whether an earlier step set one, also on a column that is gone since."""
    return _NODE in rows._jdf.queryExecution().analyzed().toString()


def watermark_of(rows: DataFrame) -> tuple[str, int] | None:
    """The column with the watermark and its delay in milliseconds, where there is one."""
    for field in rows.schema.fields:
        if (delay_ms := field.metadata.get(WATERMARK_KEY)) is not None:
            return field.name, int(delay_ms)
    return None
