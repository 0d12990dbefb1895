"""What people see of a link: its state, its topics, its counts. Only in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from headpond.broker.links.link_table import LinkMade
from headpond.model.errors import HeadpondError
from headpond.wire.control.links import Admitted, PeerInfo, PeerSubscriptionInfo, PeerTopicInfo

TOPICS_SHOWN_MAX = 1000
MESSAGE_LENGTH_MAX = 300
NUMBER_MAX = 2**63 - 1
"""The other node sends some of the numbers; larger ones cannot be encoded."""
COUNTS = (
    "records_in",
    "messages_in",
    "bytes_in",
    "records_out",
    "messages_out",
    "bytes_out",
    "duplicates",
    "conflicts",
    "late",
    "holes",
    "lost",
    "unreadable",
    "rewinds",
    "connections",
    "settled_in",
    "settled_out",
)


@dataclass(slots=True)
class TopicStatus:
    lags: dict[int, int] = field(default_factory=dict)
    """By shard."""
    state: str = "opening"
    code: str = ""
    message: str = ""
    level_us: int = 0
    """When it last lacked nothing."""

    def note_lag(self, shard: int, lag: int, now_us: int) -> None:
        if not self.lag:
            self.level_us = now_us
        self.lags[shard] = lag

    @property
    def lag(self) -> int:
        return min(sum(self.lags.values()), NUMBER_MAX)

    @property
    def catches_up(self) -> bool:
        """A refused topic does not, nor one that another link copies."""
        return self.state == "opening" or (self.state == "following" and self.lag > 0)

    def refuse(self, error: HeadpondError) -> None:
        self.state, self.code, self.message = "refused", error.code, error.message[:MESSAGE_LENGTH_MAX]

    def follow(self) -> None:
        self.state, self.code, self.message = "following", "", ""

    def info(self, topic: str, direction: str) -> PeerTopicInfo:
        state = "catching up" if self.state == "following" and self.lag else self.state
        return PeerTopicInfo(topic, direction, state, self.lag, self.code, self.message)


class LinkStatus:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.state = "connecting"
        self.since_us = now_us()
        self.node = ""
        self.error: HeadpondError | None = None
        self._away_us: int | None = self.since_us
        """Since when it has no connection."""
        self.counts: Counter[str] = Counter()
        self.topics: dict[tuple[str, str], TopicStatus] = {}
        """By direction and topic."""
        self.subscriptions: dict[tuple[str, str, str], PeerSubscriptionInfo] = {}
        """By direction, topic and name."""

    def connecting(self) -> None:
        self._be("connecting")

    def connected(self, node: str) -> None:
        self.node, self.error, self._away_us = node, None, None
        self.topics.clear()
        self.subscriptions.clear()
        self.counts["connections"] += 1
        self._be("connected")

    def wait(self, error: HeadpondError) -> None:
        """The link connects again after a while."""
        self.error = error
        self._be("waiting")

    def _be(self, state: str) -> None:
        if state != self.state:
            self.state, self.since_us = state, self._now_us()
        if state != "connected" and self._away_us is None:
            self._away_us = self.since_us

    def note_lag(self, topic: TopicStatus, shard: int, lag: int) -> None:
        """How many messages of a topic's shard the sink lacks."""
        topic.note_lag(shard, lag, self._now_us())

    def _lacking_us(self) -> int:
        level = [each.level_us for each in self.topics.values() if each.lag and each.catches_up]
        if self._away_us is not None:
            level.append(self._away_us)
        return max(0, self._now_us() - min(level)) if level else 0

    def carried(self, direction: str, admitted: Admitted) -> None:
        way = "in" if direction == "pull" else "out"
        self.counts[f"records_{way}"] += admitted.records
        self.counts[f"messages_{way}"] += admitted.messages
        self.counts[f"bytes_{way}"] += admitted.bytes
        for name in ("duplicates", "late", "holes", "unreadable", "conflicts"):
            self.counts[name] += getattr(admitted, name)

    def _fault(self) -> tuple[str, str]:
        """The message and the code of the link's error, or of its first refused topic."""
        if self.error is not None:
            return self.error.message[:MESSAGE_LENGTH_MAX], self.error.code
        refused = sorted(
            (topic, each.message, each.code)
            for (_, topic), each in self.topics.items()
            if each.state == "refused"
        )
        if not refused:
            return "", ""
        topic, message, code = refused[0]
        return f"topic {topic}: {message}"[:MESSAGE_LENGTH_MAX], code

    def info(self, made: LinkMade, *, whole: bool = False) -> PeerInfo:
        states = [status.state for status in self.topics.values()]
        lag = min(sum(each.lag for each in self.topics.values() if each.state != "elsewhere"), NUMBER_MAX)
        behind = self.state == "connected" and any(status.catches_up for status in self.topics.values())
        error, error_code = self._fault()
        infos: list[PeerTopicInfo] = []
        if whole:
            infos = [each.info(topic, direction) for (direction, topic), each in self.topics.items()]
            infos.sort(key=lambda each: (each.state == "following", each.topic, each.direction))
        return PeerInfo(
            made.name,
            made.url,
            list(made.topics),
            made.direction,
            made.made_at_us,
            made.made_by,
            made.token is not None,
            "catching up" if behind else self.state,
            self.since_us,
            self.node,
            lag,
            states.count("following"),
            states.count("refused"),
            error,
            error_code,
            {name: min(self.counts[name], NUMBER_MAX) for name in COUNTS},
            infos[:TOPICS_SHOWN_MAX],
            list(made.subscriptions),
            [self.subscriptions[each] for each in sorted(self.subscriptions)] if whole else [],
            self._lacking_us(),
        )
