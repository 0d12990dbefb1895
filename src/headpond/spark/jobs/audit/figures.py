"""The table of an audit, one row per message, and its figures: in all and by producer, shard and time.

Both inputs have one form:

==========  ============================================================================================
``k``       the name of the message: its identity, its id, or the value of an expression
``part``    a number for (producer, topic, shard), which ``parts`` resolves
``sent``    when it was sent, in microseconds
``stored``  when it was stored, likewise
``topic``, ``shard``, ``entry``  its position
==========  ============================================================================================

A column that an input lacks is null, and so are figures that need it. All conditions and sums are SQL.

The figures come from **cells**: counts of messages of one part and time window with the same copies and latency
bucket. Buckets grow by 1 % each, so a percentile has the right rank and is exact to half a percent, and the
number of buckets does not grow with the number of messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadRequest
from headpond.spark.jobs.feed import need_columns, summed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


IDENTITY = "identity"
ID = "id"
_KEYS = ("string", "binary", "int", "bigint", "smallint", "tinyint", "date", "timestamp")

NAMED = "k is not null"
SENT = f"({NAMED} and sent > 0)"
ARRIVED = f"({SENT} and copies > 0)"
MISSING = f"({SENT} and copies = 0)"
REPEATED = f"({SENT} and copies > 1)"
STRANGER = f"({NAMED} and sent = 0)"
"""What a row of the match is."""
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


_SUMS = tuple(field.name for field in msgspec.structs.fields(Figures) if field.type is int)


class AuditPart(Figures, frozen=True, kw_only=True):
    """The figures of one producer, shard or time window."""

    name: dict[str, Any]


# --- the match --------------------------------------------------------------------------------------


def side(frame: DataFrame, by: str, what: str) -> DataFrame:
    """The rows of one input; ``by`` is ``identity``, ``id``, or an expression of SQL over its columns."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if by in (IDENTITY, ID):
        need_columns(frame, (by,), what)

    def column(name: str, kind: str) -> str:
        return f"cast({name if name in frame.columns else 'null'} as {kind})"

    try:
        rows = frame.select(
            F.expr(by).alias("k"),
            *(
                F.expr(f"{column(name, kind)} as {name}")
                for name, kind in (
                    ("producer", "string"),
                    ("topic", "string"),
                    ("shard", "int"),
                    ("entry", "bigint"),
                )
            ),
            F.expr(f"unix_micros({column('sent_at', 'timestamp')}) as sent"),
            F.expr(f"unix_micros({column('stored_at', 'timestamp')}) as stored"),
        )
    except AnalysisException as error:
        raise BadRequest(
            f"{what}: {by!r} is not an expression over {', '.join(frame.columns)}",
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


def match(sent: DataFrame, received: DataFrame) -> DataFrame:
    """One row per message: how often it was sent and received, and when first.

    Messages without a name are one row whose ``k`` is null.

    This is a union of both sides, summed by the name of a message. Every sum is a number of fixed size, so
    Spark adds them up in place and spills to disk; no process gathers the rows.

    ``copies`` is how often it was received. ``part`` and ``at`` (when it was sent) are those of the sent side
    where it was sent, else of the received one; ``from_part`` and ``from_entry`` are of the sent side alone,
    and null where it was sent from two shards: which of them it came from is not known.
    """
    sides = [
        rows.selectExpr(
            *("k", "part", "xxhash64(topic, shard) as place", "sent", "stored", "entry"),
            f"cast({tag} as bigint) as side",
        )
        for rows, tag in ((sent, 1), (received, 0))
    ]
    sums = summed(
        sides[0].union(sides[1]),
        ("k",),
        "sum(side) as sent",
        "sum(1 - side) as copies",
        "min(if(side = 1, sent, null)) as sent_us",
        "min(if(side = 1, part, null)) as from_part",
        "min(if(side = 1, entry, null)) as from_entry",
        "min(if(side = 1, place, null)) = max(if(side = 1, place, null)) as one_place",
        "min(if(side = 0, sent, null)) as received_sent_us",
        "min(if(side = 0, part, null)) as received_part",
        "min(if(side = 0, stored, null)) as stored_us",
    )
    return sums.selectExpr(
        *("k", "sent", "copies", "sent_us", "stored_us"),
        "if(one_place, from_part, null) as from_part",
        "if(one_place, from_entry, null) as from_entry",
        "coalesce(from_part, received_part) as part",
        "coalesce(sent_us, received_sent_us) as at",
    )


# --- sums -------------------------------------------------------------------------------------------


def cells_of(matched: DataFrame, window_s: float) -> DataFrame:
    """Messages counted by part, time window, copies and latency."""
    window_us = round(window_s * 1_000_000)
    rows = matched.selectExpr(
        "*",
        f"at - pmod(at, {window_us}) as window",
        f"if({ARRIVED}, stored_us - sent_us, null) as latency",
        f"cast(least(copies, {COPIES_MAX}) as int) as times",
    ).selectExpr(
        "*",
        f"cast(if(latency <= 0, -1, floor(ln(latency) / {_GROWTH!r}D)) as int) as bucket",
    )
    return summed(
        rows,
        ("part", "window", "times", "bucket"),
        f"count_if({SENT}) as sent",
        "sum(copies) as received",
        f"sum(if({ARRIVED}, copies, 0)) as copies",
        f"count_if({ARRIVED}) as `unique`",
        f"count_if({MISSING}) as missing",
        f"count_if({REPEATED}) as repeated",
        f"count_if({STRANGER}) as strangers",
        f"sum(if({STRANGER}, copies, 0)) as stranger_copies",
        f"sum(if({NAMED} and sent > 1, sent - 1, 0)) as sent_again",
        f"sum(if({NAMED}, 0, sent)) as sent_unnamed",
        f"sum(if({NAMED}, 0, copies)) as received_unnamed",
        "count(latency) as timed",
        "count_if(latency < 0) as negative",
        "min(latency) as latency_min",
        "max(latency) as latency_max",
    )


def groups_of(cells: DataFrame, names: DataFrame) -> pa.Table:
    """One row per group of every kind, with all its sums, shares and percentiles.

    ``kind`` says which group: ``all``, ``producer``, ``shard``, ``window`` or ``times`` (how often they came).
    One query makes all of them, since most of the time of a small audit is the planning of its queries.
    """
    from pyspark.sql import functions as F

    group = ("grouping", *_NAMES)
    sums = (
        *(f"sum(`{name}`) as `{name}`" for name in (*_SUMS, "timed", "negative")),
        "min(latency_min) as latency_min",
        "max(latency_max) as latency_max",
    )
    counted = (
        cells.join(F.broadcast(names), "part", "left")
        .groupingSets([[*columns, "bucket"] for columns in KINDS.values()], *_NAMES, "bucket")
        .agg(F.expr("grouping_id() as grouping"), *map(F.expr, sums))
    )
    whole = f"partition by {', '.join(group)}"
    ranked = counted.selectExpr(
        "*",
        f"sum(timed) over ({whole} order by bucket rows unbounded preceding) as upto",
        f"sum(timed) over ({whole}) as timed_all",
    )
    ranks = (
        f"min(bucket) filter (where upto >= ceil(timed_all * {share}D)) as {name}"
        for name, share in _PERCENTILES
    )
    found = summed(ranked, group, *sums, *ranks)
    kinds = " ".join(f"when {_grouping_id(columns)} then '{name}'" for name, columns in KINDS.items())
    shares = found.selectExpr(
        f"case grouping {kinds} end as kind",
        *_NAMES,
        *(f"`{name}`" for name in _SUMS),
        "if(sent > 0, `unique` / sent, null) as R",
        "if(copies > 0, `unique` / copies, null) as UR",
        "if(sent > 0, copies / sent, null) as copies_mean",
        "timed as latency_messages",
        "negative as latency_negative",
        "latency_min / 1e6D as latency_min_s",
        *(_seconds(name) for name, _ in _PERCENTILES),
        "latency_max / 1e6D as latency_max_s",
    )
    return shares.limit(GROUPS_MAX + 1).toArrow().sort_by([(name, "ascending") for name in _NAMES])


def _grouping_id(columns: Sequence[str]) -> int:
    """Spark's number of a grouping set: one bit per column, set if the set lacks it; all have the bucket."""
    return sum(
        1 << at for at, name in enumerate(reversed((*_NAMES, "bucket"))) if name not in (*columns, "bucket")
    )


def _seconds(name: str) -> str:
    """The middle of a bucket, within the measured minimum and maximum."""
    middle = f"if({name} < 0, latency_min, exp(({name} + 0.5D) * {_GROWTH!r}D))"
    return (
        f"if({name} is null, null, least(greatest({middle}, latency_min), latency_max)) / 1e6D"
        f" as latency_{name}_s"
    )


# --- as values ----------------------------------------------------------------------------------------


def of_kind(groups: pa.Table, kind: str) -> pa.Table:
    """The groups of one kind, with the columns that name them and their figures."""
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
