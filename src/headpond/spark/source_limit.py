"""How much of the backlog goes into one batch of a stream, and how long a source waits for more."""

from __future__ import annotations

from collections.abc import Mapping

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
