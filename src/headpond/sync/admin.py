"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headpond.client.admin import COMPACT_TIMEOUT_S
from headpond.client.connect import Client
from headpond.client.tenancy_admin import Settings
from headpond.sync.access_admin import AccessAdmin
from headpond.sync.background import Background
from headpond.sync.peer_admin import PeerAdmin
from headpond.sync.subscription_admin import SubscriptionAdmin
from headpond.sync.tenancy_admin import TenancyAdmin
from headpond.sync.writer_admin import WriterAdmin
from headpond.wire.control import Ends, LedgerInfo, TopicCompaction, TopicInfo, TopInfo


class Admin(SubscriptionAdmin, TenancyAdmin, WriterAdmin, AccessAdmin, PeerAdmin):
    """``client.admin``: tenants, topics, producers, writers, subscriptions, tokens, links and the node."""

    def __init__(self, client: Client, background: Background) -> None:
        self._admin = client.admin
        self._background = background

    def create_topic(
        self,
        topic: str,
        shards: int = 1,
        *,
        schema: pa.Schema | None = None,
        state: bool = False,
        settings: Settings | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; with a ``schema`` a typed one."""
        made = self._admin.create_topic(
            topic, shards, schema=schema, state=state, settings=settings, exist_ok=exist_ok
        )
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

    def compact_topic(self, topic: str, *, timeout: float = COMPACT_TIMEOUT_S) -> TopicCompaction:
        """Takes superseded messages out of a state topic's files now; returns when that is done."""
        return self._background.run(self._admin.compact_topic(topic, timeout=timeout))

    def ends(
        self,
        topics: Sequence[str],
        known: Sequence[Sequence[int]] | None = None,
        *,
        wait: float = 0.0,
        subscription: str = "",
    ) -> list[Ends]:
        """How far each topic reaches; waits up to ``wait`` seconds until there is more than ``known``."""
        return self._background.run(self._admin.ends(topics, known, wait=wait, subscription=subscription))

    def delete_topic(self, topic: str) -> None:
        """Removes a topic, its messages and its subscriptions."""
        self._background.run(self._admin.delete_topic(topic))

    def ledger(
        self,
        topic: str,
        *,
        producer: str | None = None,
        subscription: str | None = None,
        blocks: bool = False,
        segments: bool = False,
    ) -> LedgerInfo:
        """What became of everything: announced, stored, refused, settled; whether it balances; R and UR."""
        asked = self._admin.ledger(
            topic, producer=producer, subscription=subscription, blocks=blocks, segments=segments
        )
        return self._background.run(asked)

    def top(self, pattern: str = "", *, limit: int = 50) -> TopInfo:
        """How busy the node is and how far subscriptions are behind; two readings make rates."""
        return self._background.run(self._admin.top(pattern, limit=limit))

    def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return self._background.run(self._admin.show_node())
