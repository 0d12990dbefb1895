"""Rows made ready for their sink, and the query that takes them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.model.errors import BadRequest
from penstock.spark.pipeline.flow import seconds
from penstock.spark.pipeline.plan import Sink, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MESSAGE_COLUMNS = ("key", "value", "id", "headers", "topic")
DATE = "date"


def message_columns(rows: DataFrame, sink: Sink) -> DataFrame:
    """What a topic takes of rows: key, value, id, headers, topic; expressions of the sink go first."""
    from pyspark.sql import functions as F

    columns = []
    for name in MESSAGE_COLUMNS:
        told = getattr(sink, name) if name != "topic" else None
        if told is not None:
            columns.append(F.expr(told).alias(name))
        elif name in rows.columns and not (name == "topic" and sink.topic is not None):
            columns.append(F.col(name))
        elif name == "value":
            raise BadRequest(
                f"a topic takes a column value, and these rows have {', '.join(rows.columns)}",
                hint='Say value = "to_json(struct(*))" in the sink, or name the column so in SQL.',
            )
        elif name == "topic" and sink.topics:
            raise BadRequest("topics = true takes each row's column topic, and there is none")
    return rows.select(*columns)


def trigger_of(trigger: Trigger) -> dict[str, Any]:
    """As Spark's writer takes it; empty: the next batch as soon as there is something."""
    if trigger.available_now:
        return {"availableNow": True}
    if trigger.every is not None:
        return {"processingTime": f"{round(seconds(trigger.every) * 1000)} milliseconds"}
    return {}


def parquet_writer(rows: DataFrame, sink: Sink, path: str) -> DataStreamWriter:
    from pyspark.sql import functions as F

    by = list(sink.partition_by)
    if sink.by_date is not None:
        if sink.by_date not in rows.columns:
            raise BadRequest(f"by_date = {sink.by_date!r} is no column of these rows")
        rows = rows.withColumn(DATE, F.to_date(sink.by_date))
        by = [DATE, *by]
    writer = rows.writeStream.format("parquet").option("path", path)
    return writer.partitionBy(*by) if by else writer
