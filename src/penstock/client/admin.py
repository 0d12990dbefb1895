"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.client.link import Link
from penstock.client.subscription_admin import SubscriptionAdmin
from penstock.client.tenancy_admin import Settings, TenancyAdmin
from penstock.client.writer_admin import WriterAdmin
from penstock.model.topic import TopicName
from penstock.wire.control import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ListTopics,
    ShowNode,
    ShowTopic,
    TopicInfo,
    read_result,
)
from penstock.wire.schema import encode_schema


class Admin(SubscriptionAdmin, TenancyAdmin, WriterAdmin):
    """``client.admin``: tenants, topics, producers, writers, subscriptions and the node itself."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create_topic(
        self,
        topic: str,
        shards: int = 1,
        *,
        schema: pa.Schema | None = None,
        settings: Settings | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; both are fixed for its life.

        With a ``schema`` it is typed: its messages are rows of these columns, checked at the door. With
        ``exist_ok`` a topic that is there already is taken if rows of this schema fit it. ``settings`` are what
        the topic says itself; a topic that is there already keeps its own.
        """
        encoded = encode_schema(schema) if schema is not None else None
        ask = CreateTopic(str(TopicName.parse(topic)), shards, exist_ok, encoded, dict(settings or {}))
        return read_result(await self._link.request(ask, retry=exist_ok), TopicInfo)

    async def alter_topic(self, topic: str, *, schema: pa.Schema) -> TopicInfo:
        """Gives a typed topic a new version of its schema: added nullable columns and wider numbers only.

        Producers of the older schema go on; whoever reads gets every row in the newest one.
        """
        ask = AlterTopic(str(TopicName.parse(topic)), encode_schema(schema))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

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

    async def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return read_result(await self._link.request(ShowNode(), retry=True), dict[str, Any])
