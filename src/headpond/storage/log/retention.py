"""Decides which files of a log may be deleted.

Retention deletes whole files, the oldest first, and stops at the first that has to stay. A file is deleted by

1. ``ttl``        when each of its messages has its own time to live, and all have expired;
2. ``hard_ttl``   when all its messages are older than that, settled or not;
3. ``soft_ttl``   when all its messages are older than that and settled in every subscription. A nacked message
                  that will be redelivered is not settled. Without a subscription it deletes nothing;
4. ``max_bytes``  when the shard takes more than that, settled or not. The file being written stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headpond.model.topic_settings import TopicSettings
from headpond.storage.log.read import StoredFile


class Rules(NamedTuple):
    """The retention settings of a topic; None for a rule that it does not have."""

    soft_us: int | None = None
    hard_us: int | None = None
    bytes_max: int | None = None

    @classmethod
    def of(cls, settings: TopicSettings) -> Rules:
        return cls(_us(settings.soft_ttl), _us(settings.hard_ttl), settings.max_bytes)


class Drop(NamedTuple):
    """A file to delete, and the rule that deletes it."""

    first: int
    end: int
    bytes: int
    reason: str


def decide(
    files: Sequence[StoredFile], rules: Rules, now_us: int, settled: int | None, files_max: int
) -> list[Drop]:
    """The files of a shard to delete now.

    ``settled`` is the first entry that some subscription has not settled; None if there is no subscription.
    """
    drops: list[Drop] = []
    size = sum(file.bytes for file in files)
    for number, file in enumerate(files[:files_max]):
        last = number == len(files) - 1
        if last and file.first == file.end:
            break  # it has no entries
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
