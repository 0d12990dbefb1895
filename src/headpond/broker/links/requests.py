"""Links between nodes: made and removed, asked about, and what both ends of one have to decide.

Reading order: peer_links (what is remembered), peer_source (a node that gives), peer_sink (one that takes),
peer_stream (a shard on its way from the one to the other), peer_status (what people see);
node/links/links.py carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from headpond.broker.catalog.topics import Topic
from headpond.broker.links.follow_sink import Following
from headpond.broker.links.follow_source import check_names
from headpond.broker.links.link_table import (
    Barred,
    Lifted,
    LinkEnded,
    LinkMade,
    PeerChange,
    PlaceNoted,
    PlacesGone,
    encode_change,
)
from headpond.broker.links.sink import PeerSink
from headpond.broker.links.source import PeerSource
from headpond.broker.links.status import LinkStatus
from headpond.broker.reading.fetch import Answer, Refuse
from headpond.broker.session import Session
from headpond.model.address import parse_addresses
from headpond.model.errors import BadRequest, HeadpondError, LimitReached, PeerExists, PeerNotFound
from headpond.model.grant import ALL
from headpond.model.names import TopicPatterns
from headpond.wire.control.codec import Operation
from headpond.wire.control.links import (
    AddPeer,
    AdmitRecords,
    FollowTopics,
    ListPeers,
    OfferHeads,
    OpenFeed,
    PeerInfo,
    ReadHeads,
    RemovePeer,
    ShowPeer,
    SourcePosition,
    decode_peer,
)
from headpond.wire.frame import Frame

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

logger = logging.getLogger("headpond.node")

DIRECTIONS = ("pull", "push", "both")
LINKS_MAX = 64
NAME_LENGTH_MAX = 64
NOTE_EVERY_US = 1_000_000
"""Places are written down so often at the most: one that is lost costs a look at some heads."""
HOLD_EVERY_US = 3600 * 1_000_000
RECORD_COST_BYTES = 512


class Peering:
    def __init__(self, node: NodeCore) -> None:
        self.node = node
        self.links = node.stores.peers
        self.source = PeerSource(node)
        self.sink = PeerSink(self)
        self.following = Following(self)
        self._status: dict[str, LinkStatus] = {}
        self._coming: dict[str, LinkMade | LinkEnded] = {}
        """By link: the last change that was asked for and is not on the disk yet."""
        self.claims: dict[tuple[str, str, str], int] = {}
        """By direction, other node and topic: the link that carries it, so that two to one node do not both."""
        self.on_links: Callable[[], None] = lambda: None
        """Called when a link was made or removed."""
        self.unacked_bytes = 0
        self._dirty: set[tuple[bytes, str, int]] = set()
        self._noted_us = 0
        self._note_alarm = node.alarms.add(self.note_places)
        self._hold_alarm = node.alarms.add(self._hold_again)
        self._hold_alarm.by(node.clock_us() + HOLD_EVERY_US)
        self._check_places()

    # --- requests -----------------------------------------------------------------------------------

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about links."""
        if isinstance(operation, AddPeer):
            self._add(session, operation, answer, refuse)
        elif isinstance(operation, ListPeers):
            answer(self.infos())
        elif isinstance(operation, ShowPeer):
            answer(self._info(_found(operation.peer, self.links.links.get(operation.peer)), whole=True))
        elif isinstance(operation, RemovePeer):
            self._remove(_found(operation.peer, self._newest(operation.peer)), answer, refuse)
        elif isinstance(operation, FollowTopics):
            self.source.follow(session.connection, session.grant, operation, answer)
        elif isinstance(operation, ReadHeads):
            self.source.heads(session.connection, operation, answer, refuse)
        elif isinstance(operation, OpenFeed):
            self.sink.open_feed(session.connection, operation, answer, refuse)
        elif isinstance(operation, OfferHeads):
            answer(self.sink.offer(session.connection, operation))
        elif isinstance(operation, AdmitRecords):
            self.sink.admit(session.connection, operation, answer, refuse)
        else:
            return self.following.on_request(session, operation, answer, refuse)
        return True

    def on_record(self, session: Session, frame: Frame) -> None:
        """A PEER frame: its bytes count against the connection's window until they are on the disk."""
        uuid, header, record = decode_peer(frame.body)
        self.sink.take(session.connection, uuid, frame.shard, frame.segment, header, record)
        topic = self.node.catalog.by_uuid(uuid)
        if topic is None or frame.shard >= len(topic.shards):
            return
        self.node.quotas.charge(session, topic, size=len(record))
        size = len(record) + RECORD_COST_BYTES
        session.unacked_bytes += size
        self.unacked_bytes += size

        def durable(error: HeadpondError | None) -> None:
            session.unacked_bytes -= size
            self.unacked_bytes -= size

        topic.shards[frame.shard].lane.wait(durable)

    def on_disconnect(self, connection: int) -> None:
        self.source.on_disconnect(connection)
        self.sink.on_disconnect(connection)
        self.following.source.on_disconnect(connection)

    # --- links --------------------------------------------------------------------------------------

    def infos(self) -> list[PeerInfo]:
        """Every link, in short."""
        return [self._info(made) for made in sorted(self.links.links.values(), key=lambda made: made.name)]

    def status(self, name: str) -> LinkStatus:
        """How a link does; one that nobody has dialled yet is about to be connected."""
        if name not in self._status:
            self._status[name] = LinkStatus(self.node.now_us)
        return self._status[name]

    def _newest(self, name: str) -> LinkMade | None:
        """A link with every change that was requested so far, also those that are not on the disk yet."""
        newest = self._coming.get(name, self.links.links.get(name))
        return newest if isinstance(newest, LinkMade) else None

    def _info(self, made: LinkMade, *, whole: bool = False) -> PeerInfo:
        return self.status(made.name).info(made, whole=whole)

    def _add(self, session: Session, ask: AddPeer, answer: Answer, refuse: Refuse) -> None:
        addresses = parse_addresses(ask.url)
        TopicPatterns.parse(ask.topics)
        check_names(ask.subscriptions)
        name = ask.name or str(addresses[0])
        if ask.direction not in DIRECTIONS:
            raise BadRequest(f"there is no direction {ask.direction[:40]!r}", hint="It is pull, push or both.")
        if len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise BadRequest(f"a link's name is at most {NAME_LENGTH_MAX} characters that can be printed")
        if ask.secret is not None and not ask.secret:
            raise BadRequest("what was given is not a token", hint="A token looks like hpd_ID_SECRET.")
        known = self._newest(name)
        if known is not None and known.url != ask.url:
            raise PeerExists(f"link {name!r} leads to {known.url}")
        links = [each for each in (self.links.links | self._coming).values() if isinstance(each, LinkMade)]
        if known is None and len(links) >= LINKS_MAX:
            raise LimitReached(f"a node has at most {LINKS_MAX} links")
        made_us = known.made_at_us if known is not None else self.node.now_us()
        made = LinkMade(name, ask.url, ask.topics, ask.direction, ask.secret, made_us, session.token)
        made = msgspec.structs.replace(made, subscriptions=ask.subscriptions)

        self._change(made, lambda: answer(self._info(made)), refuse)

    def _remove(self, made: LinkMade, answer: Answer, refuse: Refuse) -> None:
        self._change(LinkEnded(made.name), lambda: answer({"peer": made.name, "removed": True}), refuse)

    def _change(self, change: LinkMade | LinkEnded, done: Callable[[], None], refuse: Refuse) -> None:
        """Makes a link what it is to be, or ends it, in one step, once that is on the disk."""
        name = change.name

        def durable(error: HeadpondError | None) -> None:
            if self._coming.get(name) is change:
                del self._coming[name]
            if error is not None:
                refuse(error)
                return
            if self.links.links.get(name) != change:  # else the link stays as it is
                self._status.pop(name, None)
            self.links.apply(change)
            self.hold_all()
            self.on_links()
            done()

        self._coming[name] = change
        self.node.stores.peers_kept.change([encode_change(change)], durable)

    # --- places -------------------------------------------------------------------------------------

    def place_of(self, topic: Topic, node: str, shard: int) -> SourcePosition | None:
        """How far a shard has that of another node; None where that is not known, or not true any more."""
        noted = self.links.places.get(topic.uuid, {}).get((node, shard))
        return noted.place if noted is not None else None

    def _check_places(self) -> None:
        """Forgets what is not true of the logs as they were opened: those shards are compared again."""
        for uuid, places in list(self.links.places.items()):
            topic = self.node.catalog.by_uuid(uuid)
            if topic is None:
                self.links.apply(PlacesGone(uuid))
                continue
            for key, noted in list(places.items()):
                log = topic.shards[noted.shard].log if noted.shard < len(topic.shards) else None
                if log is None or not log.holds(noted.own_incarnation, noted.own_end):
                    del places[key]
                    logger.warning("%s: its log is not what it was; peers compare it again", topic.shown)

    def note_place(self, noted: PlaceNoted) -> None:
        """What a place stands for is durable. It is written down soon; nobody waits for that."""
        self.links.apply(noted)
        self._dirty.add((noted.topic, noted.node, noted.shard))
        self._note_alarm.by(self._noted_us + NOTE_EVERY_US)

    def note_places(self) -> None:
        dirty, self._dirty = self._dirty, set()
        self._noted_us = self.node.clock_us()
        found = (self.links.places.get(topic, {}).get((node, shard)) for topic, node, shard in dirty)
        bodies = [encode_change(noted) for noted in found if noted is not None]
        if bodies:
            self.node.stores.peers_kept.change(bodies, lambda error: None)

    # --- topics -------------------------------------------------------------------------------------

    def before_deletion(self, topics: list[Topic], go_on: Callable[[HeadpondError | None], None]) -> None:
        """Topics are to be deleted: that no link brings linked ones back is on the disk first."""
        now_us = self.node.now_us()
        linked = [
            topic.name
            for topic in topics
            if self.links.concerns(topic.name, topic.uuid) or self.sink.is_fed(topic.uuid)
        ]
        bars = [Barred(name, now_us) for name in linked]
        if not bars:
            go_on(None)
            return

        def durable(error: HeadpondError | None) -> None:
            for bar in bars if error is None else ():
                self.links.apply(bar)
            go_on(error)

        self.node.stores.peers_kept.change([encode_change(bar) for bar in bars], durable)

    def topic_deleted(self, topic: Topic) -> None:
        if topic.uuid in self.links.places:
            self._note([PlacesGone(topic.uuid)])

    def topic_created(self, name: str) -> None:
        if name in self.links.barred:
            self._note([Lifted(name)])
        self.source.touched({name})
        topic = self.node.catalog.by_name(name)
        if topic is not None:
            self.hold(topic)

    def _note(self, changes: list[PeerChange]) -> None:
        for change in changes:
            self.links.apply(change)
        if changes:
            self.node.stores.peers_kept.change([encode_change(each) for each in changes], lambda error: None)

    def hold(self, topic: Topic) -> None:
        """Says how long the topic's logs remember blocks."""
        hold_us = self.links.hold_us(topic.name, topic.uuid, self.node.now_us())
        for shard in topic.shards:
            shard.log.peer_hold_us = hold_us

    def hold_all(self) -> None:
        for topic in self.node.catalog:
            self.hold(topic)

    def carry_out(self, operation: Operation, answer: Answer, refuse: Refuse) -> None:
        """Does what an admin could ask for, for a link."""
        self.node.requests.on_request(cast(Session, None), operation, answer, refuse)

    # --- time ---------------------------------------------------------------------------------------

    def _hold_again(self) -> None:
        self._hold_alarm.by(self.node.clock_us() + HOLD_EVERY_US)
        self.hold_all()


def _found(name: str, made: LinkMade | None) -> LinkMade:
    if made is None:
        raise PeerNotFound(f"there is no link {name[:NAME_LENGTH_MAX]!r}")
    return made


def local_session(number: int) -> Session:
    """Whom the node itself asks as, for one of its links."""
    return Session(number, cast(Any, None), greeted=True, grant=ALL)
