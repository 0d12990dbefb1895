"""How far a stream has read: what Spark keeps in its checkpoint, as JSON.

::

    {"version": 1, "topics": {"TOPIC": {"uuid": "…", "incarnations": [1, 1], "entries": [120, 98],
                                        "stored": [1790000000000000, 1790000000000000]}}}

``entries`` are the next to read, by shard; all before them was stored at ``stored`` (µs since 1970) or earlier.
Uuid, incarnation and that time make a topic that was re-created or restored recognisable. Where reading goes on
elsewhere than at the entries before, ``from`` tells where: in a topic that a pattern found later, or of which
an old copy was restored. Spark compares offsets as text, so topics stand in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.model.errors import BadRequest

VERSION = 1


@dataclass(frozen=True, slots=True)
class TopicOffset:
    uuid: bytes
    incarnations: tuple[int, ...]
    entries: tuple[int, ...]
    begins: tuple[int, ...] | None = None
    """Where the reading begins that leads here, if not at the entries of the offset before."""
    stored: tuple[int, ...] = ()
    """By shard, a time at which all that was read was stored; empty in an offset of a version without."""

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "uuid": self.uuid.hex(),
            "incarnations": list(self.incarnations),
            "entries": list(self.entries),
        }
        if self.stored:
            told["stored"] = list(self.stored)
        return told if self.begins is None else {**told, "from": list(self.begins)}

    def place(self) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
        """What it stands for, however it was come to."""
        return self.uuid, self.incarnations, self.entries


Offset = dict[str, TopicOffset]
"""By full name of the topic."""


def offset_json(offset: Offset) -> dict[str, Any]:
    return {"version": VERSION, "topics": {topic: offset[topic].as_json() for topic in sorted(offset)}}


def read_start(told: dict[str, Any]) -> Offset:
    """The offset that a batch starts at: where the reading before it began is no part of that."""
    return {topic: replace(each, begins=None) for topic, each in read_offset(told).items()}


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
                tuple(map(int, each.get("stored", ()))),
            )
            for topic, each in told["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(
            f"the checkpoint holds offsets that are not of this source: {error!r}",
            hint="Give each query a checkpointLocation of its own.",
        ) from None
