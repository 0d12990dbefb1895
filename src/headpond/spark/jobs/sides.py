"""Both inputs of an audit in one form: a row a message, with what names it and what it is counted under.

==========  ============================================================================================
``k``       what names the message: its identity, its id, or what an expression makes of it
``part``    a number for (producer, topic, shard): small enough to be carried along, told by ``parts``
``sent``    when it was sent, in microseconds
``stored``  when it was stored, likewise
``topic``, ``shard``, ``entry``  where it stands
==========  ============================================================================================

A column that an input does not have is null: what needs it is then not told.
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
    """Raises if what names a message is of one type here and of another there: nothing would be the same."""
    kinds = [rows.schema["k"].dataType.simpleString() for rows in (sent, received)]
    if kinds[0] != kinds[1]:
        raise BadRequest(
            f"{by!r} is {kinds[0]} in what was sent and {kinds[1]} in what was received",
            hint=f"Cast it: --by 'cast({by} as string)'.",
        )


def parts(sent: DataFrame, received: DataFrame) -> DataFrame:
    """What each number of ``part`` stands for."""
    names = ("part", "producer", "topic", "shard")
    return sent.select(*names).union(received.select(*names)).dropDuplicates(["part"])


def _column(frame: DataFrame, name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    there = F.col(name) if name in frame.columns else F.lit(None)
    return there.cast(kind).alias(name)


def _micros(frame: DataFrame, name: str, alias: str) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(_column(frame, name, "timestamp")).alias(alias)
