"""Rows made ready for their sink, and the writers of Spark for each kind of sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headpond.model.errors import BadRequest
from headpond.spark.checkpoints import OFFSETS, newest_batch
from headpond.spark.pipeline.plan import SinkTable

MESSAGE_COLUMNS = ("key", "value", "id", "headers", "topic")
ROWS_MAX = 20
CELL_MAX = 60
DATE = "date"
_TIMES = ("timestamp", "timestamp_ntz", "date", "string")


def message_columns(rows: DataFrame, sink: SinkTable) -> DataFrame:
    """The columns that a topic takes, from the expressions of the sink, else from the rows."""
    columns = []
    for name in MESSAGE_COLUMNS:
        expression = getattr(sink, name) if name != "topic" else None
        if expression is not None:
            columns.append(F.expr(expression).alias(name))
        elif name in rows.columns and not (name == "topic" and sink.topic is not None):
            columns.append(F.col(name))
        elif name == "value":
            raise BadRequest(
                f"a topic takes a column value, and these rows have {', '.join(rows.columns)}",
                hint='Set value = "to_json(struct(*))" in the sink, or name a column value in SQL.',
            )
        elif name == "topic" and sink.topics:
            raise BadRequest("topics = true takes each row's column topic, and there is none")
    if sink.shard is not None:
        columns.append(F.expr(sink.shard).alias("shard"))
    return rows.select(*columns)


def check_partitions(rows: DataFrame, sink: SinkTable) -> None:
    """Refuses partitions without a column, and a name that would stand for two columns."""
    types = {field.name.lower(): field.dataType.typeName() for field in rows.schema.fields}
    for name in sink.partition_by:
        if name.lower() not in types:
            raise BadRequest(f"partition_by has {name!r}, which is not a column of these rows")
    if sink.by_date is None:
        return
    kind = types.get(sink.by_date.lower())
    if kind not in _TIMES:
        actual = "not a column of these rows" if kind is None else f"of type {kind}"
        raise BadRequest(f"by_date = {sink.by_date!r} is {actual}", hint="Name a column of times.")
    if DATE in types and (sink.by_date.lower(), kind) != (DATE, "date"):
        raise BadRequest(
            f"the rows have a column {DATE}, and by_date makes one: theirs would be lost",
            hint="Give theirs another name in SQL before the sink.",
        )


def parquet_writer(rows: DataFrame, sink: SinkTable, path: str) -> DataStreamWriter:
    by = list(sink.partition_by)
    if sink.by_date is not None:
        rows = rows.withColumn(DATE, F.to_date(sink.by_date))
        by = [DATE, *by]
    writer = rows.writeStream.format("parquet").option("path", path)
    return writer.partitionBy(*by) if by else writer


def check_folder(spark: SparkSession, folder: str, checkpoint: str) -> None:
    """Refuses a folder of Parquet files that another query has written, or this one with another checkpoint.

    Spark's log of files is in the folder, and silently drops each batch whose number it has. A query
    writes a batch's offsets first, so a folder that is ahead of the checkpoint is not this query's.
    """
    written = newest_batch(spark, f"{folder.rstrip('/')}/_spark_metadata")
    begun = newest_batch(spark, f"{checkpoint}/{OFFSETS}")
    if written is not None and (begun is None or begun < written):
        known = "has none" if begun is None else f"knows {begun}"
        raise BadRequest(
            f"{folder} has batches up to {written}, and the checkpoint {checkpoint} {known}: "
            "Spark would drop rows as written already",
            hint="Name a new folder, or the checkpoint and the sink's name that the folder was written with.",
        )


def printer(name: str) -> Callable[[DataFrame, int], None]:
    def show(rows: DataFrame, batch: int) -> None:
        cached = rows.persist()
        try:
            count = cached.count()  # reads all rows: state that is read in part cannot commit
            some = cached.limit(ROWS_MAX).collect()
        finally:
            cached.unpersist()
        lines = [f"--- {name}, batch {batch}: {count:,} rows"]
        lines += ["  ".join(f"{column}={_cell(cell)}" for column, cell in row.asDict().items()) for row in some]
        lines += [f"… {count - len(some):,} more"] if count > len(some) else []
        print("\n".join(lines), flush=True)

    return show


def _cell(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    text = str(value)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"
