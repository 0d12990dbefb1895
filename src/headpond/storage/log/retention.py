"""Which files of a log may go: a decision, made from facts alone.

Whole files go, the oldest first, and none behind one that stays. A file goes

1. ``ttl``        when each message in it has a time to live of its own, and all have expired;
2. ``hard_ttl``   when all in it is older than that, settled or not;
3. ``soft_ttl``   when all in it is older than that and settled in every subscription. What was refused and
comes again
                  is not settled. Where there is no subscription nothing is deleted by it;
4. ``max_bytes``  when the shard takes more than that, settled or not. The file being written stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headpond.model.topic_settings import TopicSettings
from headpond.storage.log.read import StoredFile


class Rules(NamedTuple):
    """None for no such rule."""

    soft_us: int | None = None
    hard_us: int | None = None
    bytes_max: int | None = None

    @classmethod
    def of(cls, settings: TopicSettings) -> Rules:
        return cls(_us(settings.soft_ttl), _us(settings.hard_ttl), settings.max_bytes)


class Drop(NamedTuple):
    """A file that goes, and why."""

    first: int
    end: int
    bytes: int
    reason: str


def decide(
    files: Sequence[StoredFile], rules: Rules, now_us: int, settled: int | None, files_max: int
) -> list[Drop]:
    """What goes of a shard now; ``settled`` is the first entry that some subscription has not settled.

    It is None where there is no subscription.
    """
    drops: list[Drop] = []
    size = sum(file.bytes for file in files)
    for number, file in enumerate(files[:files_max]):
        last = number == len(files) - 1
        if last and file.first == file.end:
            break  # nothing is in it
        reason = _reason(file, rules, now_us, settled)
        if reason is None and not last and rules.bytes_max is not None and size > rules.bytes_max:
            reason = "max_bytes"
        if reason is None:
            break
        size -= file.bytes
        drops.append(Drop(file.first, file.end, file.bytes, reason))
    return drops


def _reason(file: StoredFile, rules: Rules, now_us: int, settled: int | None) -> str | None:
    age_us = now_us - file.newest_us
    if file.expires_us is not None and file.expires_us <= now_us:
        return "ttl"
    if rules.hard_us is not None and age_us >= rules.hard_us:
        return "hard_ttl"
    if rules.soft_us is not None and age_us >= rules.soft_us and settled is not None and file.end <= settled:
        return "soft_ttl"
    return None


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
