"""Whether a block may be sent: what a TITLE says, against the token, the topic and its producers."""

from __future__ import annotations

from collections import Counter

from headpond.broker.access.rights import check_title
from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.session import Session
from headpond.model.errors import HeadpondError, NotAllowed, TopicMismatch, TopicNotFound
from headpond.model.grant import ALL
from headpond.wire.title import Title

NAME_LENGTH_MAX = 600


class Titles:
    def __init__(self, catalog: Catalog, counters: Counter[str]) -> None:
        self._catalog = catalog
        self._counters = counters

    def judge(
        self, session: Session, block: bytes, shard_power: int, title: Title
    ) -> tuple[Topic | None, HeadpondError | None]:
        """The topic, if the session may send to it, and why the block cannot be taken, if it cannot.

        A topic that the session may not send to is as if it did not exist.
        """
        topic = self._catalog.by_uuid(title.topic_uuid)
        if session.grant is not ALL:
            try:
                check_title(session.grant, title.topic, title.producer)
            except HeadpondError as error:
                self._counters["operations_not_allowed"] += 1
                return None, error
            if topic is not None and not session.grant.reaches(topic.place):
                topic = None
            if topic is not None and session.grant.producer and _is_anothers(topic, block, title):
                self._counters["operations_not_allowed"] += 1
                return None, NotAllowed(f"the block is not one of producer {title.producer!r}")
        return topic, self._refusal(topic, shard_power, title)

    def _refusal(self, topic: Topic | None, shard_power: int, title: Title) -> HeadpondError | None:
        if topic is None:
            return self.unknown_topic(title.topic)
        if topic.created.shard_power != shard_power:
            shards = 2**topic.created.shard_power
            return TopicMismatch(f"topic {topic.shown} has {shards} shards, the producer cut {2**shard_power}")
        return topic.producers.judge(title, topic.shown)

    def unknown_topic(self, name: str) -> HeadpondError:
        if self._catalog.by_name(name) is not None:
            return TopicMismatch(f"topic {name[:NAME_LENGTH_MAX]} was deleted and created again")
        return TopicNotFound(f"there is no topic {name[:NAME_LENGTH_MAX]!r}")


def _is_anothers(topic: Topic, block: bytes, title: Title) -> bool:
    """Whether the block, or its predecessor, is known as another producer's.

    A token that is bound to a producer could otherwise use up the numbers of somebody else's segments.
    """
    blocks = [block] if title.predecessor is None else [block, title.predecessor.block]
    tallies = (shard.log.marks.book.tallies.get(each) for shard in topic.shards for each in blocks)
    return any(tally is not None and tally.run and tally.producer != title.producer for tally in tallies)
