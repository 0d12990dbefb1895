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

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headpond.model.errors import BadRequest

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
        json: dict[str, Any] = {
            "uuid": self.uuid.hex(),
            "incarnations": list(self.incarnations),
            "entries": list(self.entries),
        }
        if self.stored:
            json["stored"] = list(self.stored)
        return json if self.begins is None else {**json, "from": list(self.begins)}

    def keep(self, before: TopicOffset, shards: Iterable[int]) -> TopicOffset:
        """The same, with these shards where they were before."""
        incarnations, entries, stored = list(self.incarnations), list(self.entries), list(self.stored)
        for shard in shards:
            incarnations[shard], entries[shard] = before.incarnations[shard], before.entries[shard]
            if before.stored:
                stored[shard] = before.stored[shard]
        return replace(self, incarnations=tuple(incarnations), entries=tuple(entries), stored=tuple(stored))

    def place(self) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
        """What it stands for, however it was come to."""
        return self.uuid, self.incarnations, self.entries


Offset = dict[str, TopicOffset]
"""By full name of the topic."""


def backlog(read: Offset, there: Offset) -> dict[str, int]:
    """By topic, the entries between how far it is read and how far it reaches."""
    return {
        topic: sum(max(0, entry - done) for entry, done in zip(each.entries, read[topic].entries, strict=False))
        for topic, each in there.items()
        if topic in read and read[topic].uuid == each.uuid
    }


def lag(query: Any) -> dict[str, int]:
    """How many entries a running query is behind, by the full name of each topic that it reads.

    ``query`` is what ``start()`` of a stream returned. The numbers are those of its last progress; before the
    first there are none.
    """
    return progress_lag(query.lastProgress)


def progress_lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """The same, from a progress of Spark's; sources that read no topics have no part in it."""
    found: dict[str, int] = {}
    for source in (progress or {}).get("sources") or ():
        try:
            read, there = (read_offset(_parsed(source[name])) for name in ("endOffset", "latestOffset"))
        except (BadRequest, KeyError):
            continue
        for topic, entries in backlog(read, there).items():
            found[topic] = max(entries, found.get(topic, 0))
    return found


def _parsed(offset: Any) -> Any:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def offset_json(offset: Offset) -> dict[str, Any]:
    return {"version": VERSION, "topics": {topic: offset[topic].as_json() for topic in sorted(offset)}}


def read_start(json: dict[str, Any]) -> Offset:
    """The offset that a batch starts at: where the reading before it began is no part of that."""
    return {topic: replace(each, begins=None) for topic, each in read_offset(json).items()}


def read_offset(json: dict[str, Any]) -> Offset:
    """Reads what a checkpoint holds; anything else is a ``BadRequest``."""
    try:
        if json["version"] != VERSION:
            raise BadRequest(
                f"the checkpoint holds offsets of version {json['version']}; this is version {VERSION}",
                hint="Read it with the version of headpond that wrote it, or begin with a new checkpoint.",
            )
        return {
            topic: TopicOffset(
                bytes.fromhex(each["uuid"]),
                tuple(map(int, each["incarnations"])),
                tuple(map(int, each["entries"])),
                tuple(map(int, each["from"])) if "from" in each else None,
                tuple(map(int, each.get("stored", ()))),
            )
            for topic, each in json["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(
            f"the checkpoint holds offsets that are not of this source: {error!r}",
            hint="Give each query a checkpointLocation of its own.",
        ) from None


Shard = tuple[str, int]

IDLE_SHARE = 0.05
IDLE_WAIT_S_MAX = 0.5
"""Stopping a query waits for the answer to its last question."""


class IdleWait:
    """How long a question for more may wait at the node while a query is idle.

    Spark asks the sources of a query one after the other, again and again, so a wait delays the data of all
    other sources. Three rules keep that cheap while an idle query still asks only twice a second:

    1. After a batch of the query, whichever source it was for, the next question does not wait.
    2. Questions are spaced by a twentieth of the time that the query has been idle, at most half a second.
    3. The spacing counts from the previous answer, so while one source waits the others do not.
    """

    def __init__(self) -> None:
        self._idle_since: float | None = None
        self._answered = 0.0

    def batch_made(self) -> None:
        self._idle_since = None

    def seconds(self, now: float) -> float:
        """For a question that is asked now."""
        if self._idle_since is None:
            self._idle_since = now
        spacing = min((now - self._idle_since) * IDLE_SHARE, IDLE_WAIT_S_MAX)
        return max(0.0, self._answered + spacing - now)

    def answered(self, now: float) -> None:
        self._answered = now


class Gathering:
    """Whether entries wait for others until they make a batch of a minimum size, and how long."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When the first of them was seen."""

    def waits_s(self, entries: int, entries_min: int, delay_s_max: float, now: float) -> float:
        """For how many seconds so many entries may still wait; 0: they are a batch."""
        if not 0 < entries < entries_min:
            self._since = None
            return 0.0
        if self._since is None:
            self._since = now
        left_s = max(0.0, self._since + delay_s_max - now)
        if not left_s:
            self._since = None
        return left_s


def limited(
    starts: Mapping[Shard, int], ends: Mapping[Shard, int], entries_max: int | None
) -> dict[Shard, int]:
    """Where a batch ends in each shard: shares of ``entries_max`` in proportion to what is there.

    At least one entry is taken if there is any, so that a stream goes on whatever its limit.
    """
    lags = {shard: max(0, end - starts[shard]) for shard, end in ends.items()}
    total = sum(lags.values())
    if entries_max is None or total <= entries_max:
        return dict(ends)
    room = max(1, entries_max)
    taken = {shard: lag * room // total for shard, lag in lags.items()}
    left = room - sum(taken.values())
    # What rounding left over goes to those that lag most.
    for shard in sorted(lags, key=lambda each: lags[each], reverse=True)[:left]:
        taken[shard] += 1 if taken[shard] < lags[shard] else 0
    return {shard: starts[shard] + count for shard, count in taken.items()}


def limited_by_bytes(
    starts: Mapping[Shard, int],
    ends: Mapping[Shard, int],
    entry_bytes: Mapping[Shard, float],
    bytes_max: int | None,
) -> dict[Shard, int]:
    """The same for bytes: an entry counts with what one of its shard takes on the average."""
    lags = {shard: max(0, end - starts[shard]) for shard, end in ends.items()}
    size = sum(lag * entry_bytes.get(shard, 1.0) for shard, lag in lags.items())
    if bytes_max is None or size <= bytes_max:
        return dict(ends)
    return limited(starts, ends, max(1, int(sum(lags.values()) * bytes_max / size)))
