"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headpond.client.admin import COMPACT_TIMEOUT_S, Place, Settings, Start
from headpond.client.admin import Admin as AsyncAdmin
from headpond.client.connect import Client
from headpond.client.consume.batch import Batch
from headpond.model.message import Message
from headpond.model.topic_settings import Value
from headpond.sync.background import Background
from headpond.wire.control.access import AccessInfo, AdminRecord, TokenCreated, TokenInfo
from headpond.wire.control.catalog import PlaceDeleted, PlaceInfo, TopicCompaction, TopicInfo
from headpond.wire.control.consuming import SubscriptionInfo, UnackedEntry
from headpond.wire.control.ledger import LedgerInfo
from headpond.wire.control.links import PeerInfo
from headpond.wire.control.producing import ProducerInfo
from headpond.wire.control.reading import Ends
from headpond.wire.control.staging import WriterInfo
from headpond.wire.control.status import TopInfo


class AccessAdmin:
    """The part of ``client.admin`` that is about who may do what."""

    _admin: AsyncAdmin
    _background: Background

    def create_token(
        self,
        name: str,
        *,
        rights: Sequence[str],
        scopes: Sequence[str],
        producer: str = "",
        subscription: str = "",
        lasts: float | None = None,
    ) -> TokenCreated:
        """Makes a token; its ``secret`` is shown here and never again."""
        made = self._admin.create_token(
            name, rights=rights, scopes=scopes, producer=producer, subscription=subscription, lasts=lasts
        )
        return self._background.run(made)

    def list_tokens(self) -> list[TokenInfo]:
        """The tokens within the scope of this one, revoked ones too."""
        return self._background.run(self._admin.list_tokens())

    def show_token(self, token: str) -> TokenInfo:
        """One token, by its id or its name."""
        return self._background.run(self._admin.show_token(token))

    def revoke_token(self, token: str) -> None:
        """Ends a token, and at once every connection that was opened with it."""
        self._background.run(self._admin.revoke_token(token))

    def show_access(self) -> AccessInfo:
        """What this connection may do, and the node's clock."""
        return self._background.run(self._admin.show_access())

    def list_admin_log(self, count: int = 100) -> list[AdminRecord]:
        """What was administered, the latest ``count``, oldest first."""
        return self._background.run(self._admin.list_admin_log(count))


class PeerAdmin:
    """The part of ``client.admin`` that is about links between nodes."""

    _admin: AsyncAdmin
    _background: Background

    def add_peer(
        self,
        url: str,
        topics: Sequence[str],
        *,
        direction: str = "pull",
        name: str = "",
        token: str | None = None,
        subscriptions: Sequence[str] = (),
    ) -> PeerInfo:
        """Links the node to the one at ``url``: topics that match follow, those made later too."""
        added = self._admin.add_peer(
            url, topics, direction=direction, name=name, token=token, subscriptions=subscriptions
        )
        return self._background.run(added)

    def list_peers(self) -> list[PeerInfo]:
        """The links of the node, and how each does."""
        return self._background.run(self._admin.list_peers())

    def show_peer(self, name: str) -> PeerInfo:
        """One link, with its topics."""
        return self._background.run(self._admin.show_peer(name))

    def remove_peer(self, name: str) -> None:
        """Ends a link. What it brought stays."""
        self._background.run(self._admin.remove_peer(name))


class SubscriptionAdmin:
    _admin: AsyncAdmin
    _background: Background

    def create_subscription(self, topic: str, subscription: str, **options: Any) -> SubscriptionInfo:
        """Makes a subscription that nobody reads yet; kind, mode, start, policy, exist_ok, positions."""
        return self._background.run(self._admin.create_subscription(topic, subscription, **options))

    def list_subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """A topic's subscriptions, or those of all topics, and how far each has come."""
        return self._background.run(self._admin.list_subscriptions(topic))

    def show_subscription(self, topic: str, subscription: str) -> SubscriptionInfo:
        """One subscription, with its policy, its counts and which of its entries are dead."""
        return self._background.run(self._admin.show_subscription(topic, subscription))

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        self._background.run(self._admin.delete_subscription(topic, subscription))

    def seek(self, topic: str, subscription: str, to: Start, *, shard: int | None = None) -> SubscriptionInfo:
        """Sets the place: ``earliest``, ``latest``, an entry or a time; of one shard or of all."""
        return self._background.run(self._admin.seek(topic, subscription, to, shard=shard))

    def advance(
        self,
        topic: str,
        subscription: str,
        positions: Sequence[int],
        *,
        topic_uuid: bytes | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> list[int]:
        """Acknowledges everything before these positions, one a shard; returns where it stands then."""
        done = self._admin.advance(
            topic, subscription, positions, topic_uuid=topic_uuid, incarnations=incarnations
        )
        return self._background.run(done)

    def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Nothing is handed out until ``resume``, whoever is connected."""
        return self._background.run(self._admin.pause(topic, subscription))

    def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        return self._background.run(self._admin.resume(topic, subscription))

    def promote(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Makes the passive copy of another node's subscription active here; one that is active stays so."""
        return self._background.run(self._admin.promote(topic, subscription))

    def unacked(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> list[UnackedEntry]:
        """Entries that a consumer had and did not settle, with their attempts and what each waits for."""

        async def all_of_them() -> list[UnackedEntry]:
            found = self._admin.unacked(topic, subscription, start=start, limit=limit)
            return [entry async for entry in found]

        return self._background.run(all_of_them())

    def skipped(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> list[tuple[int, int, int]]:
        """The entries that consumers skipped, as (shard, first, end), in order."""

        async def all_of_them() -> list[tuple[int, int, int]]:
            found = self._admin.skipped(topic, subscription, start=start, limit=limit)
            return [each async for each in found]

        return self._background.run(all_of_them())

    def redrive(self, topic: str, subscription: str, entries: Iterable[tuple[int, int]] | None = None) -> int:
        """Offers dead messages again, to this subscription alone; returns how many."""
        return self._background.run(self._admin.redrive(topic, subscription, entries))

    def dead_letters(self, topic: str, subscription: str) -> list[Message]:
        """The copies of the messages that are dead now, in the order in which they died."""

        async def all_of_them() -> list[Message]:
            return [message async for message in self._admin.dead_letters(topic, subscription)]

        return self._background.run(all_of_them())

    def browse(self, topic: str, *, shard: int | None = None, entry: int = 0) -> list[Batch]:
        """What a topic holds now, from an entry on, without a subscription."""

        async def all_of_it() -> list[Batch]:
            return [batch async for batch in self._admin.browse(topic, shard=shard, entry=entry)]

        return self._background.run(all_of_it())


class TenancyAdmin:
    """The part of ``client.admin`` that is about the tree that topics stand in, and about producers."""

    _admin: AsyncAdmin
    _background: Background

    # --- tenants, products, components --------------------------------------------------------------

    def create_tenant(
        self, tenant: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes a tenant."""
        return self._background.run(self._admin.create_tenant(tenant, settings=settings, exist_ok=exist_ok))

    def create_product(
        self, product: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT``, with the tenant if that may come into being on first use."""
        return self._background.run(self._admin.create_product(product, settings=settings, exist_ok=exist_ok))

    def create_component(
        self, component: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT/COMPONENT``."""
        return self._background.run(
            self._admin.create_component(component, settings=settings, exist_ok=exist_ok)
        )

    def list_tenants(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_tenants())

    def list_products(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_products())

    def list_components(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_components())

    def show_tenant(self, tenant: str) -> PlaceInfo:
        """A tenant, its settings with their origins, and what stands below it."""
        return self._background.run(self._admin.show_tenant(tenant))

    def show_product(self, product: str) -> PlaceInfo:
        return self._background.run(self._admin.show_product(product))

    def show_component(self, component: str) -> PlaceInfo:
        return self._background.run(self._admin.show_component(component))

    def delete_tenant(self, tenant: str, *, recursive: bool = False) -> PlaceDeleted:
        """Removes a tenant; with ``recursive`` also everything below it, messages and subscriptions too."""
        return self._background.run(self._admin.delete_tenant(tenant, recursive=recursive))

    def delete_product(self, product: str, *, recursive: bool = False) -> PlaceDeleted:
        return self._background.run(self._admin.delete_product(product, recursive=recursive))

    def delete_component(self, component: str, *, recursive: bool = False) -> PlaceDeleted:
        return self._background.run(self._admin.delete_component(component, recursive=recursive))

    # --- settings -----------------------------------------------------------------------------------

    def set_tenant(self, tenant: str, **settings: Value) -> PlaceInfo:
        """Sets what a tenant says; topics below inherit it. None lifts a limit."""
        return self._background.run(self._admin.set_tenant(tenant, **settings))

    def set_product(self, product: str, **settings: Value) -> PlaceInfo:
        return self._background.run(self._admin.set_product(product, **settings))

    def set_component(self, component: str, **settings: Value) -> PlaceInfo:
        return self._background.run(self._admin.set_component(component, **settings))

    def set_topic(self, topic: str, **settings: Value) -> TopicInfo:
        """Sets what a topic says itself: ``admin.set_topic("orders", hard_ttl="7d")``."""
        return self._background.run(self._admin.set_topic(topic, **settings))

    def unset_tenant(self, tenant: str, *names: str) -> PlaceInfo:
        """Goes back to what is inherited."""
        return self._background.run(self._admin.unset_tenant(tenant, *names))

    def unset_product(self, product: str, *names: str) -> PlaceInfo:
        return self._background.run(self._admin.unset_product(product, *names))

    def unset_component(self, component: str, *names: str) -> PlaceInfo:
        return self._background.run(self._admin.unset_component(component, *names))

    def unset_topic(self, topic: str, *names: str) -> TopicInfo:
        return self._background.run(self._admin.unset_topic(topic, *names))

    # --- producers ----------------------------------------------------------------------------------

    def create_producer(
        self, topic: str, producer: str, *, access: str = "multiple", exist_ok: bool = False
    ) -> ProducerInfo:
        """Registers a producer's name at a topic: ``single`` lets one instance at a time send under it."""
        return self._background.run(
            self._admin.create_producer(topic, producer, access=access, exist_ok=exist_ok)
        )

    def list_producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """The producers registered at a topic, or at all of them."""
        return self._background.run(self._admin.list_producers(topic))

    def show_producer(self, topic: str, producer: str) -> ProducerInfo:
        return self._background.run(self._admin.show_producer(topic, producer))

    def delete_producer(self, topic: str, producer: str) -> None:
        """Removes a registration that nobody uses. Messages stay."""
        self._background.run(self._admin.delete_producer(topic, producer))


class WriterAdmin:
    """The part of ``client.admin`` that is about the writers of staged batches."""

    _admin: AsyncAdmin
    _background: Background

    def list_writers(self) -> list[WriterInfo]:
        """All writers that committed a batch or have something staged."""
        return self._background.run(self._admin.list_writers())

    def show_writer(self, writer: str) -> WriterInfo:
        """One writer: its newest batch, its counts and what it has staged."""
        return self._background.run(self._admin.show_writer(writer))

    def delete_writer(self, writer: str) -> int:
        """Forgets a writer's batches and drops its stages, whose number is returned; its messages stay."""
        return self._background.run(self._admin.delete_writer(writer))


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
