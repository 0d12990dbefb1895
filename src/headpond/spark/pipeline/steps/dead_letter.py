"""``dead_letter``: rows that fail a predicate go to a topic of their own, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.spark.pipeline.plan import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, STEP, ORIGIN = "headpond-reason", "headpond-step", "headpond-origin"


def dead_letter(name: str, rows: DataFrame, told: DeadLetter) -> tuple[DataFrame, DataFrame]:
    """The rows that go on, and the others as messages."""
    from pyspark.sql import functions as F

    keep = F.coalesce(F.expr(told.keep), F.lit(False))  # what cannot be judged is not good
    reason = F.expr(told.reason) if told.reason is not None else F.lit(f"not ({told.keep})")
    return rows.where(keep), rows.where(~keep).select(*_message(name, rows, reason))


def _message(name: str, rows: DataFrame, reason: Column) -> list[Column]:
    """A failed row as it came; one that is no message any more as JSON of all its columns."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    is_message = types.get("value") in ("binary", "string")
    value = F.col("value") if is_message else F.to_json(F.struct("*"))
    told = {REASON: reason.cast("string"), STEP: F.lit(name)}
    if types.get("identity") == "string":
        told[ORIGIN] = F.col("identity")
    added = F.create_map(*(part for key, text in told.items() for part in (F.lit(key), text)))
    added = F.map_filter(added, lambda _, text: text.isNotNull())
    headers = added
    if types.get("headers") == "map":
        before = F.coalesce(F.col("headers"), F.create_map().cast("map<string,string>"))
        kept = F.map_filter(before, lambda key, _: ~key.isin(*told))
        headers = F.map_concat(kept, added)
    # The row of a gap (``on_gap = "report"``) has no value, and a message has one: its headers tell what it is.
    value = F.coalesce(value.cast("binary"), F.lit(b""))
    columns = [value.alias("value"), headers.alias("headers")]
    columns += [F.col("key").cast("binary").alias("key")] if types.get("key") in ("binary", "string") else []
    columns += [F.col("id")] if types.get("id") == "string" else []
    return columns
