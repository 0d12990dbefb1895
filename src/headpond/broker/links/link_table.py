"""What a node remembers of its links, in a journal of its own.

=== ============ ============================================================================================
tag record       says
=== ============ ============================================================================================
1   LinkMade     there is a link; with the token for the other node, which is why only the node's user reads it
2   LinkEnded    it was removed
3   PlaceNoted   how far a shard of a topic here has that of another node
4   PlacesGone   the topic was deleted: nothing of it is known any more
5   Barred       a topic was deleted here while it was linked: no link brings it back by itself
6   Lifted       somebody made it again
=== ============ ============================================================================================

A place is written behind the data that it stands for, and lies in the same folder: an old copy of the folder
has an old place, and the node reads again what it lost. It also says how far the own log reached, so that a log
which was cut or replaced since is noticed, and everything is compared again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headpond.model.names import TopicPatterns
from headpond.storage.journal import TableState
from headpond.storage.log.marks import DAY_US
from headpond.wire.control.links import SourcePosition

BARRED_MAX = 10_000
PLACES_MAX = 256
"""Nodes that have a place in a shard; the one that was silent for longest goes, and compares again."""
HOLD_US = 30 * DAY_US
"""How long the blocks of a linked topic are remembered, from the time that every link had caught up."""
HOLD_US_MAX = 366 * DAY_US
"""A peer that was away for longer may bring some of it twice."""


class LinkMade(msgspec.Struct, array_like=True, frozen=True, tag=1):
    name: str
    url: str
    topics: list[str]
    direction: str
    token: str | None
    made_at_us: int
    made_by: str
    subscriptions: list[str] = []
    """Those that follow, by name or pattern; none: messages alone."""

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
    """The topic here."""
    node: str
    """The other node's id."""
    shard: int
    place: SourcePosition
    own_incarnation: int
    own_end: int
    """How far the own log reached when all before the place was in it."""
    at_us: int
    """When the other node was last found to have no more."""


class PlacesGone(msgspec.Struct, array_like=True, frozen=True, tag=4):
    topic: bytes


class Barred(msgspec.Struct, array_like=True, frozen=True, tag=5):
    topic: str
    at_us: int


class Lifted(msgspec.Struct, array_like=True, frozen=True, tag=6):
    topic: str


PeerChange = LinkMade | LinkEnded | PlaceNoted | PlacesGone | Barred | Lifted


class PeerLinks(TableState):
    """All of it in memory. Damage costs little: a lost position is found again by comparing."""

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
        """Whether a link is about a topic, or another node has sent to it."""
        return uuid in self.places or any(patterns.match(name) for patterns in self._patterns.values())

    def hold_us(self, name: str, uuid: bytes, now_us: int) -> int:
        """How long ended and silent blocks of a topic are remembered; 0 where no link is about it.

        Another path may bring them as long as somebody is behind, so time counts from when all had caught up.
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
