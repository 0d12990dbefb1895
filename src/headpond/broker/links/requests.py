"""Links between nodes: created, shown and removed; the operations of both ends of a link.

``node/links`` dials the other node and carries records from a source to a sink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.topic_requests import TopicListener, TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.links.follow_sink import FollowSink
from headpond.broker.links.follow_source import FollowSource, check_names
from headpond.broker.links.link_table import (
    Barred,
    Lifted,
    LinkEnded,
    LinkMade,
    LinkProgress,
    PlacesGone,
)
from headpond.broker.links.sink import PeerSink
from headpond.broker.links.source import PeerSource
from headpond.broker.links.status import LinkStatus
from headpond.broker.reading.fetch import Fetcher
from headpond.broker.session import Session, hold_unacked
from headpond.broker.steps import Steps, journaled, on_disk
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Dispatcher
from headpond.broker.subscriptions.requests import SubscriptionRequests
from headpond.model.address import parse_addresses
from headpond.model.errors import BadRequest, HeadpondError, LimitReached, PeerExists, PeerNotFound
from headpond.model.grant import ALL
from headpond.model.names import TopicPatterns
from headpond.wire.control.consuming import SubscriptionInfo
from headpond.wire.control.links import (
    AddPeer,
    ListPeers,
    PeerInfo,
    PromoteSubscription,
    RemovePeer,
    ShowPeer,
    decode_peer,
)
from headpond.wire.frame import Frame

DIRECTIONS = ("pull", "push", "both")
LINKS_MAX = 64
NAME_LENGTH_MAX = 64
RECORD_COST_BYTES = 512


class LinkRequests(TopicListener):
    def __init__(
        self,
        context: Context,
        stores: Stores,
        quotas: Quotas,
        watermark: Watermark,
        topics: TopicRequests,
        consuming: Dispatcher,
        fetching: Fetcher,
        subscriptions: SubscriptionRequests,
    ) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._quotas = quotas
        self._subscriptions = subscriptions
        self.links = stores.peers
        self.progress = LinkProgress(context, stores.catalog, stores.peers, stores.peers_journal)
        self.source = PeerSource(context, stores.catalog)
        self._follow_source = FollowSource(context, stores, fetching)
        self._follow_sink = FollowSink(context, stores, consuming, self.progress)
        self.sink = PeerSink(
            context, stores, topics, quotas, watermark, self.progress, self._follow_sink.stored
        )
        self._status: dict[str, LinkStatus] = {}
        self._coming: dict[str, LinkMade | LinkEnded] = {}
        """By link: the last change that was requested and is not on the disk yet."""
        self.claims: dict[tuple[str, str, str], int] = {}
        """By direction, other node and topic: the link that copies it, so that two links do not both."""
        self.on_links: Callable[[], None] = lambda: None
        """Called when a link was created or removed."""
        self.parts = (self, self.source, self.sink, self._follow_source, self._follow_sink)
        """Those with handlers of operations."""

    def promote_subscription(self, session: Session, ask: PromoteSubscription) -> Steps[SubscriptionInfo]:
        topic, subscription = self._subscriptions.find(ask.topic, ask.subscription)
        self._follow_sink.promote(topic, subscription)
        yield on_disk(self._stores.settlements.lane)
        return self._subscriptions.info(topic, subscription)

    def on_record(self, session: Session, frame: Frame) -> None:
        """A PEER frame: its bytes count against the connection's window until they are on the disk."""
        uuid, header, record = decode_peer(frame.body)
        self.sink.take(session.connection, uuid, frame.shard, frame.segment, header, record)
        topic = self._catalog.by_uuid(uuid)
        if topic is None or frame.shard >= len(topic.shards):
            return
        self._quotas.charge(session, topic, size=len(record))
        hold_unacked(self._context, session, len(record) + RECORD_COST_BYTES, topic.shards[frame.shard].lane)

    def on_disconnect(self, connection: int) -> None:
        self.source.on_disconnect(connection)
        self.sink.on_disconnect(connection)
        self._follow_source.on_disconnect(connection)

    # --- links --------------------------------------------------------------------------------------

    def infos(self) -> list[PeerInfo]:
        """Every link, in short."""
        return [self._info(made) for made in sorted(self.links.links.values(), key=lambda made: made.name)]

    def list_peers(self, session: Session, ask: ListPeers) -> list[PeerInfo]:
        return self.infos()

    def show_peer(self, session: Session, ask: ShowPeer) -> PeerInfo:
        return self._info(_found(ask.peer, self.links.links.get(ask.peer)), whole=True)

    def status(self, name: str) -> LinkStatus:
        """The status of a link; a new one is connecting."""
        if name not in self._status:
            self._status[name] = LinkStatus(self._context.now_us)
        return self._status[name]

    def _newest(self, name: str) -> LinkMade | None:
        """A link with all requested changes, also those that are not on the disk yet."""
        newest = self._coming.get(name, self.links.links.get(name))
        return newest if isinstance(newest, LinkMade) else None

    def _info(self, made: LinkMade, *, whole: bool = False) -> PeerInfo:
        return self.status(made.name).info(made, whole=whole)

    def add_peer(self, session: Session, ask: AddPeer) -> Steps[PeerInfo]:
        addresses = parse_addresses(ask.url)
        TopicPatterns.parse(ask.topics)
        check_names(ask.subscriptions)
        name = ask.name or str(addresses[0])
        if ask.direction not in DIRECTIONS:
            raise BadRequest(f"there is no direction {ask.direction[:40]!r}", hint="It is pull, push or both.")
        if len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise BadRequest(f"the name of a link has at most {NAME_LENGTH_MAX} printable characters")
        if ask.secret is not None and not ask.secret:
            raise BadRequest("the token is empty", hint="A token looks like hpd_ID_SECRET.")
        known = self._newest(name)
        if known is not None and known.url != ask.url:
            raise PeerExists(f"link {name!r} leads to {known.url}")
        links = [each for each in (self.links.links | self._coming).values() if isinstance(each, LinkMade)]
        if known is None and len(links) >= LINKS_MAX:
            raise LimitReached(f"a node has at most {LINKS_MAX} links")
        made_us = known.made_at_us if known is not None else self._context.now_us()
        made = LinkMade(
            name, ask.url, ask.topics, ask.direction, ask.secret, made_us, session.token, ask.subscriptions
        )
        yield from self._change(made)
        return self._info(made)

    def remove_peer(self, session: Session, ask: RemovePeer) -> Steps[dict[str, Any]]:
        made = _found(ask.peer, self._newest(ask.peer))
        yield from self._change(LinkEnded(made.name))
        return {"peer": made.name, "removed": True}

    def _change(self, change: LinkMade | LinkEnded) -> Steps[None]:
        """Creates, changes or removes a link; it takes effect once it is on the disk."""
        name = change.name
        self._coming[name] = change
        try:
            yield journaled(self._stores.peers_journal, change)
        finally:
            if self._coming.get(name) is change:
                del self._coming[name]
        if self.links.links.get(name) != change:  # else the link stays as it is
            self._status.pop(name, None)
        self.links.apply(change)
        self.progress.hold(*self._catalog)
        self.on_links()

    # --- topics -------------------------------------------------------------------------------------

    def before_deletion(self, topics: list[Topic]) -> Steps[None]:
        """Notes on disk that no link may create these topics again."""
        now_us = self._context.now_us()
        bars = [
            Barred(topic.name, now_us)
            for topic in topics
            if self.links.concerns(topic.name, topic.uuid) or self.sink.is_fed(topic.uuid)
        ]
        if bars:
            yield journaled(self._stores.peers_journal, *bars)
            for bar in bars:
                self.links.apply(bar)

    def topic_created(self, topic: Topic) -> None:
        if topic.name in self.links.barred:
            self._stores.peers_journal.note(Lifted(topic.name))
        self.source.touched([topic.name])
        self.progress.hold(topic)

    def topic_altered(self, topic: Topic) -> None:
        self.source.touched([topic.name])

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        if topic.uuid in self.links.places:
            self._stores.peers_journal.note(PlacesGone(topic.uuid))
        self.source.touched([topic.name])


def _found(name: str, made: LinkMade | None) -> LinkMade:
    if made is None:
        raise PeerNotFound(f"there is no link {name[:NAME_LENGTH_MAX]!r}")
    return made


def local_session(number: int) -> Session:
    """The session in which the node itself carries out operations for one of its links."""
    return Session(number, cast(Any, None), greeted=True, grant=ALL)
