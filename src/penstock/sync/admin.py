"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.client.connect import Client
from penstock.client.tenancy_admin import Settings
from penstock.sync.background import Background
from penstock.sync.subscription_admin import SubscriptionAdmin
from penstock.sync.tenancy_admin import TenancyAdmin
from penstock.sync.writer_admin import WriterAdmin
from penstock.wire.control import TopicInfo


class Admin(SubscriptionAdmin, TenancyAdmin, WriterAdmin):
    """``client.admin``: tenants, topics, producers, writers, subscriptions and the node itself."""

    def __init__(self, client: Client, background: Background) -> None:
        self._admin = client.admin
        self._background = background

    def create_topic(
        self,
        topic: str,
        shards: int = 1,
        *,
        schema: pa.Schema | None = None,
        settings: Settings | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; with a ``schema`` a typed one."""
        made = self._admin.create_topic(topic, shards, schema=schema, settings=settings, exist_ok=exist_ok)
        return self._background.run(made)

    def alter_topic(self, topic: str, *, schema: pa.Schema) -> TopicInfo:
        """Gives a typed topic a new version of its schema: added nullable columns and wider numbers only."""
        return self._background.run(self._admin.alter_topic(topic, schema=schema))

    def list_topics(self) -> list[TopicInfo]:
        """All topics of the node."""
        return self._background.run(self._admin.list_topics())

    def show_topic(self, topic: str) -> TopicInfo:
        """One topic, with its shards."""
        return self._background.run(self._admin.show_topic(topic))

    def delete_topic(self, topic: str) -> None:
        """Removes a topic, its messages and its subscriptions."""
        self._background.run(self._admin.delete_topic(topic))

    def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return self._background.run(self._admin.show_node())
