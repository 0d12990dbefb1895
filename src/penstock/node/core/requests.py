"""Administration: topics and subscriptions created, shown and removed.

A change is answered once it is on the disk; it takes effect in memory at the same moment, so nobody sees a
topic that a power cut could take back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.errors import (
    BadRequest,
    LimitReached,
    PenstockError,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from penstock.model.identity import SHARD_POWER_MAX
from penstock.model.topic import TopicName
from penstock.node.core.settlement import Removed, encode_change
from penstock.node.core.subscription import Subscription
from penstock.node.core.topics import Topic, TopicCreated, TopicDeleted
from penstock.node.core.topics import encode_change as encode_catalog_change
from penstock.wire.control import (
    CreateTopic,
    DeleteSubscription,
    DeleteTopic,
    ListSubscriptions,
    ListTopics,
    OpenTopic,
    Operation,
    ShowNode,
    ShowTopic,
    SubscriptionInfo,
)

if TYPE_CHECKING:
    from penstock.node.core.node import NodeCore

Answer = Callable[[Any], None]
Refuse = Callable[[PenstockError], None]


class Requests:
    def __init__(self, node: NodeCore, counters: Counter[str]) -> None:
        self._node = node
        self._counters = counters
        self._creating: dict[str, list[Callable[[PenstockError | None], None]]] = {}

    def on_request(self, operation: Operation, answer: Answer, refuse: Refuse) -> None:
        """Carries out an operation; exactly one of ``answer`` and ``refuse`` is called, now or later."""
        self._counters["requests"] += 1
        if isinstance(operation, OpenTopic):
            self.open_topic(operation.topic, operation.create, lambda topic: answer(topic.info()), refuse)
        elif isinstance(operation, CreateTopic):
            self._create_topic(operation, answer, refuse)
        elif isinstance(operation, ShowTopic):
            answer(self.topic(operation.topic).info(with_shards=True))
        elif isinstance(operation, ListTopics):
            answer([topic.info() for topic in self._node.catalog])
        elif isinstance(operation, DeleteTopic):
            self._delete_topic(self.topic(operation.topic), answer, refuse)
        elif isinstance(operation, ListSubscriptions):
            topic = self.topic(operation.topic)
            answer([self._info(topic, item) for item in self._node.subscriptions.of_topic(topic.uuid)])
        elif isinstance(operation, DeleteSubscription):
            self._delete_subscription(operation, answer)
        else:
            assert isinstance(operation, ShowNode)
            answer(self._node.describe())

    # --- topics -------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of that name, or ``TopicNotFound``."""
        parsed = TopicName.parse(name)
        topic = self._node.catalog.by_name(str(parsed))
        if topic is None:
            raise TopicNotFound(f"there is no topic {parsed.short!r}")
        return topic

    def open_topic(self, name: str, create: bool, found: Callable[[Topic], None], refuse: Refuse) -> None:
        """Finds a topic, or creates it with the defaults where that is asked for and allowed."""
        parsed = TopicName.parse(name)
        topic = self._node.catalog.by_name(str(parsed))
        if topic is not None:
            found(topic)
        elif not create:
            raise TopicNotFound(f"there is no topic {parsed.short!r}")
        elif not self._node.settings.auto_create_topics:
            raise TopicNotFound(
                f"there is no topic {parsed.short!r}, and this node does not create topics on first use",
                hint=f"`penstock topic create {parsed.short}` creates it; so does auto_create_topics = true.",
            )
        else:
            self._create(str(parsed), None, found, refuse)

    def _create_topic(self, ask: CreateTopic, answer: Answer, refuse: Refuse) -> None:
        parsed = TopicName.parse(ask.topic)
        shard_power = ask.shards.bit_length() - 1
        if ask.shards < 1 or 2**shard_power != ask.shards or shard_power > SHARD_POWER_MAX:
            raise BadRequest(
                f"{ask.shards} shards: the number of shards is a power of 2 from 1 to {2**SHARD_POWER_MAX}"
            )
        topic = self._node.catalog.by_name(str(parsed))
        if topic is None:
            self._create(str(parsed), shard_power, lambda made: answer(made.info()), refuse)
        elif ask.exist_ok and topic.created.shard_power == shard_power:
            answer(topic.info())
        else:
            raise TopicExists(f"topic {topic.shown} exists with {len(topic.shards)} shards")

    def _create(
        self, name: str, shard_power: int | None, made: Callable[[Topic], None], refuse: Refuse
    ) -> None:
        """Creates a topic; ``shard_power`` None takes whatever somebody else is creating it with."""

        def ended(error: PenstockError | None) -> None:
            if error is not None:
                refuse(error)
                return
            topic = self._node.catalog.by_name(name)
            if topic is None:
                refuse(TopicNotFound(f"topic {name} was deleted at once"))
            elif shard_power not in (None, topic.created.shard_power):
                refuse(TopicExists(f"topic {topic.shown} exists with {len(topic.shards)} shards"))
            else:
                made(topic)

        waiting = self._creating.get(name)
        if waiting is not None:  # somebody else creates it right now: whoever is first decides its shards
            waiting.append(ended)
            return
        limit = self._node.settings.limits.topics
        if len(self._node.catalog) + len(self._creating) >= limit:
            raise LimitReached(f"this node holds at most {limit} topics (limits.topics)")
        limit = self._node.settings.limits.shards
        if self._node.stores.shards + 2 ** (shard_power or 0) > limit:
            raise LimitReached(f"this node holds at most {limit} shards in all topics (limits.shards)")
        created = TopicCreated(name, self._node.new_uuid(), shard_power or 0, self._node.now_us())
        self._creating[name] = [ended]

        def durable(error: PenstockError | None) -> None:
            if error is None:
                self._node.stores.topic_created(created)
            for waiter in self._creating.pop(name):
                waiter(error)

        self._node.stores.change_catalog(encode_catalog_change(created), durable)

    def _delete_topic(self, topic: Topic, answer: Answer, refuse: Refuse) -> None:
        deleted = TopicDeleted(topic.uuid)

        def durable(error: PenstockError | None) -> None:
            if error is not None:
                refuse(error)
                return
            self._node.topic_deleted(deleted)
            answer({"topic": topic.name, "deleted": True})

        self._node.stores.change_catalog(encode_catalog_change(deleted), durable)

    # --- subscriptions ------------------------------------------------------------------------------

    def _delete_subscription(self, ask: DeleteSubscription, answer: Answer) -> None:
        topic = self.topic(ask.topic)
        subscription = self._node.subscriptions.get(topic.uuid, ask.subscription)
        if subscription is None:
            raise SubscriptionNotFound(f"topic {topic.shown} has no subscription {ask.subscription[:80]!r}")
        if subscription.attachment is not None:
            raise SubscriptionBusy(f"subscription {ask.subscription!r} of {topic.shown} has a consumer")
        removed = Removed(topic.uuid, ask.subscription)
        self._node.subscriptions.apply(removed)
        self._node.stores.change_settlements(
            encode_change(removed), lambda error: answer({"subscription": ask.subscription, "deleted": True})
        )

    def _info(self, topic: Topic, subscription: Subscription) -> dict[str, Any]:
        ends = [shard.log.entry_durable for shard in topic.shards]
        cursors = subscription.cursors
        counts = subscription.counts
        behind = sum(max(0, end - cursor.cursor) for end, cursor in zip(ends, cursors, strict=True))
        info = SubscriptionInfo(
            subscription=subscription.name,
            topic=topic.name,
            kind=subscription.kind,
            mode=subscription.mode,
            consumers=[subscription.attachment.name] if subscription.attachment else [],
            settled=counts.acked + counts.skipped,
            unsettled=behind - sum(len(cursor.settled) for cursor in cursors),
            in_flight=sum(len(cursor.held) for cursor in cursors),
            unacked=sum(len(cursor.waiting) + len(cursor.ready) for cursor in cursors),
            lost=counts.lost,
            positions=[cursor.cursor for cursor in cursors],
        )
        described: dict[str, Any] = msgspec.to_builtins(info, builtin_types=(bytes,))
        return described
