"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.link import Link
from penstock.model.topic import TopicName
from penstock.wire.control import (
    CreateTopic,
    DeleteSubscription,
    DeleteTopic,
    ListSubscriptions,
    ListTopics,
    ShowNode,
    ShowTopic,
    SubscriptionInfo,
    TopicInfo,
    read_result,
)


class Admin:
    """``client.admin``: topics, subscriptions and the node itself."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create_topic(self, topic: str, shards: int = 1, *, exist_ok: bool = False) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; both are fixed for its life."""
        ask = CreateTopic(str(TopicName.parse(topic)), shards, exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), TopicInfo)

    async def list_topics(self) -> list[TopicInfo]:
        """All topics of the node."""
        return read_result(await self._link.request(ListTopics(), retry=True), list[TopicInfo])

    async def show_topic(self, topic: str) -> TopicInfo:
        """One topic, with its shards."""
        ask = ShowTopic(str(TopicName.parse(topic)))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

    async def delete_topic(self, topic: str) -> None:
        """Removes a topic, its messages and its subscriptions."""
        await self._link.request(DeleteTopic(str(TopicName.parse(topic))))

    async def list_subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """A topic's subscriptions and how far each has come."""
        ask = ListSubscriptions(str(TopicName.parse(topic)))
        return read_result(await self._link.request(ask, retry=True), list[SubscriptionInfo])

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        await self._link.request(DeleteSubscription(str(TopicName.parse(topic)), subscription))

    async def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return read_result(await self._link.request(ShowNode(), retry=True), dict[str, Any])
