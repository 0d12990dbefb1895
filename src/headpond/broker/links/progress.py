"""How far the shards of this node have those of other nodes, and how long logs remember blocks for that."""

from __future__ import annotations

import logging

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.links.link_table import PlaceNoted, PlacesGone
from headpond.broker.stores import Stores
from headpond.wire.control.links import SourcePosition

logger = logging.getLogger("headpond.node")

NOTE_EVERY_US = 1_000_000
"""Positions are written down this often at most: a lost one costs a comparison of some heads."""
HOLD_EVERY_US = 3600 * 1_000_000


class LinkProgress:
    def __init__(self, context: Context, stores: Stores) -> None:
        self._context = context
        self._catalog = stores.catalog
        self._journal = stores.peers_journal
        self._links = stores.peers
        self._dirty: set[tuple[bytes, str, int]] = set()
        self._noted_us = 0
        self._note_alarm = context.alarms.add(self.write)
        self._hold_alarm = context.alarms.add(self._hold_again)
        self._hold_alarm.by(context.clock_us() + HOLD_EVERY_US)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Drops positions that the logs, as they were opened, do not have: those shards are compared again."""
        for uuid, places in list(self._links.places.items()):
            topic = self._catalog.by_uuid(uuid)
            if topic is None:
                self._links.apply(PlacesGone(uuid))
                continue
            for key, noted in list(places.items()):
                log = topic.shards[noted.shard].log if noted.shard < len(topic.shards) else None
                if log is None or not log.holds(noted.own_incarnation, noted.own_end):
                    del places[key]
                    logger.warning("%s: its log is not what it was; peers compare it again", topic.shown)

    def of(self, topic: Topic, node: str, shard: int) -> SourcePosition | None:
        """How far a shard has that of another node; None if that is not known, or not true any more."""
        noted = self._links.places.get(topic.uuid, {}).get((node, shard))
        return noted.place if noted is not None else None

    def note(self, noted: PlaceNoted) -> None:
        """The records up to a position are on the disk. The position itself is written down soon."""
        self._links.apply(noted)
        self._dirty.add((noted.topic, noted.node, noted.shard))
        self._note_alarm.by(self._noted_us + NOTE_EVERY_US)

    def write(self) -> None:
        dirty, self._dirty = self._dirty, set()
        self._noted_us = self._context.clock_us()
        found = (self._links.places.get(topic, {}).get((node, shard)) for topic, node, shard in dirty)
        self._journal.stage(*(noted for noted in found if noted is not None))

    # --- what logs remember ---------------------------------------------------------------------------

    def hold(self, topic: Topic) -> None:
        """Says how long the topic's logs remember blocks."""
        hold_us = self._links.hold_us(topic.name, topic.uuid, self._context.now_us())
        for shard in topic.shards:
            shard.log.peer_hold_us = hold_us

    def hold_all(self) -> None:
        for topic in self._catalog:
            self.hold(topic)

    def _hold_again(self) -> None:
        self._hold_alarm.by(self._context.clock_us() + HOLD_EVERY_US)
        self.hold_all()
