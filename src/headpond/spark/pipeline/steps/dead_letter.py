"""``dead_letter``: rows that fail a predicate go to a topic, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.spark.pipeline.plan import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, STEP, ORIGIN = "headpond-reason", "headpond-step", "headpond-origin"


def dead_letter(name: str, rows: DataFrame, step: DeadLetter) -> tuple[DataFrame, DataFrame]:
    """The rows that pass, and the others as messages."""
    from pyspark.sql import functions as F

    keep = F.coalesce(F.expr(step.keep), F.lit(False))  # null fails
    reason = F.expr(step.reason) if step.reason is not None else F.lit(f"not ({step.keep})")
    return rows.where(keep), rows.where(~keep).select(*_message(name, rows, reason))


def _message(name: str, rows: DataFrame, reason: Column) -> list[Column]:
    """A failed row unchanged; a row without a message's value as JSON of all its columns."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    is_message = types.get("value") in ("binary", "string")
    value = F.col("value") if is_message else F.to_json(F.struct("*"))
    texts = {REASON: reason.cast("string"), STEP: F.lit(name)}
    if types.get("identity") == "string":
        texts[ORIGIN] = F.col("identity")
    added = F.create_map(*(part for key, text in texts.items() for part in (F.lit(key), text)))
    added = F.map_filter(added, lambda _, text: text.isNotNull())
    headers = added
    if types.get("headers") == "map":
        before = F.coalesce(F.col("headers"), F.create_map().cast("map<string,string>"))
        others = F.map_filter(before, lambda key, _: ~key.isin(*texts))
        headers = F.map_concat(others, added)
    # The row of a gap (``on_gap = "report"``) has no value, but a message needs one: its headers describe the
    # gap.
    value = F.coalesce(value.cast("binary"), F.lit(b""))
    columns = [value.alias("value"), headers.alias("headers")]
    columns += [F.col("key").cast("binary").alias("key")] if types.get("key") in ("binary", "string") else []
    columns += [F.col("id")] if types.get("id") == "string" else []
    return columns
