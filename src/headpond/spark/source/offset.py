"""How far a stream has read: the JSON in Spark's checkpoint, and the limits of a batch.

::

    {"version": 1, "topics": {"TOPIC": {"uuid": "…", "incarnations": [1, 1], "entries": [120, 98],
                                        "stored": [1790000000000000, 1790000000000000]}}}

``entries`` are the next to read, by shard; all before them was stored at ``stored`` (µs since 1970) or earlier.
Uuid, incarnation and that time reveal a topic that was re-created or restored. ``from`` is there if reading
continues elsewhere than at the entries of the offset before: in a topic that a pattern found later, or after a
restore of an old copy. Spark compares offsets as text, so topics are sorted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from headpond.model.errors import BadRequest

VERSION = 1
IDLE_SHARE = 0.05
IDLE_WAIT_S_MAX = 0.5
"""Stopping a query waits for the answer to its last question."""


@dataclass(frozen=True, slots=True)
class TopicOffset:
    uuid: bytes
    incarnations: tuple[int, ...]
    entries: tuple[int, ...]
    stored: tuple[int, ...]
    """By shard, a time by which every entry read was stored."""
    begins: tuple[int, ...] | None = None
    """Where the batch that ends here began, if not at the entries of the offset before."""

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "uuid": self.uuid.hex(),
            "incarnations": list(self.incarnations),
            "entries": list(self.entries),
            "stored": list(self.stored),
        }
        return fields if self.begins is None else {**fields, "from": list(self.begins)}

    def keep(self, before: TopicOffset, shards: Iterable[int]) -> TopicOffset:
        """The same, with these shards where they were before."""
        incarnations, entries, stored = list(self.incarnations), list(self.entries), list(self.stored)
        for shard in shards:
            incarnations[shard], entries[shard] = before.incarnations[shard], before.entries[shard]
            stored[shard] = before.stored[shard]
        return replace(self, incarnations=tuple(incarnations), entries=tuple(entries), stored=tuple(stored))

    def place(self) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
        """The position alone, without where the batch began."""
        return self.uuid, self.incarnations, self.entries


Offset = dict[str, TopicOffset]
"""By full name of the topic."""


def backlog(read: Offset, there: Offset) -> dict[str, int]:
    """By topic, the entries that are stored and not read."""
    return {
        topic: sum(max(0, entry - done) for entry, done in zip(each.entries, read[topic].entries, strict=False))
        for topic, each in there.items()
        if topic in read and read[topic].uuid == each.uuid
    }


def lag(query: Any) -> dict[str, int]:
    """How many entries a running query is behind, by the full name of each topic that it reads.

    ``query`` is the result of ``start()`` of a stream. The numbers are those of its last progress report;
    before the first one the result is empty.
    """
    return progress_lag(query.lastProgress)


def progress_lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """The same, from a progress report of Spark; it ignores sources that read no topics."""
    found: dict[str, int] = {}
    for source in (progress or {}).get("sources") or ():
        try:
            read, there = (read_offset(_parsed(source[name])) for name in ("endOffset", "latestOffset"))
        except (BadRequest, KeyError):
            continue
        for topic, entries in backlog(read, there).items():
            found[topic] = max(entries, found.get(topic, 0))
    return found


def progress_topics(progress: Mapping[str, Any]) -> list[str]:
    """The full names of the topics that a query reads, from a progress report of Spark."""
    found: set[str] = set()
    for source in progress.get("sources") or ():
        with suppress(BadRequest, KeyError):
            found |= read_offset(_parsed(source["endOffset"])).keys()
    return sorted(found)


def _parsed(offset: Any) -> Any:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def offset_json(offset: Offset) -> dict[str, Any]:
    return {"version": VERSION, "topics": {topic: offset[topic].as_json() for topic in sorted(offset)}}


def read_start(fields: dict[str, Any]) -> Offset:
    """The offset that a batch starts at, without where the batch before it began."""
    return {topic: replace(each, begins=None) for topic, each in read_offset(fields).items()}


def read_offset(fields: dict[str, Any]) -> Offset:
    """Reads the offset of a checkpoint; anything else is a ``BadRequest``."""
    try:
        if fields["version"] != VERSION:
            raise BadRequest(
                f"the checkpoint holds offsets of version {fields['version']}; this is version {VERSION}",
                hint="Read it with the version of headpond that wrote it, or begin with a new checkpoint.",
            )
        return {
            topic: TopicOffset(
                bytes.fromhex(each["uuid"]),
                tuple(map(int, each["incarnations"])),
                tuple(map(int, each["entries"])),
                tuple(map(int, each["stored"])),
                tuple(map(int, each["from"])) if "from" in each else None,
            )
            for topic, each in fields["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(
            f"the checkpoint holds offsets that are not of this source: {error!r}",
            hint="Give each query a different checkpointLocation.",
        ) from None


Shard = tuple[str, int]


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


class BatchDelay:
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
    """Where a batch ends in each shard: ``entries_max`` shared in proportion to the backlogs.

    It takes at least one entry if there is any, so that a stream advances under any limit.
    """
    lags = {shard: max(0, end - starts[shard]) for shard, end in ends.items()}
    total = sum(lags.values())
    if entries_max is None or total <= entries_max:
        return dict(ends)
    room = max(1, entries_max)
    taken = {shard: lag * room // total for shard, lag in lags.items()}
    left = room - sum(taken.values())
    # The remainder of rounding goes to the shards with the largest backlogs.
    for shard in sorted(lags, key=lambda each: lags[each], reverse=True)[:left]:
        taken[shard] += 1 if taken[shard] < lags[shard] else 0
    return {shard: starts[shard] + count for shard, count in taken.items()}


def limited_by_bytes(
    starts: Mapping[Shard, int],
    ends: Mapping[Shard, int],
    entry_bytes: Mapping[Shard, float],
    bytes_max: int | None,
) -> dict[Shard, int]:
    """The same for bytes: an entry counts with the average size in its shard."""
    lags = {shard: max(0, end - starts[shard]) for shard, end in ends.items()}
    size = sum(lag * entry_bytes.get(shard, 1.0) for shard, lag in lags.items())
    if bytes_max is None or size <= bytes_max:
        return dict(ends)
    return limited(starts, ends, max(1, int(sum(lags.values()) * bytes_max / size)))
