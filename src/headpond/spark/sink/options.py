"""The options of a sink, read and checked before it asks a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.model.errors import BadRequest
from headpond.model.names import TopicName
from headpond.spark.connection import CONNECTION_OPTIONS, NodeConnection, read_connection
from headpond.spark.options import Option, given_options, whole_number, word_of
from headpond.wire.control.staging import BATCH_MAX, ON_REPEAT

SINK_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option(
        "topic",
        "the column `topic`",
        "where all rows go. The topic is created on first use, if the node allows that",
    ),
    Option("sinkId", "the query's id", "the name under which batches are counted"),
    Option("batch", "none", "with `sinkId`, for `write`: the number of this batch"),
    Option(
        "onRepeat",
        "`compare`",
        "a repeated batch: `compare` its rows with the committed ones, and fail if they differ; "
        "or `drop` it without a comparison",
    ),
)
SPARKS_OWN = ("checkpointlocation", "queryname")
"""Names that Spark adds to the options."""
SINK_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: NodeConnection
    topic: str | None
    """The full name; None if a column names it."""
    sink: str | None
    batch: int | None
    on_repeat: str


def read_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Reads the options; ``BadRequest`` names one with a fault."""
    values = given_options(options, SINK_OPTIONS, ignored=SPARKS_OWN)
    topic = values.get("topic")
    sink = values.get("sinkId")
    if sink is not None and not (len(sink) <= SINK_LENGTH_MAX and sink.isprintable()):
        raise BadRequest(f"sinkId has at most {SINK_LENGTH_MAX} printable characters")
    return SinkOptions(
        connection=read_connection(values),
        topic=str(TopicName.parse(topic)) if topic is not None else None,
        sink=sink,
        batch=_read_batch(values, sink, streaming=streaming),
        on_repeat=word_of("onRepeat", values, ON_REPEAT),
    )


def _read_batch(values: Mapping[str, str], sink: str | None, *, streaming: bool) -> int | None:
    text = values.get("batch")
    if streaming and text is not None:
        raise BadRequest("option batch is for batches; a stream counts its own", hint="Leave it out.")
    if not streaming and (text is None) != (sink is None):
        raise BadRequest(
            "options sinkId and batch go together: the batch is committed once under both",
            hint="Give both for a job that may be run again, or neither.",
        )
    if text is None:
        return None
    if (batch := whole_number(text, 0, BATCH_MAX)) is None:
        raise BadRequest(f"option batch is a number from 0, not {text[:80]!r}")
    return batch
