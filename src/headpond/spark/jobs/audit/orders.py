"""Which orders held from the sent side to the received side.

A **route** leads from one ordered sender to one ordered place: from a block's shard (by identity) or a topic's
shard (otherwise) to a shard of the received topic. Positions are the sender's, read in the order of entries. As
in pipes/calculus, this counts **falls**, immediate **repeats**, and **skipped** messages (sent, missing, and
overtaken by a later one).

Spark sorts entries in chunks and then compares the ends of neighbouring chunks, so it spreads a shard of any
length over all cores and needs little memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headpond.pipes.calculus.orders import Order, held_orders, meet, order_of
from headpond.spark.jobs.audit.figures import IDENTITY, MISSING, NAMED
from headpond.spark.jobs.feed import summed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_BITS = 16
"""A chunk is so many entries, as a power of two."""
_ROW_BITS = 24
"""Of a position made of segment and row: a segment has at most 8 MiB, hence fewer rows than this counts."""
_SEGMENT, _ROW = (f"try_cast(try_element_at(split(k, '/'), {at}) as bigint)" for at in (3, 4))
_POSITION = f"{_SEGMENT} * {1 << _ROW_BITS} + {_ROW}"
"""Segment and row of an identity as one number, which rises in the producer's order."""
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
        origin = ("substring_index(k, '/', 2) as origin", f"{_POSITION} as at")
        arrivals = received.where(NAMED).selectExpr(*origin, "topic", "shard", "entry")
        lost = matched.where(MISSING).selectExpr(*origin)
    else:
        place = "concat_ws('/', topic, cast(shard as string)) as origin"
        source = parts.selectExpr("part as from_part", place)
        known = matched.where("sent > 0").join(F.broadcast(source), "from_part")
        arrivals = received.join(known.select("k", "origin", "from_entry"), "k").selectExpr(
            "origin", "from_entry as at", "topic", "shard", "entry"
        )
        lost = known.where(MISSING).selectExpr("origin", "from_entry as at")
    return _with_order(_steps(arrivals), lost)


def sum_up(routes: DataFrame) -> Orders:
    """All routes together."""
    counts = ("falls", "repeats", "skipped")
    rows = summed(routes, ("order",), "count(*) as routes", *(f"sum({name}) as {name}" for name in counts))
    found = {row["order"]: row for row in rows.collect()}
    together: Order | None = Order.ABSOLUTE
    for name in found:
        together = meet(together, None if name == "none" else Order(name))
    return Orders(
        held=[str(order) for order in held_orders(together)],
        routes=sum(row["routes"] for row in found.values()),
        by_order={name: row["routes"] for name, row in sorted(found.items())},
        **{name: sum(row[name] for row in found.values()) for name in counts},
    )


def _steps(arrivals: DataFrame) -> DataFrame:
    """The falls and repeats of each route, from one entry to the next."""
    route = ", ".join(_ROUTE)
    inside = f"over (partition by {route}, chunk order by entry, at)"
    stepped = arrivals.selectExpr("*", f"shiftright(entry, {CHUNK_BITS}) as chunk").selectExpr(
        *(*_ROUTE, "chunk", "at"),
        f"lag(at) {inside} as before",
        f"row_number() {inside} = 1 as is_first",
        f"lead(entry) {inside} is null as is_last",
    )
    chunks = summed(
        stepped,
        (*_ROUTE, "chunk"),
        "count(*) as received",
        "count_if(at < before) as falls",
        "count_if(at = before) as repeats",
        "max(at) as highest",
        "max(if(is_first, at, null)) as first_at",
        "max(if(is_last, at, null)) as last_at",
    )
    joined = chunks.selectExpr("*", f"lag(last_at) over (partition by {route} order by chunk) as last_before")
    return summed(
        joined,
        _ROUTE,
        "sum(received) as received",
        "max(highest) as highest",
        "sum(falls) + count_if(first_at < last_before) as falls",
        "sum(repeats) + count_if(first_at = last_before) as repeats",
    )


def _with_order(steps: DataFrame, lost: DataFrame) -> DataFrame:
    """Adds the skipped messages of each route, and its order."""
    from pyspark.sql import functions as F

    reached = summed(steps, ("origin",), "max(highest) as reached")
    passed = lost.join(F.broadcast(reached), "origin").where("at < reached")
    skipped = summed(passed, ("origin",), "count(*) as skipped")
    routes = steps.join(skipped, "origin", "left").fillna(0, "skipped")
    names = " ".join(
        f"when (repeats > 0) = {repeats} and (skipped > 0) = {gaps}"
        f" then '{order_of(falls=False, repeats=repeats, gaps=gaps)!s}'"
        for repeats in (False, True)
        for gaps in (False, True)
    )
    order = f"case when falls > 0 then 'none' {names} end as `order`"
    return routes.selectExpr(*_ROUTE, "received", "falls", "repeats", "skipped", order)
