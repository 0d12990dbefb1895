"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headpond.client.access_admin import AccessAdmin
from headpond.client.arguments import checked_methods
from headpond.client.link import Link
from headpond.client.peer_admin import PeerAdmin
from headpond.client.reader import read_ends
from headpond.client.subscription_admin import SubscriptionAdmin
from headpond.client.tenancy_admin import Settings, TenancyAdmin
from headpond.client.writer_admin import WriterAdmin
from headpond.model.topic import TopicName
from headpond.wire.control import (
    AlterTopic,
    CompactTopic,
    CreateTopic,
    DeleteTopic,
    Ends,
    LedgerInfo,
    ListTopics,
    ShowLedger,
    ShowNode,
    ShowTop,
    ShowTopic,
    TopicCompaction,
    TopicInfo,
    TopInfo,
    read_result,
)
from headpond.wire.schema import encode_schema

COMPACT_TIMEOUT_S = 600.0


@checked_methods
class Admin(SubscriptionAdmin, TenancyAdmin, WriterAdmin, AccessAdmin, PeerAdmin):
    """``client.admin``: tenants, topics, producers, writers, subscriptions, tokens, links and the node."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create_topic(
        self,
        topic: str,
        shards: int = 1,
        *,
        schema: pa.Schema | None = None,
        state: bool = False,
        settings: Settings | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Makes a topic of ``shards`` (a power of two) shards; both are fixed for its life.

        With a ``schema`` it is typed: its messages are rows of these columns, checked at the door. With
        ``exist_ok`` a topic that is there already is taken if rows of this schema fit it. ``settings`` are what
        the topic says itself; a topic that is there already keeps its own. With ``state`` it is a state topic:
        every message has a key, the latest is its value, and one without a value deletes it.
        """
        encoded = encode_schema(schema) if schema is not None else None
        values = {**(settings or {}), **({"state": True} if state else {})}
        ask = CreateTopic(str(TopicName.parse(topic)), shards, exist_ok, encoded, values)
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

    async def compact_topic(self, topic: str, *, timeout: float = COMPACT_TIMEOUT_S) -> TopicCompaction:
        """Takes superseded messages out of a state topic's files now; returns when that is done.

        It is done by itself too, as ``compact_share`` says. What a subscription still owes stays.
        """
        ask = CompactTopic(str(TopicName.parse(topic)))
        return read_result(await self._link.request(ask, timeout_s=timeout), TopicCompaction)

    async def ends(
        self,
        topics: Sequence[str],
        known: Sequence[Sequence[int]] | None = None,
        *,
        wait: float = 0.0,
        subscription: str = "",
    ) -> list[Ends]:
        """How far each topic reaches: its uuid (None: there is none of that name) and the ends of its shards.

        With ``known`` (the next entries as they were, by topic and shard) it waits up to ``wait`` seconds until
        there is more, or a topic is deleted or altered. A token bound to ``subscription`` may ask in its name.
        """
        return await read_ends(self._link, topics, known, wait, subscription)

    async def delete_topic(self, topic: str) -> None:
        """Removes a topic, its messages and its subscriptions."""
        await self._link.request(DeleteTopic(str(TopicName.parse(topic))))

    async def ledger(
        self,
        topic: str,
        *,
        producer: str | None = None,
        subscription: str | None = None,
        blocks: bool = False,
        segments: bool = False,
    ) -> LedgerInfo:
        """What became of everything: announced, stored, refused, settled; whether it balances; R and UR.

        With ``blocks`` every run of a producer is told of by itself, with ``segments`` also which segments
        exist and which were admitted.
        """
        ask = ShowLedger(str(TopicName.parse(topic)), producer, subscription, blocks, segments)
        return read_result(await self._link.request(ask, retry=True), LedgerInfo)

    async def top(self, pattern: str = "", *, limit: int = 50) -> TopInfo:
        """How busy the node is and how far subscriptions are behind; two readings make rates."""
        return read_result(await self._link.request(ShowTop(pattern, limit), retry=True), TopInfo)

    async def show_node(self) -> Mapping[str, Any]:
        """The node's counters, limits and what recovery found."""
        return read_result(await self._link.request(ShowNode(), retry=True), dict[str, Any])
