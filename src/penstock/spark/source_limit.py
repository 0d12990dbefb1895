"""How much of what there is goes into one batch of a stream."""

from __future__ import annotations

from collections.abc import Mapping

Shard = tuple[str, int]


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
