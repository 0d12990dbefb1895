"""Did you mean …? Names that the node knows and that are near to one it does not."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from headpond.model.errors import HeadpondError, SubscriptionNotFound, TopicNotFound
from headpond.model.topic import TopicName

if TYPE_CHECKING:
    from headpond.client.admin import Admin

NAMES_MAX = 10_000
"""More are not searched: it would take longer than reading the list."""
_QUOTED = re.compile(r"'([^']+)'")
_OF_TOPIC = re.compile(r"topic (\S+) has no subscription")


async def with_near_names(admin: Admin, error: HeadpondError) -> HeadpondError:
    """The error, its hint led by the names near to the one that was not found."""
    quoted = _QUOTED.findall(error.message)
    if not quoted or not isinstance(error, TopicNotFound | SubscriptionNotFound):
        return error
    try:
        names = await _names(admin, error)
    except HeadpondError:
        return error
    near = near_names(quoted[-1], names)
    return type(error)(error.message, hint=f"{did_you_mean(near)} {error.hint}") if near else error


async def _names(admin: Admin, error: HeadpondError) -> list[str]:
    if isinstance(error, TopicNotFound):
        return [TopicName.parse(info.topic).short for info in await admin.list_topics()]
    topic = _OF_TOPIC.search(error.message)
    if topic is None:
        return []
    return [info.subscription for info in await admin.list_subscriptions(topic[1])]


def near_names(word: str, names: list[str]) -> list[str]:
    return difflib.get_close_matches(word, names[:NAMES_MAX], n=3, cutoff=0.6)


def did_you_mean(near: list[str]) -> str:
    return f"Did you mean {' or '.join(near)}?"
