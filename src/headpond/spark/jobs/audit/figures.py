"""The figures of an audit: sums and shares, in all and by producer, shard and time.

All come from **cells**: counts of messages of one part and time window with the same copies and latency bucket.
Buckets grow by 1 % each, so a percentile has the right rank and is exact to half a percent, and the number of
buckets does not grow with the number of messages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headpond.spark.jobs.audit.sides import arrived, missing, named, repeated, stranger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

COPIES_MAX = 100
"""Messages that came more often count as having come so often."""
GROUPS_MAX = 50_000
"""Producers, shards and time windows together; the driver gathers the figures of each."""
KINDS: dict[str, tuple[str, ...]] = {
    "all": (),
    "producer": ("producer",),
    "shard": ("topic", "shard"),
    "window": ("window",),
    "times": ("times",),
}
_NAMES = ("producer", "topic", "shard", "window", "times")
_GROWTH = math.log(1.01)
_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
_SUMS = (
    "sent",
    "received",
    "copies",
    "unique",
    "missing",
    "repeated",
    "strangers",
    "stranger_copies",
    "sent_again",
    "sent_unnamed",
    "received_unnamed",
)


class AuditLatency(msgspec.Struct, frozen=True, kw_only=True):
    """From sent to first stored, in seconds; percentiles are within half a percent, the ends exact."""

    messages: int
    min_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float
    max_s: float
    negative: int
    """How many were stored before they were sent, by two clocks that differ."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and shares of the messages sent and received."""

    sent: int
    """Different messages sent."""
    received: int
    """All rows received: copies of messages sent, copies of strangers, and rows without a name."""
    copies: int
    """Rows received of messages that were sent."""
    unique: int
    """Messages sent that were received at least once."""
    missing: int
    repeated: int
    """Messages received more than once."""
    strangers: int
    """Messages received that were never sent."""
    stranger_copies: int
    sent_again: int
    """Rows of the sent side that name a message a second time."""
    sent_unnamed: int
    received_unnamed: int
    """Rows whose name is null, which cannot be compared."""
    R: float | None
    """unique / sent; none where nothing was sent."""
    UR: float | None
    """unique / copies; none where nothing was received."""
    copies_mean: float | None
    latency: AuditLatency | None


class AuditPart(Figures, frozen=True, kw_only=True):
    """The figures of one producer, shard or time window."""

    name: dict[str, Any]


def cells_of(matched: DataFrame, window_s: float) -> DataFrame:
    """Messages counted by part, time window, copies and latency."""
    from pyspark.sql import functions as F

    window_us = round(window_s * 1_000_000)
    latency = F.when(arrived(), F.col("stored_us") - F.col("sent_us"))
    bucket = F.when(latency > 0, F.floor(F.log(latency) / _GROWTH)).when(latency.isNotNull(), -1)
    rows = matched.withColumns(
        {
            "window": F.col("at") - F.pmod("at", F.lit(window_us)),
            "latency": latency,
            "bucket": bucket.cast("int"),
            "times": F.least("copies", F.lit(COPIES_MAX)).cast("int"),
        }
    )

    def count(condition: Any, amount: Any = 1) -> Any:
        return F.sum(F.when(condition, amount).otherwise(0))

    return rows.groupBy("part", "window", "times", "bucket").agg(
        count(named() & (F.col("sent") > 0)).alias("sent"),
        F.sum("copies").alias("received"),
        count(arrived(), F.col("copies")).alias("copies"),
        count(arrived()).alias("unique"),
        count(missing()).alias("missing"),
        count(repeated()).alias("repeated"),
        count(stranger()).alias("strangers"),
        count(stranger(), F.col("copies")).alias("stranger_copies"),
        count(named() & (F.col("sent") > 1), F.col("sent") - 1).alias("sent_again"),
        count(~named(), F.col("sent")).alias("sent_unnamed"),
        count(~named(), F.col("copies")).alias("received_unnamed"),
        count(latency.isNotNull()).alias("timed"),
        count(latency < 0).alias("negative"),
        F.min("latency").alias("latency_min"),
        F.max("latency").alias("latency_max"),
    )


def groups_of(cells: DataFrame, names: DataFrame) -> pa.Table:
    """One row per group of every kind, with all its sums, shares and percentiles.

    ``kind`` says which group: ``all``, ``producer``, ``shard``, ``window`` or ``times`` (how often they came).
    One query makes all of them, since most of the time of a small audit is the planning of its queries.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    named_cells = cells.join(F.broadcast(names), "part", "left")
    sets = [[*map(F.col, columns), F.col("bucket")] for columns in KINDS.values()]
    counted = named_cells.groupingSets(sets, *map(F.col, (*_NAMES, "bucket"))).agg(
        F.grouping_id().alias("grouping"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*_SUMS, "timed", "negative")),
        F.min("latency_min").alias("latency_min"),
        F.max("latency_max").alias("latency_max"),
    )
    group = ("grouping", *_NAMES)
    whole = Window.partitionBy(*group)
    upto = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counted.withColumns({"upto": F.sum("timed").over(upto), "all": F.sum("timed").over(whole)})
    found = ranked.groupBy(*group).agg(
        *(F.sum(name).alias(name) for name in (*_SUMS, "timed", "negative")),
        F.min("latency_min").alias("latency_min"),
        F.max("latency_max").alias("latency_max"),
        *(
            F.min(F.when(F.col("upto") >= F.ceil(F.col("all") * share), F.col("bucket"))).alias(name)
            for name, share in _PERCENTILES
        ),
    )
    return _shares(found).limit(GROUPS_MAX + 1).toArrow().sort_by([(name, "ascending") for name in _NAMES])


def _shares(sums: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    kind: Any = F.lit(None)
    for name, columns in KINDS.items():
        kind = F.when(F.col("grouping") == _grouping_id(columns), name).otherwise(kind)
    sent, copies, unique = F.col("sent"), F.col("copies"), F.col("unique")
    return sums.select(
        kind.alias("kind"),
        *_NAMES,
        *_SUMS,
        F.when(sent > 0, unique / sent).alias("R"),
        F.when(copies > 0, unique / copies).alias("UR"),
        F.when(sent > 0, copies / sent).alias("copies_mean"),
        F.col("timed").alias("latency_messages"),
        F.col("negative").alias("latency_negative"),
        (F.col("latency_min") / 1e6).alias("latency_min_s"),
        *(_seconds(name) for name, _ in _PERCENTILES),
        (F.col("latency_max") / 1e6).alias("latency_max_s"),
    )


def _grouping_id(columns: Sequence[str]) -> int:
    """Spark's number of a grouping set: one bit per column, set if the set lacks it; all have the bucket."""
    return sum(
        1 << at for at, name in enumerate(reversed((*_NAMES, "bucket"))) if name not in (*columns, "bucket")
    )


def _seconds(name: str) -> Any:
    """The middle of a bucket, within the measured minimum and maximum."""
    from pyspark.sql import functions as F

    middle = F.when(F.col(name) < 0, F.col("latency_min")).otherwise(F.exp((F.col(name) + 0.5) * _GROWTH))
    inside = F.least(F.greatest(middle, F.col("latency_min")), F.col("latency_max"))
    return (F.when(F.col(name).isNotNull(), inside) / 1e6).alias(f"latency_{name}_s")


# --- as values ----------------------------------------------------------------------------------------


def of_kind(groups: pa.Table, kind: str) -> pa.Table:
    """The groups of one kind, with the columns that name them and their figures."""
    import pyarrow.compute as pc

    names = [name for name in groups.column_names if name not in ("kind", *_NAMES) or name in KINDS[kind]]
    return groups.filter(pc.equal(groups["kind"], kind)).select(names)


def figures_of(groups: pa.Table) -> Figures:
    """The figures of all messages."""
    return Figures(**_fields(of_kind(groups, "all").to_pylist()[0]))


def parts_of(groups: pa.Table, kind: str) -> list[AuditPart]:
    rows = of_kind(groups, kind).to_pylist()
    return [AuditPart(name={name: row[name] for name in KINDS[kind]}, **_fields(row)) for row in rows]


def arrivals_of(groups: pa.Table) -> dict[str, int]:
    """How many of the messages sent came 0, 1, 2, … times."""
    return {str(row["times"]): row["sent"] for row in of_kind(groups, "times").to_pylist() if row["sent"]}


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    ends = ("min", *(name for name, _ in _PERCENTILES), "max")
    latency = None
    if row["latency_messages"]:
        latency = AuditLatency(
            messages=row["latency_messages"],
            negative=row["latency_negative"],
            **{f"{name}_s": row[f"latency_{name}_s"] for name in ends},
        )
    return {name: row[name] for name in (*_SUMS, "R", "UR", "copies_mean")} | {"latency": latency}
