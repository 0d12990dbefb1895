"""What can be mended in a dead letter."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def mend(rows: DataFrame) -> DataFrame:
    """Amounts that were written with a decimal comma; ``mended`` tells whether that was all."""
    text = F.regexp_replace(F.col("value").cast("string"), r"(\d),(\d)", "$1.$2")
    amount = F.get_json_object(text, "$.amount").try_cast("double")
    return rows.withColumn("value", text.cast("binary")).withColumn(
        "mended", F.coalesce(amount > 0, F.lit(False))
    )
