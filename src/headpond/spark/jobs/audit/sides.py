"""Both inputs of an audit in one form, and the match of the two: one row per message.

==========  ============================================================================================
``k``       the name of the message: its identity, its id, or the value of an expression
``part``    a number for (producer, topic, shard), which ``parts`` resolves
``sent``    when it was sent, in microseconds
``stored``  when it was stored, likewise
``topic``, ``shard``, ``entry``  its position
==========  ============================================================================================

A column that an input lacks is null, and so are figures that need it. All conditions and sums are SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        "min(sent) filter (where side = 1) as sent_us",
        "min(part) filter (where side = 1) as from_part",
        "min(entry) filter (where side = 1) as from_entry",
        "min(place) filter (where side = 1) = max(place) filter (where side = 1) as one_place",
        "min(sent) filter (where side = 0) as received_sent_us",
        "min(part) filter (where side = 0) as received_part",
        "min(stored) filter (where side = 0) as stored_us",
    )
    return sums.selectExpr(
        *("k", "sent", "copies", "sent_us", "stored_us"),
        "if(one_place, from_part, null) as from_part",
        "if(one_place, from_entry, null) as from_entry",
        "coalesce(from_part, received_part) as part",
        "coalesce(sent_us, received_sent_us) as at",
    )
