"""Repairs a dead letter."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def mend(rows: DataFrame) -> DataFrame:
    """Replaces the decimal comma in amounts; ``mended`` says whether the message is valid then."""
    text = F.regexp_replace(F.col("value").cast("string"), r"(\d),(\d)", "$1.$2")
    amount = F.get_json_object(text, "$.amount").try_cast("double")
    return rows.withColumn("value", text.cast("binary")).withColumn(
        "mended", F.coalesce(amount > 0, F.lit(False))
    )
