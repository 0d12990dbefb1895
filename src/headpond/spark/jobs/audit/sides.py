"""Both inputs of an audit in one form, and the match of the two: one row per message.

==========  ============================================================================================
``k``       the name of the message: its identity, its id, or the value of an expression
``part``    a number for (producer, topic, shard), which ``parts`` resolves
``sent``    when it was sent, in microseconds
``stored``  when it was stored, likewise
``topic``, ``shard``, ``entry``  its position
==========  ============================================================================================

A column that an input lacks is null, and so are figures that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.model.errors import BadRequest
from headpond.spark.jobs.feed import need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


IDENTITY = "identity"
ID = "id"
_KEYS = ("string", "binary", "int", "bigint", "smallint", "tinyint", "date", "timestamp")


def side(frame: DataFrame, by: str, what: str) -> DataFrame:
    """The rows of one input; ``by`` is ``identity``, ``id``, or an expression of SQL over its columns."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if by in (IDENTITY, ID):
        need_columns(frame, (by,), what)
    try:
        rows = frame.select(
            F.expr(by).alias("k"),
            _column(frame, "producer", "string"),
            _column(frame, "topic", "string"),
            _column(frame, "shard", "int"),
            _column(frame, "entry", "bigint"),
            _micros(frame, "sent_at", "sent"),
            _micros(frame, "stored_at", "stored"),
        )
    except AnalysisException as error:
        raise BadRequest(
            f"{what}: {by!r} is no expression over {', '.join(frame.columns)}",
            hint="Take identity, id, or an expression of SQL like headers['headpond-origin'].",
        ) from error
    kind = rows.schema["k"].dataType.simpleString()
    if kind not in _KEYS:
        raise BadRequest(f"{what}: {by!r} is of type {kind}, and a message is named by text, bytes or a number")
    return rows.withColumn("part", F.xxhash64("producer", "topic", "shard"))


def same_kind(sent: DataFrame, received: DataFrame, by: str) -> None:
    """Raises if the names of messages have different types on the two sides: none would match."""
    kinds = [rows.schema["k"].dataType.simpleString() for rows in (sent, received)]
    if kinds[0] != kinds[1]:
        raise BadRequest(
            f"{by!r} is {kinds[0]} on the sent side and {kinds[1]} on the received side",
            hint=f"Cast it: --by 'cast({by} as string)'.",
        )


def parts(sent: DataFrame, received: DataFrame) -> DataFrame:
    """The producer, topic and shard of each ``part``."""
    names = ("part", "producer", "topic", "shard")
    return sent.select(*names).union(received.select(*names)).dropDuplicates(["part"])


def _column(frame: DataFrame, name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    there = F.col(name) if name in frame.columns else F.lit(None)
    return there.cast(kind).alias(name)


def _micros(frame: DataFrame, name: str, alias: str) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(_column(frame, name, "timestamp")).alias(alias)


def match(sent: DataFrame, received: DataFrame) -> DataFrame:
    """One row per message: how often it was sent and received, and when first.

    Messages without a name are one row whose ``k`` is null.

    This is a union of both sides, summed by the name of a message. Every sum is a number of fixed size, so
    Spark adds them up in place and spills to disk; no process gathers the rows.

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
