"""What a node remembers of its links, in the journal ``peers``.

=== ============ ============================================================================================
tag record       says
=== ============ ============================================================================================
1   LinkMade     a link, with its token for the other node: only the node's user may read the file
2   LinkEnded    the link was removed
3   PlaceNoted   up to which entry of another node's shard this node has the records
4   PlacesGone   the topic was deleted, with its positions
5   Barred       a topic was deleted here while it was linked: no link may create it again
6   Lifted       a client created the topic again
=== ============ ============================================================================================

A position is written after the data that it stands for, to the same folder: an old copy of the folder has an
old position, so the node reads again what it lost. It also has the end of this node's log at that time; if the
log was cut or replaced since, the node notices and compares everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.context import Context
from headpond.model.names import TopicPatterns
from headpond.storage.journal import JournalTable, TableState
from headpond.storage.log.marks import DAY_US
from headpond.wire.control.links import SourcePosition

logger = logging.getLogger("headpond.node")

BARRED_MAX = 10_000
PLACES_MAX = 256
"""Nodes with a position in a shard; beyond that, the node that was silent longest has to compare again."""
HOLD_US = 30 * DAY_US
"""How long a linked topic remembers its blocks after every link has caught up."""
HOLD_US_MAX = 366 * DAY_US
"""A peer that was away for longer may bring messages twice."""

HOLD_EVERY_US = 3600 * 1_000_000
WRITE_EVERY_US = 1_000_000
"""Positions are written this often at most: a lost one costs a comparison of some heads."""


class LinkMade(msgspec.Struct, array_like=True, frozen=True, tag=1):
    name: str
    url: str
    topics: list[str]
    direction: str
    token: str | None
    made_at_us: int
    made_by: str
    subscriptions: list[str] = []
    """Names or patterns of the subscriptions that the link copies; none: only messages."""

    def __repr__(self) -> str:
        return f"LinkMade(name={self.name!r}, url={self.url!r})"

    @property
    def pulls(self) -> bool:
        return self.direction in ("pull", "both")

    @property
    def pushes(self) -> bool:
        return self.direction in ("push", "both")


class LinkEnded(msgspec.Struct, array_like=True, frozen=True, tag=2):
    name: str


class PlaceNoted(msgspec.Struct, array_like=True, frozen=True, tag=3):
    topic: bytes
    """On this node."""
    node: str
    """The id of the other node."""
    shard: int
    place: SourcePosition
    own_incarnation: int
    own_end: int
    """The end of this node's log when everything before the position was in it."""
    at_us: int


class PlacesGone(msgspec.Struct, array_like=True, frozen=True, tag=4):
    topic: bytes


class Barred(msgspec.Struct, array_like=True, frozen=True, tag=5):
    topic: str
    at_us: int


class Lifted(msgspec.Struct, array_like=True, frozen=True, tag=6):
    topic: str


PeerChange = LinkMade | LinkEnded | PlaceNoted | PlacesGone | Barred | Lifted


class PeerLinks(TableState):
    """Damage costs little: a lost position is found again by comparing."""

    decoder = msgspec.msgpack.Decoder(PeerChange)

    def __init__(self) -> None:
        self.links: dict[str, LinkMade] = {}
        self.places: dict[bytes, dict[tuple[str, int], PlaceNoted]] = {}
        """By topic, then by node and shard."""
        self._patterns: dict[str, TopicPatterns] = {}
        """By link."""
        self.barred: dict[str, int] = {}
        """By topic: when it was deleted here."""

    # --- questions ----------------------------------------------------------------------------------

    def concerns(self, name: str, uuid: bytes) -> bool:
        """Whether a link covers a topic, or another node has sent to it."""
        return uuid in self.places or any(patterns.match(name) for patterns in self._patterns.values())

    def hold_us(self, name: str, uuid: bytes, now_us: int) -> int:
        """How long a topic remembers ended and silent blocks; 0 if no link covers it.

        A node that is behind may still bring them by another way, so time counts from when all had caught up.
        """
        if not self.concerns(name, uuid):
            return 0
        behind = [now_us - noted.at_us for noted in self.places.get(uuid, {}).values()]
        return min(HOLD_US + max((0, *behind)), HOLD_US_MAX)

    # --- changes ------------------------------------------------------------------------------------

    def apply(self, change: PeerChange) -> None:
        if isinstance(change, LinkMade):
            self.links[change.name] = change
            self._patterns[change.name] = TopicPatterns.parse(change.topics)
        elif isinstance(change, LinkEnded):
            self.links.pop(change.name, None)
            self._patterns.pop(change.name, None)
        elif isinstance(change, PlaceNoted):
            self._note(self.places.setdefault(change.topic, {}), change)
        elif isinstance(change, PlacesGone):
            self.places.pop(change.topic, None)
        elif isinstance(change, Barred):
            self.barred.pop(change.topic, None)
            self.barred[change.topic] = change.at_us
            while len(self.barred) > BARRED_MAX:
                del self.barred[next(iter(self.barred))]
        else:
            self.barred.pop(change.topic, None)

    def _note(self, places: dict[tuple[str, int], PlaceNoted], change: PlaceNoted) -> None:
        key = (change.node, change.shard)
        if key not in places:
            others = [each for each in places.values() if each.shard == change.shard]
            if len(others) >= PLACES_MAX:
                oldest = min(others, key=lambda each: each.at_us)
                del places[oldest.node, oldest.shard]
        places[key] = change

    def snapshot(self) -> Iterator[PeerChange]:
        yield from self.links.values()
        for places in self.places.values():
            yield from places.values()
        for topic, at_us in self.barred.items():
            yield Barred(topic, at_us)


class LinkProgress:
    """Writes positions down, and says how long logs remember blocks for links."""

    def __init__(self, context: Context, catalog: Catalog, links: PeerLinks, journal: JournalTable) -> None:
        self._context = context
        self._catalog = catalog
        self._links = links
        self._journal = journal
        self._dirty: set[tuple[bytes, str, int]] = set()
        self._written_us = 0
        self._write_alarm = context.alarms.add(self.write)
        self._hold_alarm = context.alarms.add(self._hold_again)
        self._hold_alarm.by(context.clock_us() + HOLD_EVERY_US)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Drops positions that do not fit the logs as they were opened: those shards are compared again."""
        for uuid, places in list(self._links.places.items()):
            topic = self._catalog.by_uuid(uuid)
            if topic is None:
                self._links.apply(PlacesGone(uuid))
                continue
            for key, noted in list(places.items()):
                log = topic.shards[noted.shard].log if noted.shard < len(topic.shards) else None
                if log is None or not log.holds(noted.own_incarnation, noted.own_end):
                    del places[key]
                    logger.warning("%s: its log is not the one of before; peers compare it again", topic.shown)

    def place(self, topic: Topic, node: str, shard: int) -> SourcePosition | None:
        """Up to where this node has a shard of another node; None if that is not known."""
        noted = self._links.places.get(topic.uuid, {}).get((node, shard))
        return noted.place if noted is not None else None

    def note(self, noted: PlaceNoted) -> None:
        """The records up to a position are on the disk. The position follows soon."""
        self._links.apply(noted)
        self._dirty.add((noted.topic, noted.node, noted.shard))
        self._write_alarm.by(self._written_us + WRITE_EVERY_US)

    def write(self) -> None:
        dirty, self._dirty = self._dirty, set()
        self._written_us = self._context.clock_us()
        found = (self._links.places.get(topic, {}).get((node, shard)) for topic, node, shard in dirty)
        self._journal.stage(*(noted for noted in found if noted is not None))

    def hold(self, *topics: Topic) -> None:
        """Sets how long the logs of topics remember blocks."""
        for topic in topics:
            hold_us = self._links.hold_us(topic.name, topic.uuid, self._context.now_us())
            for shard in topic.shards:
                shard.log.peer_hold_us = hold_us

    def _hold_again(self) -> None:
        self._hold_alarm.by(self._context.clock_us() + HOLD_EVERY_US)
        self.hold(*self._catalog)
