"""Subscriptions that begin with a state topic's state: what is current is found out before they are made.

Every shard is read in turn, by a worker thread (state_scan.py). What comes of it is one record of the
settlement journal, with the subscription itself: each shard's end, and which entries before it are current.
Behind the ends the live stream follows, so there is no gap and no repeat.

The subscription is made even if whoever asked has left meanwhile: it finds it when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from headpond.files.disk import Disk
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadRequest, HeadpondError, LimitReached, StorageFailed, TopicNotFound
from headpond.node.core.long_work import Place
from headpond.node.core.state_scan import StateScan
from headpond.node.core.stores import Stores
from headpond.node.core.topics import Topic
from headpond.wire.frame import FILE_BODY_BYTES_MAX

STATE = "state"
WAITING_MAX = 256
"""Subscriptions that are being made in this way at a time."""

ShardStart = tuple[int, bytes]
"""A shard's end, and the bitmap of the entries before it that are current."""
Then = Callable[[list[ShardStart]], None]
Refuse = Callable[[HeadpondError], None]


class StateStarts:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._waiting: dict[tuple[bytes, str], list[tuple[Then, Refuse]]] = {}

    def find(self, topic: Topic, name: str, start: str | int, then: Then, refuse: Refuse) -> None:
        """Calls ``then`` with each shard's state where a subscription is to begin with it, else with none."""
        if start != STATE or self._stores.subscriptions.get(topic.uuid, name) is not None:
            then([])
            return
        if not topic.is_state:
            raise BadRequest(
                f"start {STATE!r}: topic {topic.shown} is no state topic",
                hint="Create one with `headpond topic create TOPIC --state`, or start at earliest or latest.",
            )
        key = (topic.uuid, name)
        if key in self._waiting:
            self._waiting[key].append((then, refuse))
            return
        if len(self._waiting) >= WAITING_MAX:
            raise LimitReached(f"{WAITING_MAX} subscriptions are being made from a topic's state; try again")
        self._waiting[key] = [(then, refuse)]
        self._scan(topic, name, [])

    def _scan(self, topic: Topic, name: str, found: list[ShardStart]) -> None:
        """Reads the next shard, or ends."""
        if self._stores.catalog.by_uuid(topic.uuid) is not topic:
            self._end(topic, name, TopicNotFound(f"topic {topic.shown} was deleted"), [])
            return
        number = len(found)
        if number == len(topic.shards):
            self._end(topic, name, None, self._still_there(topic, found))
            return
        log = topic.shards[number].log
        scan = StateScan(log, self._stores.settings.limits.state_bytes, topic.schemas)

        def ended(error: OSError | None) -> None:
            there = self._stores.catalog.by_uuid(topic.uuid) is topic
            if error is not None and there:
                fault = StorageFailed(f"the node could not read topic {topic.shown}: {error.strerror or error}")
                self._end(topic, name, fault, [])
            else:
                self._scan(topic, name, [*found, (scan.end, scan.current.encode())])

        self._stores.long_work.add(_ScanJob((topic.uuid, number), scan, ended))

    def _still_there(self, topic: Topic, found: list[ShardStart]) -> list[ShardStart]:
        """Leaves out what compaction or retention took meanwhile: of its key a later row follows, or none."""
        states: list[ShardStart] = []
        for (end, encoded), shard in zip(found, topic.shards, strict=True):
            current = EntrySet.decode(encoded)
            current.discard(0, shard.log.entry_first)
            current.exclude(shard.log.compacted)
            states.append((end, current.encode()))
        return states

    def _end(self, topic: Topic, name: str, error: HeadpondError | None, found: list[ShardStart]) -> None:
        size = sum(len(encoded) for _, encoded in found)
        if error is None and size > FILE_BODY_BYTES_MAX // 2:
            error = LimitReached(f"the state of topic {topic.shown} takes {size:,} bytes to write down")
        for then, refuse in self._waiting.pop((topic.uuid, name)):
            if error is not None:
                refuse(error)
                continue
            try:
                then(found)
            except HeadpondError as refusal:
                refuse(refusal)


class _ScanJob:
    def __init__(self, place: Place, scan: StateScan, then: Callable[[OSError | None], None]) -> None:
        self.place = place
        self._scan = scan
        self._then = then

    def run(self, disk: Disk) -> None:
        self._scan.step()

    def done(self, error: OSError | None) -> bool:
        if error is None and not self._scan.finished:
            return True
        self._then(error)
        return False
