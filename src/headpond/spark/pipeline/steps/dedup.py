"""``dedup``: each identity once, as long as its repeats come within a time of the first.

Spark remembers what it saw until the watermark has passed it, and drops rows that are older than the watermark.
With the time at which a row was sent or stored that loses rows: a shard read behind the others is all late. So
unless told otherwise the time is that of the row's arrival, one a micro-batch and kept in the checkpoint: it
never goes back, so nothing is ever late, and a replayed batch has the same.

To Spark one null is as good as another. A row without an id is no repeat of another without one, and goes on.
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


def dedup(rows: DataFrame, told: Dedup) -> DataFrame:
    from pyspark.sql import functions as F

    names = [told.by] if isinstance(told.by, str) else list(told.by)
    no_name = reduce(or_, (F.col(name).isNull() for name in names))
    rows = rows.withColumn(NAMELESS, F.when(no_name, F.expr("uuid()")))
    by = [*names, NAMELESS]
    if not rows.isStreaming:
        return rows.dropDuplicates(by).drop(NAMELESS)
    if told.time != ARRIVAL:
        return _watermarked(rows, told).dropDuplicatesWithinWatermark(by).drop(NAMELESS)
    if has_watermark(rows):
        raise BadRequest(
            "the rows have a watermark already, and Spark takes one in a flow",
            hint="Name its column in dedup as `time`; rows that come later than it are then dropped as late.",
        )
    arrived = rows.withColumn(ARRIVED, F.current_timestamp())
    marked = arrived.withWatermark(ARRIVED, f"{round(seconds(told.within) * 1000)} milliseconds")
    return marked.dropDuplicatesWithinWatermark(by).drop(ARRIVED, NAMELESS)


def _watermarked(rows: DataFrame, told: Dedup) -> DataFrame:
    """Rows with a watermark on the time that was told; one that is there must be long enough."""
    within_ms = round(seconds(told.within) * 1000)
    found = watermark_of(rows)
    if found is None:
        return rows.withWatermark(told.time, f"{within_ms} milliseconds")
    column, delay_ms = found
    if column != told.time or delay_ms < within_ms:
        raise BadRequest(
            f"the rows have a watermark of {delay_ms / 1000:g} s on {column}, and dedup wants one of "
            f"{within_ms / 1000:g} s on {told.time}",
            hint="There is one watermark in a flow: make both the same.",
        )
    return rows


def has_watermark(rows: DataFrame) -> bool:
    """Whether some step before has one, also on a column that is gone since."""
    return _NODE in rows._jdf.queryExecution().analyzed().toString()


def watermark_of(rows: DataFrame) -> tuple[str, int] | None:
    """The column with the watermark and its delay in milliseconds, where there is one."""
    for field in rows.schema.fields:
        if (delay_ms := field.metadata.get(WATERMARK_KEY)) is not None:
            return field.name, int(delay_ms)
    return None
