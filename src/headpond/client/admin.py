"""Questions to a node, and changes to what it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from headpond.client.arguments import checked_methods
from headpond.client.consume.batch import Batch, read_record
from headpond.client.consume.intake import STATE_TIMEOUT_S
from headpond.client.link.link import Link
from headpond.client.reader import read_ends
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame, TopicNotFound
from headpond.model.grant import without_secret
from headpond.model.message import Message
from headpond.model.names import Place as TreePlace
from headpond.model.names import TopicName
from headpond.model.policy import Policy
from headpond.model.topic_settings import Value
from headpond.wire.control.access import (
    AccessInfo,
    AdminRecord,
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
    TokenInfo,
)
from headpond.wire.control.catalog import (
    AlterTopic,
    ChangeSettings,
    CompactTopic,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    DeleteTopic,
    ListPlaces,
    ListTopics,
    PlaceDeleted,
    PlaceInfo,
    ShowPlace,
    ShowTopic,
    TopicCompaction,
    TopicInfo,
)
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    PAGE_MAX,
    Browse,
    Browsed,
    CreateSubscription,
    DeleteSubscription,
    Deliver,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    PauseSubscription,
    Redrive,
    SeekSubscription,
    ShowSubscription,
    SkippedPage,
    SubscriptionInfo,
    UnackedEntry,
    UnackedPage,
)
from headpond.wire.control.following import PromoteSubscription
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.links import AddPeer, ListPeers, PeerInfo, RemovePeer, ShowPeer
from headpond.wire.control.producing import (
    CreateProducer,
    DeleteProducer,
    ListProducers,
    ProducerInfo,
    ShowProducer,
)
from headpond.wire.control.reading import AdvanceSubscription, Ends
from headpond.wire.control.staging import DeleteWriter, ListWriters, ShowWriter, WriterInfo
from headpond.wire.control.status import ShowNode, ShowTop, TopInfo
from headpond.wire.frame import FILE_BODY_BYTES_MAX, decode_at
from headpond.wire.typed.schema import encode_schema
from headpond.wire.typed.versions import SchemaVersions


@checked_methods
class AccessAdmin:
    """The part of ``client.admin`` that is about who may do what."""

    _link: Link

    async def create_token(
        self,
        name: str,
        *,
        rights: Sequence[str],
        scopes: Sequence[str],
        producer: str = "",
        subscription: str = "",
        lasts: float | None = None,
    ) -> TokenCreated:
        """Makes a token; its ``secret`` is shown here and never again.

        ``rights`` are of ``produce``, ``consume`` and ``admin``; ``scopes`` are written from the tenant down
        (``acme/shop``, ``*`` for everything). ``producer`` and ``subscription`` bind it to one name; ``lasts``
        are seconds.
        """
        ask = CreateToken(name, list(rights), list(scopes), producer, subscription, lasts)
        return read_result(await self._link.request(ask), TokenCreated)

    async def list_tokens(self) -> list[TokenInfo]:
        """The tokens within the scope of this one, revoked ones too."""
        return read_result(await self._link.request(ListTokens(), retry=True), list[TokenInfo])

    async def show_token(self, token: str) -> TokenInfo:
        """One token, by its id or its name."""
        return read_result(await self._link.request(ShowToken(without_secret(token)), retry=True), TokenInfo)

    async def revoke_token(self, token: str) -> None:
        """Ends a token, and at once every connection that was opened with it."""
        await self._link.request(RevokeToken(without_secret(token)))

    async def show_access(self) -> AccessInfo:
        """What this connection may do, and the node's clock."""
        return read_result(await self._link.request(ShowAccess(), retry=True), AccessInfo)

    async def list_admin_log(self, count: int = 100) -> list[AdminRecord]:
        """What was administered, the latest ``count``, oldest first."""
        return read_result(await self._link.request(ListAdminLog(count), retry=True), list[AdminRecord])


@checked_methods
class PeerAdmin:
    """The part of ``client.admin`` that is about links between nodes."""

    _link: Link

    async def add_peer(
        self,
        url: str,
        topics: Sequence[str],
        *,
        direction: str = "pull",
        name: str = "",
        token: str | None = None,
        subscriptions: Sequence[str] = (),
    ) -> PeerInfo:
        """Links the node to the one at ``url``: topics that match follow, those made later too.

        ``direction`` is ``pull`` (the other's messages come here), ``push`` or ``both``. ``name`` is the
        address if none is given; the same name and URL again changes topics, direction and token. ``token`` is
        one of the other node: to consume for ``pull``, of an admin for ``push``. ``subscriptions`` names those
        that follow too: names, beginnings with a star, or ``*`` for all.
        """
        ask = AddPeer(url, list(topics), direction, name, token, list(subscriptions))
        return read_result(await self._link.request(ask), PeerInfo)

    async def list_peers(self) -> list[PeerInfo]:
        """The links of the node, and how each does."""
        return read_result(await self._link.request(ListPeers(), retry=True), list[PeerInfo])

    async def show_peer(self, name: str) -> PeerInfo:
        """One link, with its topics."""
        return read_result(await self._link.request(ShowPeer(name), retry=True), PeerInfo)

    async def remove_peer(self, name: str) -> None:
        """Ends a link. What it brought stays."""
        await self._link.request(RemovePeer(name))


Start = str | int | datetime
Place = tuple[int, int]
"""Shard and entry."""


@checked_methods
class SubscriptionAdmin:
    _link: Link

    async def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        kind: str = "unique",
        mode: str = "non_resilient",
        start: Start = "earliest",
        policy: Policy | None = None,
        exist_ok: bool = False,
        positions: Sequence[int] | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> SubscriptionInfo:
        """Makes a subscription that nobody reads yet: it holds what is stored from ``start`` on.

        ``positions`` are entries to start at, one a shard, in the place of ``start``; ``incarnations`` are
        theirs, as in ``advance``.
        """
        places = None if positions is None else list(positions)
        runs = None if incarnations is None else list(incarnations)
        if policy is not None:
            policy.checked()
        asked = (_full(topic), subscription, kind, mode, _word(start), policy, exist_ok, places, runs)
        ask = CreateSubscription(*asked)
        timeout_s = STATE_TIMEOUT_S if start == "state" else None
        made = await self._link.request(ask, retry=exist_ok, timeout_s=timeout_s)
        return read_result(made, SubscriptionInfo)

    async def list_subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """A topic's subscriptions, or those of all topics, and how far each has come."""
        ask = ListSubscriptions(_full(topic) if topic is not None else "")
        return read_result(await self._link.request(ask, retry=True), list[SubscriptionInfo])

    async def show_subscription(self, topic: str, subscription: str) -> SubscriptionInfo:
        """One subscription, with its policy, its counts and which of its entries are dead."""
        ask = ShowSubscription(_full(topic), subscription)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        await self._link.request(DeleteSubscription(_full(topic), subscription))

    async def seek(
        self, topic: str, subscription: str, to: Start, *, shard: int | None = None
    ) -> SubscriptionInfo:
        """Sets the place: ``earliest``, ``latest``, an entry or a time; of one shard or of all.

        What lies before it counts as settled, what lies behind it comes (again), with attempts counted anew.
        Consumers that are connected begin there; what they had settled and not flushed is dropped.
        """
        ask = SeekSubscription(_full(topic), subscription, _word(to), shard)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def advance(
        self,
        topic: str,
        subscription: str,
        positions: Sequence[int],
        *,
        topic_uuid: bytes | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> list[int]:
        """Acknowledges everything before these positions, one a shard; returns where it stands then.

        For who reads by position (``client.reader``) and keeps a subscription's place with it. It never goes
        back. With ``topic_uuid``, another topic of that name is a ``TopicMismatch``. With ``incarnations``, as
        ``fetch`` and ``ends`` told them with the positions, an old copy that was restored is an
        ``IncarnationChanged``.
        """
        runs = None if incarnations is None else list(incarnations)
        ask = AdvanceSubscription(_full(topic), subscription, list(positions), topic_uuid, runs)
        return read_result(await self._link.request(ask, retry=True), dict[str, list[int]])["positions"]

    async def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Nothing is handed out until ``resume``, whoever is connected; settlements are taken."""
        ask = PauseSubscription(_full(topic), subscription, True)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        ask = PauseSubscription(_full(topic), subscription, False)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def promote(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Makes the passive copy of another node's subscription active here; one that is active stays so.

        From then on nothing that its link brings changes it. What may have been handed out over there and was
        not settled comes again, with an ``attempt`` above 1.
        """
        ask = PromoteSubscription(_full(topic), subscription)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    # --- what is not acknowledged -------------------------------------------------------------------

    async def unacked(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[UnackedEntry]:
        """The entries of the unacked log, and others that a consumer had and did not settle, in order.

        Each with its attempts and what it waits for. ``start`` is (shard, entry); at most ``limit`` come.
        """
        at: Place | None = start
        while at is not None and (limit is None or limit > 0):
            size = PAGE_MAX if limit is None else min(limit, PAGE_MAX)
            ask = ListUnacked(_full(topic), subscription, *at, size)
            page = read_result(await self._link.request(ask, retry=True), UnackedPage)
            for entry in page.entries:
                yield entry
            at, limit = page.next, None if limit is None else limit - len(page.entries)

    async def skipped(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[tuple[int, int, int]]:
        """The entries that consumers skipped, as (shard, first, end), in order; at most ``limit`` ranges."""
        at: Place | None = start
        while at is not None and (limit is None or limit > 0):
            size = PAGE_MAX if limit is None else min(limit, PAGE_MAX)
            ask = ListSkipped(_full(topic), subscription, *at, size)
            page = read_result(await self._link.request(ask, retry=True), SkippedPage)
            for shard, first, end in page.ranges:
                yield shard, first, end
            at, limit = page.next, None if limit is None else limit - len(page.ranges)

    # --- dead letters -------------------------------------------------------------------------------

    async def redrive(
        self, topic: str, subscription: str, entries: Iterable[tuple[int, int]] | None = None
    ) -> int:
        """Offers dead messages again, to this subscription alone; returns how many.

        ``entries`` are (shard, entry) pairs of the topic; None takes all that are dead. Their copies stay in
        the dead-letter topic.
        """
        spans = None if entries is None else [(shard, entry, entry + 1) for shard, entry in entries]
        result = await self._link.request(Redrive(_full(topic), subscription, spans))
        return read_result(result, dict[str, int])["redriven"]

    async def dead_letters(self, topic: str, subscription: str) -> AsyncIterator[Message]:
        """The copies of the messages that are dead now, in the order in which they died.

        Their headers say why: ``dead.reason``, ``dead.attempts``, and the original's ``dead.topic``,
        ``dead.subscription``, ``dead.shard``, ``dead.entry``, ``dead.identity``. Of those without a copy (none
        is kept, it was deleted, it was too large) the original comes last, without reason and attempts.
        """
        info = await self.show_subscription(topic, subscription)
        dead = {(shard, entry) for shard, start, end in info.dead_entries for entry in range(start, end)}
        if not dead:
            return
        copies = await self._copies(info, dead)
        for message in copies.values():
            yield message
        async for message in self._originals(info, dead - copies.keys()):
            yield message

    async def _copies(self, info: SubscriptionInfo, dead: set[Place]) -> dict[Place, Message]:
        """By the original's place; one that was offered again and died again counts by its last death."""
        found: dict[Place, Message] = {}
        target = info.policy.dead_letter if info.policy is not None else None
        if not target:
            return found
        try:
            async for batch in self.browse(target):
                for message in batch.messages():
                    headers = message.headers
                    mine = (headers.get("dead.topic"), headers.get("dead.subscription"))
                    place = _place(headers)
                    if place is not None and place in dead and mine == (info.topic, info.subscription):
                        found.pop(place, None)
                        found[place] = message
        except TopicNotFound:  # nothing of it is left
            found.clear()
        return found

    async def _originals(self, info: SubscriptionInfo, places: set[Place]) -> AsyncIterator[Message]:
        for shard in sorted({shard for shard, _ in places}):
            wanted = {entry for each, entry in places if each == shard}
            last = max(wanted)
            async for batch in self.browse(info.topic, shard=shard, entry=min(wanted)):
                for message in batch.messages():
                    if message.entry in wanted:
                        yield _told(message, info.subscription)
                if batch.spans[-1][1] > last:
                    break

    # --- browsing -----------------------------------------------------------------------------------

    async def browse(
        self, topic: str, *, shard: int | None = None, entry: int = 0, bytes_max: int = 1024 * 1024
    ) -> AsyncIterator[Batch]:
        """What a topic holds now, from an entry on, without a subscription; nothing is settled by it."""
        ask = ShowTopic(_full(topic))
        info = read_result(await self._link.request(ask, retry=True), TopicInfo)
        for each in range(info.shards) if shard is None else [shard]:
            at, end = entry, None
            while end is None or at < end:
                question = Browse(info.topic, each, at, bytes_max)
                found = read_result(await self._link.request(question, retry=True), Browsed)
                end = found.entry_end if end is None else end
                compacted = EntrySet.decode(found.compacted) if found.compacted else EntrySet()
                for record in found.records:
                    if (batch := self._read(record, info, each, at, compacted)) is not None:
                        yield batch
                if found.entry_next <= at:
                    break
                at = found.entry_next

    def _read(
        self, record: bytes, info: TopicInfo, shard: int, entry: int, compacted: EntrySet
    ) -> Batch | None:
        frame = decode_at(record, 0, FILE_BODY_BYTES_MAX)
        if frame is None:
            raise BadFrame("a record that ends too early")
        node = self._link.welcome.node if self._link.welcome is not None else ""
        schemas = SchemaVersions(info.schemas) if info.schemas else None
        there = list(compacted.missing(entry, 2**63))
        return read_record(frame, Deliver(0, shard, 1, 0, there), info.topic, node, schemas)


def _full(topic: str) -> str:
    return str(TopicName.parse(topic))


def _word(start: Start) -> str | int:
    return start.isoformat() if isinstance(start, datetime) else start


def _place(headers: dict[str, str]) -> Place | None:
    """Where a copy's original stands. Anybody may write to a dead-letter topic, so it may say nothing."""
    try:
        return int(headers["dead.shard"]), int(headers["dead.entry"])
    except (KeyError, ValueError):
        return None


def _told(message: Message, subscription: str) -> Message:
    """An original, with the headers that tell where it stands."""
    place = {
        "dead.topic": message.topic,
        "dead.subscription": subscription,
        "dead.shard": str(message.shard),
        "dead.entry": str(message.entry),
        "dead.identity": str(message.identity),
    }
    return msgspec.structs.replace(message, header_items=list({**message.headers, **place}.items()))


Settings = Mapping[str, Value]
"""By name, as docs/tenancy.md lists them: ``{"hard_ttl": "7d", "durability": "os"}``."""


@checked_methods
class TenancyAdmin:
    """The part of ``client.admin`` that is about the tree that topics stand in, and about producers."""

    _link: Link

    # --- tenants, products, components --------------------------------------------------------------

    async def create_tenant(
        self, tenant: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes a tenant."""
        return await self._create("tenant", tenant, settings, exist_ok)

    async def create_product(
        self, product: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT``, with the tenant if that may come into being on first use."""
        return await self._create("product", product, settings, exist_ok)

    async def create_component(
        self, component: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT/COMPONENT``."""
        return await self._create("component", component, settings, exist_ok)

    async def list_tenants(self) -> list[PlaceInfo]:
        return await self._list("tenant")

    async def list_products(self) -> list[PlaceInfo]:
        return await self._list("product")

    async def list_components(self) -> list[PlaceInfo]:
        return await self._list("component")

    async def show_tenant(self, tenant: str) -> PlaceInfo:
        """A tenant, its settings with their origins, and what stands below it."""
        return await self._show("tenant", tenant)

    async def show_product(self, product: str) -> PlaceInfo:
        return await self._show("product", product)

    async def show_component(self, component: str) -> PlaceInfo:
        return await self._show("component", component)

    async def delete_tenant(self, tenant: str, *, recursive: bool = False) -> PlaceDeleted:
        """Removes a tenant; with ``recursive`` also everything below it, messages and subscriptions too."""
        return await self._delete("tenant", tenant, recursive)

    async def delete_product(self, product: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._delete("product", product, recursive)

    async def delete_component(self, component: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._delete("component", component, recursive)

    # --- settings -----------------------------------------------------------------------------------

    async def set_tenant(self, tenant: str, **settings: Value) -> PlaceInfo:
        """Sets what a tenant says; topics below inherit it. None lifts a limit."""
        return await self._change("tenant", tenant, settings, ())

    async def set_product(self, product: str, **settings: Value) -> PlaceInfo:
        return await self._change("product", product, settings, ())

    async def set_component(self, component: str, **settings: Value) -> PlaceInfo:
        return await self._change("component", component, settings, ())

    async def set_topic(self, topic: str, **settings: Value) -> TopicInfo:
        """Sets what a topic says itself: ``await admin.set_topic("orders", hard_ttl="7d")``."""
        ask = ChangeSettings("topic", str(TopicName.parse(topic)), dict(settings))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

    async def unset_tenant(self, tenant: str, *names: str) -> PlaceInfo:
        """Goes back to what is inherited."""
        return await self._change("tenant", tenant, {}, names)

    async def unset_product(self, product: str, *names: str) -> PlaceInfo:
        return await self._change("product", product, {}, names)

    async def unset_component(self, component: str, *names: str) -> PlaceInfo:
        return await self._change("component", component, {}, names)

    async def unset_topic(self, topic: str, *names: str) -> TopicInfo:
        ask = ChangeSettings("topic", str(TopicName.parse(topic)), {}, list(names))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

    # --- producers ----------------------------------------------------------------------------------

    async def create_producer(
        self, topic: str, producer: str, *, access: str = "multiple", exist_ok: bool = False
    ) -> ProducerInfo:
        """Registers a producer's name at a topic: ``single`` lets one instance at a time send under it."""
        ask = CreateProducer(str(TopicName.parse(topic)), producer, access, exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), ProducerInfo)

    async def list_producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """The producers registered at a topic, or at all of them."""
        ask = ListProducers(str(TopicName.parse(topic)) if topic is not None else "")
        return read_result(await self._link.request(ask, retry=True), list[ProducerInfo])

    async def show_producer(self, topic: str, producer: str) -> ProducerInfo:
        ask = ShowProducer(str(TopicName.parse(topic)), producer)
        return read_result(await self._link.request(ask, retry=True), ProducerInfo)

    async def delete_producer(self, topic: str, producer: str) -> None:
        """Removes a registration that nobody uses. Messages stay."""
        await self._link.request(DeleteProducer(str(TopicName.parse(topic)), producer))

    # --- all levels alike ---------------------------------------------------------------------------

    async def _create(self, level: str, name: str, settings: Settings | None, exist_ok: bool) -> PlaceInfo:
        ask = CreatePlace(level, str(TreePlace.parse(name, level)), dict(settings or {}), exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), PlaceInfo)

    async def _list(self, level: str) -> list[PlaceInfo]:
        return read_result(await self._link.request(ListPlaces(level), retry=True), list[PlaceInfo])

    async def _show(self, level: str, name: str) -> PlaceInfo:
        ask = ShowPlace(level, str(TreePlace.parse(name, level)))
        return read_result(await self._link.request(ask, retry=True), PlaceInfo)

    async def _delete(self, level: str, name: str, recursive: bool) -> PlaceDeleted:
        ask = DeletePlace(level, str(TreePlace.parse(name, level)), recursive)
        return read_result(await self._link.request(ask), PlaceDeleted)

    async def _change(self, level: str, name: str, settings: Settings, unset: tuple[str, ...]) -> PlaceInfo:
        ask = ChangeSettings(level, str(TreePlace.parse(name, level)), dict(settings), list(unset))
        return read_result(await self._link.request(ask, retry=True), PlaceInfo)


@checked_methods
class WriterAdmin:
    """The part of ``client.admin`` that is about the writers of staged batches."""

    _link: Link

    async def list_writers(self) -> list[WriterInfo]:
        """All writers that committed a batch or have something staged."""
        return read_result(await self._link.request(ListWriters(), retry=True), list[WriterInfo])

    async def show_writer(self, writer: str) -> WriterInfo:
        """One writer: its newest batch, its counts and what it has staged."""
        return read_result(await self._link.request(ShowWriter(writer), retry=True), WriterInfo)

    async def delete_writer(self, writer: str) -> int:
        """Forgets a writer's batches and drops its stages, whose number is returned; its messages stay.

        A batch that it sends again afterwards is published again.
        """
        result = read_result(await self._link.request(DeleteWriter(writer)), dict[str, int | str | bool])
        return int(result["stages"])


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
