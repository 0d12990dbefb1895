"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.connect import Client
from penstock.sync.background import Background
from penstock.wire.control import SubscriptionInfo, TopicInfo


class Admin:
    """``client.admin``: topics, subscriptions and the node itself."""

    def __init__(self, client: Client, background: Background) -> None:
        self._admin = client.admin
        self._background = background

    def create_topic(self, topic: str, shards: int = 1, *, exist_ok: bool = False) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; both are fixed for its life."""
        return self._background.run(self._admin.create_topic(topic, shards, exist_ok=exist_ok))

    def list_topics(self) -> list[TopicInfo]:
        """All topics of the node."""
        return self._background.run(self._admin.list_topics())

    def show_topic(self, topic: str) -> TopicInfo:
        """One topic, with its shards."""
        return self._background.run(self._admin.show_topic(topic))

    def delete_topic(self, topic: str) -> None:
        """Removes a topic, its messages and its subscriptions."""
        self._background.run(self._admin.delete_topic(topic))

    def list_subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """A topic's subscriptions and how far each has come."""
        return self._background.run(self._admin.list_subscriptions(topic))

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        self._background.run(self._admin.delete_subscription(topic, subscription))

    def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return self._background.run(self._admin.show_node())
