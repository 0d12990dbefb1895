"""A change of a topic that is durable, and everybody in memory who has to hear of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headpond.broker.catalog.changes import PlaceRemoved
from headpond.broker.catalog.topics import Topic, TopicAltered, TopicDeleted
from headpond.broker.ingest.producers import fenced
from headpond.broker.session import BlockContext
from headpond.model.errors import Fenced, TopicNotFound
from headpond.model.names import Place

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore


class TopicChanges:
    def __init__(self, node: NodeCore) -> None:
        self._node = node

    def topic_altered(self, altered: TopicAltered) -> Topic | None:
        """The new schema is durable: consumers hear of it before the first record that has it."""
        topic = self._node.stores.topic_altered(altered)
        if topic is not None:
            self._node.consuming.on_altered(topic)
            self._node.fetching.wake({topic.name})
        return topic

    def topic_deleted(self, deleted: TopicDeleted) -> None:
        """The deletion is durable: consumers and producers of the topic are told."""
        topic = self._node.catalog.by_uuid(deleted.uuid)
        if topic is None:
            return
        gone = TopicNotFound(f"topic {topic.shown} was deleted")
        self._node.stores.topic_deleted(deleted, gone)
        dropped = self._node.subscriptions.drop_topic(topic.uuid)
        for subscription in dropped:
            self._node.consuming.send_away(subscription, gone)
        if dropped:
            self._node.stores.forget_settlements()
        for context in self._contexts(topic):
            context.refusal = gone
        self._node.peering.topic_deleted(topic)
        self._node.fetching.wake({topic.name})

    def place_removed(self, removed: PlaceRemoved) -> None:
        """The removal is durable: the topics below the place are deleted as if each had been named."""
        for topic in self._node.catalog.below(Place.of(removed.name)):
            self.topic_deleted(TopicDeleted(topic.uuid))
        self._node.catalog.apply(removed)

    def fence(self, topic: Topic, producer: str, epoch: int | None) -> None:
        """Another epoch of a producer is durable: what older ones send is not taken. None: it was removed."""
        known = topic.producers.get(producer)
        for context in self._contexts(topic):
            if context.producer != producer or context.late:
                continue
            if known is not None and context.epoch != epoch:
                context.refusal = fenced(known, topic.shown, context.epoch)
            elif known is None and context.epoch:
                context.refusal = Fenced(f"producer {producer!r} of {topic.shown} was removed")

    def open_blocks(self, topic: Topic) -> set[bytes]:
        """The blocks of a topic that clients speak of now."""
        return {context.block for context in self._contexts(topic)}

    def _contexts(self, topic: Topic) -> Iterator[BlockContext]:
        contexts = (context for session in self._node.sessions for context in session.blocks.values())
        return (context for context in contexts if context.topic is topic)
