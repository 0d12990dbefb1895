"""What became of each message: how often it was sent, how often it was received, when first.

Both sides are put under each other and summed by what names a message. Every sum is a number of fixed size, so
Spark adds them up in place and spills what does not fit; the rows themselves are never gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def match(sent: DataFrame, received: DataFrame) -> DataFrame:
    """A row a message; those without a name are one row whose ``k`` is null.

    ``copies`` is how often it was received. ``part`` and ``at`` (when it was sent) are those of the sent side
    where it was sent, else of the received one; ``from_part`` and ``from_entry`` are of the sent side alone,
    and null where it was sent from two shards: which of them it came from is not known.
    """
    from pyspark.sql import functions as F

    both = _tagged(sent, 1).union(_tagged(received, 0))
    was_sent = F.col("side") == 1
    sums = both.groupBy("k").agg(
        F.sum("side").alias("sent"),
        F.sum(1 - F.col("side")).alias("copies"),
        *(
            F.min(F.when(condition, F.col(column))).alias(alias)
            for alias, condition, column in (
                ("sent_us", was_sent, "sent"),
                ("from_part", was_sent, "part"),
                ("from_entry", was_sent, "entry"),
                ("place_low", was_sent, "place"),
                ("received_sent_us", ~was_sent, "sent"),
                ("received_part", ~was_sent, "part"),
                ("stored_us", ~was_sent, "stored"),
            )
        ),
        F.max(F.when(was_sent, F.col("place"))).alias("place_high"),
    )
    one_place = F.col("place_low") == F.col("place_high")
    return sums.select(
        "k",
        "sent",
        "copies",
        "sent_us",
        "stored_us",
        F.when(one_place, F.col("from_part")).alias("from_part"),
        F.when(one_place, F.col("from_entry")).alias("from_entry"),
        F.coalesce("from_part", "received_part").alias("part"),
        F.coalesce("sent_us", "received_sent_us").alias("at"),
    )


def _tagged(rows: DataFrame, tag: int) -> DataFrame:
    from pyspark.sql import functions as F

    place = F.xxhash64("topic", "shard").alias("place")
    return rows.select("k", "part", place, "sent", "stored", "entry", F.lit(tag).cast("bigint").alias("side"))


# --- what a row is ------------------------------------------------------------------------------------


def named() -> Column:
    from pyspark.sql import functions as F

    return F.col("k").isNotNull()


def missing() -> Column:
    from pyspark.sql import functions as F

    return named() & (F.col("sent") > 0) & (F.col("copies") == 0)


def arrived() -> Column:
    from pyspark.sql import functions as F

    return named() & (F.col("sent") > 0) & (F.col("copies") > 0)


def repeated() -> Column:
    from pyspark.sql import functions as F

    return named() & (F.col("sent") > 0) & (F.col("copies") > 1)


def stranger() -> Column:
    from pyspark.sql import functions as F

    return named() & (F.col("sent") == 0)
