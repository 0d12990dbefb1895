"""Which orders held from the sent side to the received side.

A **route** leads from one ordered sender to one ordered place: from a block's shard (by identity) or a topic's
shard (otherwise) to a shard of the received topic. Positions are the sender's, read in the order of entries. As
in pipes/calculus, this counts **falls**, immediate **repeats**, and **skipped** messages (sent, missing, and
overtaken by a later one).

Spark sorts entries in chunks and then compares the ends of neighbouring chunks, so it spreads a shard of any
length over all cores and needs little memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headpond.pipes.calculus.orders import Order, held_orders, meet, order_of
from headpond.spark.jobs.audit.sides import IDENTITY, missing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHUNK_BITS = 16
"""A chunk is so many entries, as a power of two."""
_ROW_BITS = 24
"""Of a position made of segment and row: a segment has at most 8 MiB, hence fewer rows than this counts."""
_ROUTE = ("origin", "topic", "shard")


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders that held on every route, and the events that broke stronger ones."""

    held: list[str]
    """All orders that held, the weakest first; none if some route fell."""
    routes: int
    by_order: dict[str, int]
    """How many routes had which order as their strongest; ``none`` if none."""
    falls: int
    repeats: int
    skipped: int


def can_tell(by: str, columns: tuple[list[str], list[str]]) -> bool:
    """Whether the sides have positions; ``columns`` are those of the sent and of the received side."""
    there = {"topic", "shard", "entry"}
    return there <= set(columns[1]) and (by == IDENTITY or there <= set(columns[0]))


def routes_of(received: DataFrame, matched: DataFrame, parts: DataFrame, by: str) -> DataFrame:
    """One row per route: its counts, and its strongest order."""
    from pyspark.sql import functions as F

    if by == IDENTITY:
        arrivals = received.where(F.col("k").isNotNull()).select(
            _block_and_shard().alias("origin"), "topic", "shard", "entry", _position().alias("at")
        )
        lost = matched.where(missing()).select(_block_and_shard().alias("origin"), _position().alias("at"))
    else:
        source = parts.select(F.col("part").alias("from_part"), _place().alias("origin"))
        known = matched.where(F.col("sent") > 0).join(F.broadcast(source), "from_part")
        arrivals = received.join(known.select("k", "origin", "from_entry"), "k").select(
            "origin", "topic", "shard", "entry", F.col("from_entry").alias("at")
        )
        lost = known.where(missing()).select("origin", F.col("from_entry").alias("at"))
    return _with_order(_steps(arrivals), lost)


def sum_up(routes: DataFrame) -> Orders:
    """All routes together."""
    from pyspark.sql import functions as F

    rows = routes.groupBy("order").agg(
        F.count("*").alias("routes"),
        *(F.sum(name).alias(name) for name in ("falls", "repeats", "skipped")),
    )
    found = {row["order"]: row for row in rows.collect()}
    together: Order | None = Order.ABSOLUTE
    for name in found:
        together = meet(together, None if name == "none" else Order(name))
    return Orders(
        held=[str(order) for order in held_orders(together)],
        routes=sum(row["routes"] for row in found.values()),
        by_order={name: row["routes"] for name, row in sorted(found.items())},
        **{name: sum(row[name] for row in found.values()) for name in ("falls", "repeats", "skipped")},
    )


# --- positions ----------------------------------------------------------------------------------------


def _block_and_shard() -> Column:
    from pyspark.sql import functions as F

    return F.substring_index("k", "/", 2)


def _position() -> Column:
    """Segment and row of an identity as one number, which rises in the producer's order."""
    from pyspark.sql import functions as F

    pieces = F.split("k", "/")
    segment, row = (F.try_element_at(pieces, F.lit(at)).try_cast("bigint") for at in (3, 4))
    return segment * (1 << _ROW_BITS) + row


def _place() -> Column:
    from pyspark.sql import functions as F

    return F.concat_ws("/", F.col("topic"), F.col("shard").cast("string"))


# --- steps --------------------------------------------------------------------------------------------


def _steps(arrivals: DataFrame) -> DataFrame:
    """The falls and repeats of each route, from one entry to the next."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = arrivals.withColumn("chunk", F.shiftright("entry", CHUNK_BITS))
    inside = Window.partitionBy(*_ROUTE, "chunk").orderBy("entry", "at")
    before = F.lag("at").over(inside)
    stepped = rows.select(
        *_ROUTE,
        "chunk",
        "at",
        (F.col("at") < before).cast("int").alias("falls"),
        (F.col("at") == before).cast("int").alias("repeats"),
        F.row_number().over(inside).alias("number"),
        F.lead("entry").over(inside).isNull().alias("last"),
    )
    chunks = stepped.groupBy(*_ROUTE, "chunk").agg(
        F.count("*").alias("received"),
        F.sum("falls").alias("falls"),
        F.sum("repeats").alias("repeats"),
        F.max("at").alias("highest"),
        F.max(F.when(F.col("number") == 1, F.col("at"))).alias("first"),
        F.max(F.when(F.col("last"), F.col("at"))).alias("end"),
    )
    over = Window.partitionBy(*_ROUTE).orderBy("chunk")
    end_before = F.lag("end").over(over)
    joined = chunks.select(
        *_ROUTE,
        "received",
        "highest",
        *(F.coalesce(F.col(name), F.lit(0)).alias(name) for name in ("falls", "repeats")),
        F.coalesce((F.col("first") < end_before).cast("int"), F.lit(0)).alias("falls_between"),
        F.coalesce((F.col("first") == end_before).cast("int"), F.lit(0)).alias("repeats_between"),
    )
    return joined.groupBy(*_ROUTE).agg(
        F.sum("received").alias("received"),
        F.max("highest").alias("highest"),
        F.sum(F.col("falls") + F.col("falls_between")).alias("falls"),
        F.sum(F.col("repeats") + F.col("repeats_between")).alias("repeats"),
    )


def _with_order(steps: DataFrame, lost: DataFrame) -> DataFrame:
    """Adds the skipped messages of each route, and its order."""
    from pyspark.sql import functions as F

    reached = steps.groupBy("origin").agg(F.max("highest").alias("reached"))
    passed = lost.join(F.broadcast(reached), "origin").where(F.col("at") < F.col("reached"))
    skipped = passed.groupBy("origin").agg(F.count("*").alias("skipped"))
    routes = steps.join(skipped, "origin", "left").withColumn("skipped", F.coalesce("skipped", F.lit(0)))
    falls, repeats, gaps = (F.col(name) > 0 for name in ("falls", "repeats", "skipped"))
    order: Any = F.lit("none")
    for has_repeats in (False, True):
        for has_gaps in (False, True):
            name = order_of(falls=False, repeats=has_repeats, gaps=has_gaps)
            order = F.when(~falls & (repeats == has_repeats) & (gaps == has_gaps), str(name)).otherwise(order)
    return routes.select(*_ROUTE, "received", "falls", "repeats", "skipped", order.alias("order"))
