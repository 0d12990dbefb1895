"""What a user says of a sink, read and checked before anything is asked of a node.

The names are those of the source and of the client, in Spark's spelling. An option that is unknown or empty is
an error that names it; nothing is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.address import DEFAULT_URL, parse_addresses
from penstock.model.errors import BadRequest
from penstock.model.topic import TopicName
from penstock.spark.source_options import unknown_option
from penstock.wire.staging import BATCH_MAX

NAMES = ("url", "token", "topic", "sinkId", "batch", "timeout")
SPARKS_OWN = ("checkpointlocation", "queryname")
"""What Spark puts among the options by itself."""
SINK_LENGTH_MAX = 64
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SinkOptions:
    url: str
    token: str | None = field(repr=False)
    topic: str | None
    """The full name; None where a column names it."""
    sink: str | None
    batch: int | None
    timeout_s: float


def read_options(told: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options as they are meant; anything wrong with one is a ``BadRequest`` that names it."""
    known = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for key, value in told.items():
        name = known.get(key.lower())
        if name is None:
            if key.lower() in SPARKS_OWN:
                continue
            raise unknown_option(key, value, NAMES)
        if not str(value).strip():
            raise BadRequest(f"option {name} is empty", hint="Leave it out, or give it a value.")
        values[name] = str(value).strip()
    url = values.get("url", DEFAULT_URL)
    parse_addresses(url)
    topic = values.get("topic")
    sink = values.get("sinkId")
    if sink is not None and not (len(sink) <= SINK_LENGTH_MAX and sink.isprintable()):
        raise BadRequest(f"sinkId has at most {SINK_LENGTH_MAX} printable characters")
    return SinkOptions(
        url=url,
        token=values.get("token"),
        topic=str(TopicName.parse(topic)) if topic is not None else None,
        sink=sink,
        batch=_read_batch(values, sink, streaming=streaming),
        timeout_s=_read_timeout(values),
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
    if not text.isdecimal() or int(text) > BATCH_MAX:
        raise BadRequest(f"option batch is a number from 0, not {text!r}")
    return int(text)


def _read_timeout(values: Mapping[str, str]) -> float:
    text = values.get("timeout", str(TIMEOUT_S))
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s < 1e6:
        raise BadRequest(f"option timeout is a number of seconds above 0, not {text!r}")
    return timeout_s
