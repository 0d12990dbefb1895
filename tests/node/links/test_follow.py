"""How often a link asks its source for settlements."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import LinkStatus
from headpond.model.errors import ConnectionLost
from headpond.model.policy import Policy
from headpond.node.links import follow
from headpond.node.links.ends import Direction
from headpond.wire.control.links import FollowedSubscription

MADE = LinkMade("west", "headpond://127.0.0.1:1", ["*"], "pull", None, 0, "", ["*"])


def listed(stamp: int) -> list[FollowedSubscription]:
    return [FollowedSubscription("t", "s", "unique", "non_resilient", Policy(), 1, 0, 0, 0, [stamp])]


class Source:
    """Answers as it was told, then ends the connection; some answers come with news of topics."""

    id = "a"

    def __init__(self, *stamps: int) -> None:
        self._answers = [listed(stamp) for stamp in stamps]

    async def ask(self, operation: object) -> Any:
        if not self._answers:
            raise ConnectionLost("the end")
        return self._answers.pop(0)


def test_a_source_without_news_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []

    async def sleep(seconds: float) -> None:
        waits.append("short")
        if waits.count("short") == 5:
            following.news.set()

    async def wait_for(waiting: Coroutine[Any, Any, bool], seconds: float) -> None:
        assert seconds == follow.QUIET_S
        waits.append("news" if following.news.is_set() else "long")
        waiting.close()

    source: Any = Source(1, 1, 1, 2, 2)
    following = follow.PeerFollow(
        Direction(MADE, "pull", source, source, LinkStatus(lambda: 0)), lambda topic: None
    )
    monkeypatch.setattr(follow, "asyncio", SimpleNamespace(sleep=sleep, wait_for=wait_for))
    with pytest.raises(ConnectionLost):
        asyncio.run(following.run())
    assert waits == ["short", "short", "long", "short", "long", "short", "short", "news"]
