"""The messages that did not arrive exactly once: missing, repeated, and strangers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headpond.spark.jobs.audit.sides import missing, repeated, stranger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FATES = ("missing", "repeated", "strangers")
FIRST_MAX = 10


def odd_ones(matched: DataFrame, names: DataFrame) -> DataFrame:
    """A row a message that did not arrive exactly once; ``fate`` says what became of it."""
    from pyspark.sql import functions as F

    fate: Any = F.lit(None)
    for name, condition in zip(FATES, (missing(), repeated(), stranger()), strict=True):
        fate = F.when(condition, name).otherwise(fate)
    odd = matched.withColumn("fate", fate).where(F.col("fate").isNotNull())
    return odd.join(F.broadcast(names), "part", "left").select(
        "fate",
        F.col("k").alias("message"),
        "producer",
        "topic",
        "shard",
        "copies",
        F.timestamp_micros("at").alias("sent_at"),
        F.timestamp_micros("stored_us").alias("first_stored_at"),
    )


def first_of(odd: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first few of each fate, by when they were sent."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    number = F.row_number().over(Window.partitionBy("fate").orderBy("sent_at", "message"))
    rows = odd.withColumn("number", number).where(F.col("number") <= FIRST_MAX).toArrow()
    found: dict[str, list[dict[str, Any]]] = {}
    for row in (
        rows.sort_by([("fate", "ascending"), ("number", "ascending")]).drop_columns("number").to_pylist()
    ):
        found.setdefault(row.pop("fate"), []).append(row)
    return found


def write(odd: DataFrame, folder: Path) -> None:
    """All of them, a folder of Parquet files a fate; one that is empty has a file without rows."""
    place = folder / "odd"
    odd.write.partitionBy("fate").parquet(str(place))
    for fate in FATES:
        written = place / f"fate={fate}"
        if written.exists():
            written.rename(folder / fate)
        else:
            (folder / fate).mkdir()
            pq.write_table(_no_rows(odd), folder / fate / "none.parquet")
    for rest in place.iterdir():
        rest.unlink()
    place.rmdir()


def _no_rows(odd: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(odd.drop("fate").schema, timezone="UTC")
    return schema.empty_table()
