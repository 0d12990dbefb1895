"""How far a stream has read: what Spark keeps in its checkpoint, as JSON.

::

    {"version": 1, "topics": {"TOPIC": {"uuid": "…", "incarnations": [1, 1], "entries": [120, 98]}}}

``entries`` are the next to read, by shard. Uuid and incarnation make a topic that was re-created or restored
recognisable. A topic that a pattern found later has ``from``, the entries that its reading begins with. Spark
compares offsets as text, so topics stand in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.model.errors import BadRequest

VERSION = 1


@dataclass(frozen=True, slots=True)
class TopicOffset:
    uuid: bytes
    incarnations: tuple[int, ...]
    entries: tuple[int, ...]
    begins: tuple[int, ...] | None = None
    """Of a topic that was not in the offset before: where its reading begins."""

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "uuid": self.uuid.hex(),
            "incarnations": list(self.incarnations),
            "entries": list(self.entries),
        }
        return told if self.begins is None else {**told, "from": list(self.begins)}


Offset = dict[str, TopicOffset]
"""By full name of the topic."""


def offset_json(offset: Offset) -> dict[str, Any]:
    return {"version": VERSION, "topics": {topic: offset[topic].as_json() for topic in sorted(offset)}}


def read_offset(told: dict[str, Any]) -> Offset:
    """Reads what a checkpoint holds; anything else is a ``BadRequest``."""
    try:
        if told["version"] != VERSION:
            raise BadRequest(
                f"the checkpoint holds offsets of version {told['version']}; this is version {VERSION}",
                hint="Read it with the version of penstock that wrote it, or begin with a new checkpoint.",
            )
        return {
            topic: TopicOffset(
                bytes.fromhex(each["uuid"]),
                tuple(map(int, each["incarnations"])),
                tuple(map(int, each["entries"])),
                tuple(map(int, each["from"])) if "from" in each else None,
            )
            for topic, each in told["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(
            f"the checkpoint holds offsets that are not of this source: {error!r}",
            hint="Give each query a checkpointLocation of its own.",
        ) from None
