"""``client.admin``: requests that show or change what a node keeps.

Every method sends one operation of ``wire/control``, which declares the type of its answer and whether the link
may ask again after a lost connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headpond.client.arguments import checked_methods
from headpond.client.consume.batch import Batch, RecordReader
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
from headpond.wire.control import access, backup, catalog, consuming, links, producing, staging
from headpond.wire.control.access import AccessInfo, AdminRecord, TokenCreated, TokenInfo
from headpond.wire.control.backup import BackupBegun
from headpond.wire.control.catalog import PlaceDeleted, PlaceInfo, TopicCompaction, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import SkippedPage, SubscriptionInfo, UnackedEntry, UnackedPage
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.links import PeerInfo, PromoteSubscription
from headpond.wire.control.operation import OperationOf
from headpond.wire.control.producing import ProducerInfo
from headpond.wire.control.reading import AdvanceSubscription, Ends
from headpond.wire.control.staging import WriterInfo
from headpond.wire.control.status import ShowNode, ShowTop, TopInfo
from headpond.wire.frame import FILE_BODY_BYTES_MAX, decode_at
from headpond.wire.typed.schema import encode_schema
from headpond.wire.typed.versions import SchemaVersions

COMPACT_TIMEOUT_S = 600.0
BACKUP_TIMEOUT_S = 600.0

Start = str | int | datetime
Place = tuple[int, int]
"""Shard and entry."""
Settings = Mapping[str, Value]
"""By name, as docs/tenancy.md lists them: ``{"hard_ttl": "7d", "durability": "os"}``."""
Page = TypeVar("Page", UnackedPage, SkippedPage)
Answer = TypeVar("Answer")


@checked_methods
class Admin:
    """``client.admin``: tenants, topics, producers, writers, subscriptions, tokens, links and the node."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def _ask(
        self, operation: OperationOf[Answer], *, retry: bool | None = None, timeout_s: float | None = None
    ) -> Answer:
        """Asks the node, or the one of the group that has the topic."""
        return await self._link.at_group(lambda link: link.ask(operation, retry=retry, timeout_s=timeout_s))

    # --- topics -------------------------------------------------------------------------------------

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
        """Creates a topic with ``shards`` (a power of two) shards; both are fixed for its life.

        A ``schema`` makes it typed: its messages are rows of these columns, which the node checks. ``state``
        makes it a state topic: every message has a key, the latest one is the key's value, and one without a
        value deletes the key. ``settings`` are the topic's own. With ``exist_ok`` an existing topic is
        returned if rows of this schema fit it; it keeps its settings.
        """
        encoded = encode_schema(schema) if schema is not None else None
        values = {**(settings or {}), **({"state": True} if state else {})}
        ask = catalog.CreateTopic(_full(topic), shards, exist_ok, encoded, values)
        return await self._ask(ask, retry=exist_ok)

    async def alter_topic(self, topic: str, *, schema: pa.Schema) -> TopicInfo:
        """Gives a typed topic a new version of its schema: added nullable columns and wider numbers only.

        Producers with the older schema continue; readers get every row in the newest one.
        """
        return await self._ask(catalog.AlterTopic(_full(topic), encode_schema(schema)))

    async def list_topics(self) -> list[TopicInfo]:
        """All topics of the node."""
        return await self._ask(catalog.ListTopics())

    async def show_topic(self, topic: str) -> TopicInfo:
        """One topic, with its shards."""
        return await self._ask(catalog.ShowTopic(_full(topic)))

    async def compact_topic(self, topic: str, *, timeout: float = COMPACT_TIMEOUT_S) -> TopicCompaction:
        """Removes superseded messages from a state topic's files now; returns when that is done.

        The node also does this automatically, by ``compact_share``. Messages that a subscription has not
        settled stay.
        """
        return await self._ask(catalog.CompactTopic(_full(topic)), timeout_s=timeout)

    async def ends(
        self,
        topics: Sequence[str],
        known: Sequence[Sequence[int]] | None = None,
        *,
        wait: float = 0.0,
        subscription: str = "",
    ) -> list[Ends]:
        """How far each topic reaches: its uuid (None: no topic has that name) and the ends of its shards.

        With ``known`` (the next entries of an earlier answer, by topic and shard) the node waits up to ``wait``
        seconds until there is more, or a topic is deleted or altered. A token bound to ``subscription`` may ask
        in its name.
        """
        return await self._link.at_group(lambda link: read_ends(link, topics, known, wait, subscription))

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic, its messages and its subscriptions."""
        await self._ask(catalog.DeleteTopic(_full(topic)))

    async def browse(
        self, topic: str, *, shard: int | None = None, entry: int = 0, bytes_max: int = 1024 * 1024
    ) -> AsyncIterator[Batch]:
        """The messages that a topic holds now, from an entry on, without a subscription; it settles nothing."""
        link, info = await self._link.at_group(partial(_show_topic, topic))
        node = link.welcome.node if link.welcome is not None else ""
        reader = RecordReader(info.topic, node, SchemaVersions(info.schemas) if info.schemas else None)
        for each in range(info.shards) if shard is None else [shard]:
            at, end = entry, None
            while end is None or at < end:
                found = await link.ask(consuming.Browse(info.topic, each, at, bytes_max))
                end = found.entry_end if end is None else end
                compacted = EntrySet.decode(found.compacted) if found.compacted else EntrySet()
                deliver = consuming.Deliver(0, each, 1, 0, list(compacted.missing(at, 2**63)))
                for record in found.records:
                    if (frame := decode_at(record, 0, FILE_BODY_BYTES_MAX)) is None:
                        raise BadFrame("a record ends too early")
                    if (batch := reader.read([frame], deliver)) is not None:
                        yield batch
                if found.entry_next <= at:
                    break
                at = found.entry_next

    async def ledger(
        self,
        topic: str,
        *,
        producer: str | None = None,
        subscription: str | None = None,
        blocks: bool = False,
        segments: bool = False,
    ) -> LedgerInfo:
        """The account of every message: announced, stored, refused, settled; whether it balances; R and UR.

        ``blocks`` adds an account of every run of a producer, ``segments`` also which segments exist and which
        the node admitted.
        """
        return await self._ask(ShowLedger(_full(topic), producer, subscription, blocks, segments))

    # --- tenants, products, components --------------------------------------------------------------

    async def create_tenant(
        self, tenant: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Creates a tenant."""
        return await self._create("tenant", tenant, settings, exist_ok)

    async def create_product(
        self, product: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Creates ``TENANT/PRODUCT``, and the tenant if the node allows that on first use."""
        return await self._create("product", product, settings, exist_ok)

    async def create_component(
        self, component: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Creates ``TENANT/PRODUCT/COMPONENT``."""
        return await self._create("component", component, settings, exist_ok)

    async def list_tenants(self) -> list[PlaceInfo]:
        return await self._ask(catalog.ListPlaces("tenant"))

    async def list_products(self) -> list[PlaceInfo]:
        return await self._ask(catalog.ListPlaces("product"))

    async def list_components(self) -> list[PlaceInfo]:
        return await self._ask(catalog.ListPlaces("component"))

    async def show_tenant(self, tenant: str) -> PlaceInfo:
        """A tenant, its settings with their origins, and the places and topics below it."""
        return await self._ask(catalog.ShowPlace("tenant", _place("tenant", tenant)))

    async def show_product(self, product: str) -> PlaceInfo:
        return await self._ask(catalog.ShowPlace("product", _place("product", product)))

    async def show_component(self, component: str) -> PlaceInfo:
        return await self._ask(catalog.ShowPlace("component", _place("component", component)))

    async def delete_tenant(self, tenant: str, *, recursive: bool = False) -> PlaceDeleted:
        """Deletes a tenant; with ``recursive`` also everything below it, messages and subscriptions too."""
        return await self._ask(catalog.DeletePlace("tenant", _place("tenant", tenant), recursive))

    async def delete_product(self, product: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._ask(catalog.DeletePlace("product", _place("product", product), recursive))

    async def delete_component(self, component: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._ask(catalog.DeletePlace("component", _place("component", component), recursive))

    async def _create(self, level: str, name: str, settings: Settings | None, exist_ok: bool) -> PlaceInfo:
        ask = catalog.CreatePlace(level, _place(level, name), dict(settings or {}), exist_ok)
        return await self._ask(ask, retry=exist_ok)

    # --- settings -----------------------------------------------------------------------------------

    async def set_tenant(self, tenant: str, **settings: Value) -> PlaceInfo:
        """Changes settings of a tenant; topics below it inherit them. None lifts a limit."""
        return await self._change("tenant", tenant, settings, ())

    async def set_product(self, product: str, **settings: Value) -> PlaceInfo:
        return await self._change("product", product, settings, ())

    async def set_component(self, component: str, **settings: Value) -> PlaceInfo:
        return await self._change("component", component, settings, ())

    async def set_topic(self, topic: str, **settings: Value) -> TopicInfo:
        """Changes a topic's own settings: ``await admin.set_topic("orders", hard_ttl="7d")``."""
        changed = await self._ask(catalog.ChangeSettings("topic", _full(topic), dict(settings)))
        return read_result(changed, TopicInfo)

    async def unset_tenant(self, tenant: str, *names: str) -> PlaceInfo:
        """Removes settings of a tenant, so that it inherits them."""
        return await self._change("tenant", tenant, {}, names)

    async def unset_product(self, product: str, *names: str) -> PlaceInfo:
        return await self._change("product", product, {}, names)

    async def unset_component(self, component: str, *names: str) -> PlaceInfo:
        return await self._change("component", component, {}, names)

    async def unset_topic(self, topic: str, *names: str) -> TopicInfo:
        changed = await self._ask(catalog.ChangeSettings("topic", _full(topic), {}, list(names)))
        return read_result(changed, TopicInfo)

    async def _change(self, level: str, name: str, settings: Settings, unset: tuple[str, ...]) -> PlaceInfo:
        ask = catalog.ChangeSettings(level, _place(level, name), dict(settings), list(unset))
        return read_result(await self._ask(ask), PlaceInfo)

    # --- producers ----------------------------------------------------------------------------------

    async def create_producer(
        self, topic: str, producer: str, *, access: str = "multiple", exist_ok: bool = False
    ) -> ProducerInfo:
        """Registers a producer's name at a topic: ``single`` lets one instance at a time send under it."""
        return await self._ask(
            producing.CreateProducer(_full(topic), producer, access, exist_ok), retry=exist_ok
        )

    async def list_producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """The producers registered at a topic, or at all of them."""
        return await self._ask(producing.ListProducers(_full_or_all(topic)))

    async def show_producer(self, topic: str, producer: str) -> ProducerInfo:
        return await self._ask(producing.ShowProducer(_full(topic), producer))

    async def delete_producer(self, topic: str, producer: str) -> None:
        """Deletes a registration that no producer uses. Messages stay."""
        await self._ask(producing.DeleteProducer(_full(topic), producer))

    # --- writers of staged batches ------------------------------------------------------------------

    async def list_writers(self) -> list[WriterInfo]:
        """All writers that committed a batch or have stages."""
        return await self._ask(staging.ListWriters())

    async def show_writer(self, writer: str) -> WriterInfo:
        """One writer: its newest batch, its counts and its stages."""
        return await self._ask(staging.ShowWriter(writer))

    async def delete_writer(self, writer: str) -> int:
        """Forgets a writer's batches and drops its stages; returns how many stages. Its messages stay.

        The node publishes a batch again if the writer sends it again later.
        """
        return int((await self._ask(staging.DeleteWriter(writer)))["stages"])

    # --- subscriptions ------------------------------------------------------------------------------

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
        """Creates a subscription without a consumer: the node keeps messages for it from ``start`` on.

        ``positions`` are entries to start at, one per shard, instead of ``start``; ``incarnations`` are theirs,
        as in ``advance``.
        """
        if policy is not None:
            policy.checked()
        asked = (_full(topic), subscription, kind, mode, _word(start), policy, exist_ok)
        ask = consuming.CreateSubscription(*asked, _list(positions), _list(incarnations))
        return await self._ask(ask, retry=exist_ok, timeout_s=STATE_TIMEOUT_S if start == "state" else None)

    async def list_subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """The subscriptions of a topic, or of all topics, and how far each one has come."""
        return await self._ask(consuming.ListSubscriptions(_full_or_all(topic)))

    async def show_subscription(self, topic: str, subscription: str) -> SubscriptionInfo:
        """One subscription, with its policy, its counts and its dead entries."""
        return await self._ask(consuming.ShowSubscription(_full(topic), subscription))

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Deletes a subscription; ``SubscriptionBusy`` while a consumer reads it."""
        await self._ask(consuming.DeleteSubscription(_full(topic), subscription))

    async def seek(
        self, topic: str, subscription: str, to: Start, *, shard: int | None = None
    ) -> SubscriptionInfo:
        """Moves a subscription to ``earliest``, ``latest``, an entry or a time, in one shard or in all.

        Entries before the new position count as settled; the node delivers later ones (again), as first
        attempts. Connected consumers continue there; settlements that they have not flushed are dropped.
        """
        return await self._ask(consuming.SeekSubscription(_full(topic), subscription, _word(to), shard))

    async def advance(
        self,
        topic: str,
        subscription: str,
        positions: Sequence[int],
        *,
        topic_uuid: bytes | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> list[int]:
        """Acknowledges everything before these positions, one per shard; returns the positions after that.

        It is for a program that reads by position (``client.reader``) and records its progress in a
        subscription. A position never moves back. With ``topic_uuid``, another topic of that name is a
        ``TopicMismatch``. With ``incarnations``, as ``fetch`` and ``ends`` returned them with the positions, a
        topic restored from an old copy is an ``IncarnationChanged``.
        """
        ask = AdvanceSubscription(_full(topic), subscription, list(positions), topic_uuid, _list(incarnations))
        return (await self._ask(ask))["positions"]

    async def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Stops delivery to all consumers until ``resume``; the node still takes settlements."""
        return await self._ask(consuming.PauseSubscription(_full(topic), subscription, True))

    async def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        return await self._ask(consuming.PauseSubscription(_full(topic), subscription, False))

    async def promote(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Makes the passive copy of another node's subscription active here; an active one stays active.

        From then on its link does not change it. Messages that the other node may have delivered and that were
        not settled are redelivered, with an ``attempt`` above 1.
        """
        return await self._ask(PromoteSubscription(_full(topic), subscription))

    async def unacked(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[UnackedEntry]:
        """The entries that a consumer got and did not settle, in order, the unacked log among them.

        Each one has its attempts and what its redelivery waits for. ``start`` is (shard, entry); at most
        ``limit`` entries come.
        """
        ask = partial(consuming.ListUnacked, _full(topic), subscription)
        async for page in self._pages(ask, lambda page: len(page.entries), start, limit):
            for entry in page.entries:
                yield entry

    async def skipped(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[tuple[int, int, int]]:
        """The entries that consumers skipped, as (shard, first, end), in order; at most ``limit`` ranges."""
        ask = partial(consuming.ListSkipped, _full(topic), subscription)
        async for page in self._pages(ask, lambda page: len(page.ranges), start, limit):
            for each in page.ranges:
                yield each

    async def _pages(
        self,
        ask: Callable[[int, int, int], OperationOf[Page]],
        count: Callable[[Page], int],
        start: Place,
        limit: int | None,
    ) -> AsyncIterator[Page]:
        at: Place | None = start
        while at is not None and (limit is None or limit > 0):
            page = await self._ask(ask(*at, min(limit or consuming.PAGE_MAX, consuming.PAGE_MAX)))
            yield page
            at, limit = page.next, None if limit is None else limit - count(page)

    # --- dead letters -------------------------------------------------------------------------------

    async def redrive(
        self, topic: str, subscription: str, entries: Iterable[tuple[int, int]] | None = None
    ) -> int:
        """Delivers dead messages again, to this subscription alone; returns how many.

        ``entries`` are (shard, entry) pairs of the topic; None takes all dead ones. Their copies stay in the
        dead-letter topic.
        """
        spans = None if entries is None else [(shard, entry, entry + 1) for shard, entry in entries]
        return (await self._ask(consuming.Redrive(_full(topic), subscription, spans)))["redriven"]

    async def dead_letters(self, topic: str, subscription: str) -> AsyncIterator[Message]:
        """The copies of the messages that are dead now, in the order in which they died.

        Their headers say why: ``dead.reason``, ``dead.attempts``, and the original's ``dead.topic``,
        ``dead.subscription``, ``dead.shard``, ``dead.entry``, ``dead.identity``. A message without a copy (the
        policy keeps none, it was deleted, or it was too large) comes last, as the original, without reason and
        attempts.
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
        """By the original's place. A message that was redriven and died again counts by its last death."""
        found: dict[Place, Message] = {}
        target = info.policy.dead_letter if info.policy is not None else None
        if not target:
            return found
        try:
            async for batch in self.browse(target):
                for message in batch.messages():
                    headers = message.headers
                    mine = (headers.get("dead.topic"), headers.get("dead.subscription"))
                    place = _original_place(headers)
                    if place is not None and place in dead and mine == (info.topic, info.subscription):
                        found.pop(place, None)
                        found[place] = message
        except TopicNotFound:  # somebody deleted the dead-letter topic
            found.clear()
        return found

    async def _originals(self, info: SubscriptionInfo, places: set[Place]) -> AsyncIterator[Message]:
        for shard in sorted({shard for shard, _ in places}):
            wanted = {entry for each, entry in places if each == shard}
            last = max(wanted)
            async for batch in self.browse(info.topic, shard=shard, entry=min(wanted)):
                for message in batch.messages():
                    if message.entry in wanted:
                        yield _with_place(message, info.subscription)
                if batch.spans[-1][1] > last:
                    break

    # --- tokens and the log of administration -------------------------------------------------------

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
        """Creates a token; only this answer contains its ``secret``.

        ``rights`` are among ``produce``, ``consume`` and ``admin``; ``scopes`` are written from the tenant down
        (``acme/shop``, ``*`` for everything). ``producer`` and ``subscription`` bind it to one name; ``lasts``
        is in seconds.
        """
        return await self._ask(
            access.CreateToken(name, list(rights), list(scopes), producer, subscription, lasts)
        )

    async def list_tokens(self) -> list[TokenInfo]:
        """The tokens within the scope of this one, revoked ones too."""
        return await self._ask(access.ListTokens())

    async def show_token(self, token: str) -> TokenInfo:
        """One token, by its id or its name."""
        return await self._ask(access.ShowToken(without_secret(token)))

    async def revoke_token(self, token: str) -> None:
        """Revokes a token, and closes every connection that uses it."""
        await self._ask(access.RevokeToken(without_secret(token)))

    async def show_access(self) -> AccessInfo:
        """What this connection may do, and the node's clock."""
        return await self._ask(access.ShowAccess())

    async def list_admin_log(self, count: int = 100) -> list[AdminRecord]:
        """The latest ``count`` administrative operations, oldest first."""
        return await self._ask(access.ListAdminLog(count))

    # --- links to other nodes -----------------------------------------------------------------------

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
        """Links the node to the one at ``url``: it copies topics that match, also those created later.

        ``direction`` is ``pull`` (from the other node to this one), ``push`` or ``both``. ``name`` is the
        address if none is given; the same name and URL again changes topics, direction and token. ``token``
        belongs to the other node: it may consume for ``pull`` and is an admin's for ``push``.
        ``subscriptions`` names those to copy too: names, prefixes with a star, or ``*`` for all.
        """
        return await self._ask(links.AddPeer(url, list(topics), direction, name, token, list(subscriptions)))

    async def list_peers(self) -> list[PeerInfo]:
        """The links of the node, and the state of each."""
        return await self._ask(links.ListPeers())

    async def show_peer(self, name: str) -> PeerInfo:
        """One link, with its topics."""
        return await self._ask(links.ShowPeer(name))

    async def remove_peer(self, name: str) -> None:
        """Removes a link. The messages that it copied stay."""
        await self._ask(links.RemovePeer(name))

    # --- the node -----------------------------------------------------------------------------------

    async def top(self, pattern: str = "", *, limit: int = 50) -> TopInfo:
        """How busy the node is and how far subscriptions are behind; two readings give rates."""
        return await self._ask(ShowTop(pattern, limit))

    async def show_node(self) -> Mapping[str, Any]:
        """The node's counters, its limits and the findings of recovery."""
        return await self._ask(ShowNode())

    async def begin_backup(self) -> BackupBegun:
        """Holds the node's files as they are now, in a folder of its machine, until ``end_backup``.

        ``headpond backup`` copies that folder. The connection must stay open until then.
        """
        return await self._ask(backup.BeginBackup(), timeout_s=BACKUP_TIMEOUT_S)

    async def end_backup(self) -> None:
        """Ends the backup that this client began."""
        await self._ask(backup.EndBackup(), timeout_s=BACKUP_TIMEOUT_S)


async def _show_topic(topic: str, link: Link) -> tuple[Link, TopicInfo]:
    return link, await link.ask(catalog.ShowTopic(_full(topic)))


def _full(topic: str) -> str:
    return str(TopicName.parse(topic))


def _full_or_all(topic: str | None) -> str:
    """Empty for all topics."""
    return "" if topic is None else _full(topic)


def _place(level: str, name: str) -> str:
    return str(TreePlace.parse(name, level))


def _word(start: Start) -> str | int:
    return start.isoformat() if isinstance(start, datetime) else start


def _list(numbers: Sequence[int] | None) -> list[int] | None:
    return None if numbers is None else list(numbers)


def _original_place(headers: dict[str, str]) -> Place | None:
    """Shard and entry of a copy's original; None if the copy is not the node's: any client may write one."""
    try:
        return int(headers["dead.shard"]), int(headers["dead.entry"])
    except (KeyError, ValueError):
        return None


def _with_place(message: Message, subscription: str) -> Message:
    """An original, with the headers that a copy has of its place."""
    place = {
        "dead.topic": message.topic,
        "dead.subscription": subscription,
        "dead.shard": str(message.shard),
        "dead.entry": str(message.entry),
        "dead.identity": str(message.identity),
    }
    return msgspec.structs.replace(message, header_items=list({**message.headers, **place}.items()))
