"""Topics, as the catalog journal has them, with their open logs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headpond.broker.access.rights import TOPIC_GONE
from headpond.broker.catalog.changes import (
    CatalogChange,
    PlaceCreated,
    PlaceRemoved,
    ProducerChange,
    SettingsChanged,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from headpond.broker.catalog.tree import Tree, change_own
from headpond.broker.context import Context
from headpond.broker.effects import Fetch
from headpond.broker.ingest.admission import Admission
from headpond.broker.ingest.lookup import SegmentLookup
from headpond.broker.ingest.producers import Producers
from headpond.broker.steps import Steps, Wait
from headpond.model.errors import BadRequest, StorageFailed, TopicNotFound
from headpond.model.names import Place, TopicName
from headpond.model.stored_times import StoredTimes
from headpond.model.topic_settings import Level, TopicSettings, Value, effective, resolve
from headpond.storage.commit_lane import CommitLane
from headpond.storage.journal import TableState
from headpond.storage.log.read import ReadResult
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.control.catalog import SettingInfo, ShardInfo, TopicInfo
from headpond.wire.expiry import last_us, may_expire
from headpond.wire.title import Title
from headpond.wire.typed.versions import SchemaVersions

TOPICS_FOLDER = "topics"

F = TypeVar("F", bound=Fetch)


@dataclass(slots=True)
class Shard:
    """One shard of an open topic: its log, the rules of admission, and the lane that commits it."""

    log: ShardLog
    admission: Admission
    lane: CommitLane
    lookup: SegmentLookup
    times: StoredTimes

    def store(
        self,
        block: bytes,
        segment: int,
        count: int,
        origin_crc: int,
        stored_at_us: int,
        body: bytes,
        schemas: SchemaVersions | None,
    ) -> int:
        """Appends an admitted segment and returns its first entry; its lane reports when it is durable."""
        first_entry = self.log.append(
            block=block,
            segment=segment,
            count=count,
            origin_crc=origin_crc,
            stored_at_us=stored_at_us,
            body=body,
            expires_us=last_us(body, schemas, stored_at_us) if count and may_expire(body, schemas) else None,
        )
        if self.admission.declared:
            self.admission.admitted(block, segment)
        return first_entry


class Topic:
    def __init__(self, created: TopicCreated, tree: Tree, lost_us: int) -> None:
        """``tree`` has the places above it; ``lost_us``: see ``Producers``."""
        self.created = created
        self.name, self.uuid = created.name, created.uuid
        self.tenant = self.name.partition("/")[0]
        self.shards: list[Shard] = []
        self.schemas = SchemaVersions([created.schema]) if created.schema is not None else None
        """Of a typed topic."""
        self.producers = Producers(self.uuid, lost_us)
        durability = {"durability": created.durability} if created.durability != "sync" else {}
        self.own: dict[str, Value] = {**durability, **created.settings}
        """Its own settings."""
        self._tree = tree
        self.settings: TopicSettings
        """The effective values: its own, else those of the places above it."""
        self.has_rates: bool
        """Whether messages or bytes per second are limited."""
        self.settings_changed()

    @property
    def place(self) -> Place:
        return Place.of(self.name)

    def read(
        self, context: Context, kind: type[F], shard: int, entry: int, bytes_max: int = 0, *more: Any
    ) -> Steps[tuple[F, ReadResult]]:
        """Reads a log in a worker thread with one kind of ``Fetch``; ``StorageFailed`` if the disk fails it."""
        wait: Wait[ReadResult | None] = Wait()
        fetch = kind(self.uuid, shard, entry, bytes_max, wait.done, *more)
        context.add_effect(fetch)
        run = yield wait
        if run is None:
            raise StorageFailed(f"the node could not read shard {shard} of topic {self.shown} at entry {entry}")
        return fetch, run

    def shard(self, number: int) -> Shard:
        """A shard that a request names; ``BadRequest`` if the topic does not have it."""
        if number >= len(self.shards):
            raise BadRequest(f"topic {self.shown} has no shard {number}")
        return self.shards[number]

    # --- settings -----------------------------------------------------------------------------------

    @property
    def is_state(self) -> bool:
        """Whether it keeps the latest value of each key."""
        return self.settings.state

    def _levels(self) -> list[Level]:
        return [Level("topic", self.name, self.own), *self._tree.levels(self.place)]

    def settings_changed(self) -> None:
        """A setting changed, here or above: the new value holds from the next write on."""
        self.settings = settings = effective(self._levels())
        self.has_rates = (
            settings.tenant_bytes_s is not None
            or settings.tenant_messages_s is not None
            or settings.connection_bytes_s is not None
            or settings.connection_messages_s is not None
        )
        for shard in self.shards:
            shard.log.follow(settings)

    # --- files --------------------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        return f"{TOPICS_FOLDER}/{self.uuid.hex()}"

    @property
    def shown(self) -> str:
        """The name as a person writes it."""
        return TopicName.of(self.name).short

    @property
    def title(self) -> Title:
        """The title at the beginning of the topic's log files."""
        encoded = list(self.schemas.encoded) if self.schemas is not None else []
        return Title(self.name, self.uuid, schema=encoded[-1] if encoded else None, schemas=encoded)

    def alter(self, schema: bytes) -> None:
        """Adds a version of the schema; log files begun from now on have it in their title."""
        assert self.schemas is not None, "a plain topic has none"
        self.schemas = self.schemas.and_then(schema)
        for shard in self.shards:
            shard.log.retitle(self.title)

    def info(
        self, *, with_shards: bool = False, with_schemas: bool = True, with_totals: bool = False
    ) -> TopicInfo:
        schemas = self.schemas
        shard_list = []
        if with_shards:
            shard_list = [
                ShardInfo(
                    shard=number,
                    incarnation=shard.log.incarnation,
                    entry_first=shard.log.entry_first,
                    entry_next=shard.log.entry_durable,
                    bytes=shard.log.bytes,
                    damaged=list(shard.log.damaged)[:1000],
                    compacted=shard.log.compacted.count(shard.log.entry_first, shard.log.entry_durable),
                )
                for number, shard in enumerate(self.shards)
            ]
        return TopicInfo(
            topic=self.name,
            uuid=self.uuid,
            shards=2**self.created.shard_power,
            created_at_us=self.created.created_at_us,
            durability=self.settings.durability,
            schema=schemas.encoded[-1] if schemas is not None else None,
            shard_list=shard_list,
            schema_version=schemas.version if schemas is not None else None,
            schemas=list(schemas.encoded) if schemas is not None and with_schemas else [],
            message_bytes_max=self.settings.message_bytes_max,
            settings=setting_infos(self._levels()) if with_shards else [],
            state=self.is_state,
            entries=sum(each.log.entry_durable - each.log.entry_first for each in self.shards)
            if with_totals
            else None,
            bytes=sum(each.log.bytes for each in self.shards) if with_totals else None,
        )


def setting_infos(levels: list[Level]) -> list[SettingInfo]:
    return [SettingInfo(name, *origin) for name, origin in resolve(levels).items()]


@dataclass(slots=True)
class Tenant:
    """What a tenant has, counted with each change: one more costs the same however many there are."""

    topics: dict[bytes, Topic] = field(default_factory=dict)
    shards: int = 0
    producers: int = 0
    """Registered ones."""


class Catalog(TableState):
    """The topics that exist, by name and by uuid, and the tree of places above them."""

    decoder = msgspec.msgpack.Decoder(CatalogChange)

    def __init__(self, node_values: dict[str, Value] | None = None, lost_us: int = 0, run: int = 0) -> None:
        """``node_values`` are the node's own settings for all topics.

        ``lost_us`` is when this node began, by the clock that leases are measured with; ``run`` is the number
        of this run of the node.
        """
        self.tree = Tree(node_values)
        self.deleted: set[bytes] = set()
        """Topics that were deleted and whose folders may still be there; kept over compactions."""
        self._by_name: dict[str, Topic] = {}
        self._by_uuid: dict[bytes, Topic] = {}
        self._names: list[str] = []
        """In order."""
        self._tenants: dict[str, Tenant] = {}
        self.shards = 0
        """How many logs there are, in all topics."""
        self.producers = 0
        """How many producers are registered, in all topics."""
        self._lost_us = lost_us
        self.run = run

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_uuid(self, uuid: bytes) -> Topic | None:
        return self._by_uuid.get(uuid)

    def find(self, uuid: bytes) -> Topic:
        """The topic that a request names by its uuid, or ``TopicNotFound``."""
        topic = self._by_uuid.get(uuid)
        if topic is None:
            raise TopicNotFound(TOPIC_GONE)
        return topic

    def name_of(self, uuid: bytes) -> str | None:
        topic = self._by_uuid.get(uuid)
        return topic.name if topic is not None else None

    def tenant(self, name: str) -> Tenant:
        return self._tenants.get(name) or Tenant()

    def of_tenant(self, tenant: str) -> Collection[Topic]:
        return self.tenant(tenant).topics.values()

    def tenant_settings(self, tenant: str) -> TopicSettings:
        """The effective values at a tenant, also of one that does not exist yet."""
        return effective(self.tree.levels(Place((tenant,))))

    def below(self, place: Place) -> list[Topic]:
        """The topics below a place."""
        prefix = f"{place}/"
        return [topic for topic in self if topic.name.startswith(prefix)]

    # --- changes ------------------------------------------------------------------------------------

    def apply(self, change: CatalogChange) -> Topic | None:
        """Makes a change that is in the journal; returns the topic it concerns, if it is one topic's."""
        if isinstance(change, TopicCreated):
            return self._create(change)
        if isinstance(change, TopicDeleted):
            return self._delete(change.uuid)
        if isinstance(change, PlaceCreated):
            self.tree.create(change)
            return None
        if isinstance(change, PlaceRemoved):
            self._remove(Place.of(change.name))
            return None
        if isinstance(change, SettingsChanged):
            return self._change_settings(change)
        if isinstance(change, TopicAltered):
            altered = self._by_uuid.get(change.uuid)
            if altered is not None and altered.schemas is not None and altered.schemas.version < change.version:
                altered.alter(change.schema)
            return altered
        return self._change_producers(change)

    def _create(self, created: TopicCreated) -> Topic:
        if (known := self._by_uuid.get(created.uuid)) is not None:
            return known  # the record is read twice
        topic = Topic(created, self.tree, self._lost_us)
        self.tree.ensure(topic.place, created.created_at_us)
        if topic.name not in self._by_name:
            insort(self._names, topic.name)
        self._by_name[topic.name] = topic
        self._by_uuid[topic.uuid] = topic
        self._tenants.setdefault(topic.tenant, Tenant()).topics[topic.uuid] = topic
        self._count(topic, shards=2**created.shard_power)
        return topic

    def _delete(self, uuid: bytes) -> Topic | None:
        self.deleted.add(uuid)
        gone = self._by_uuid.pop(uuid, None)
        if gone is not None:
            if self._by_name.get(gone.name) is gone:
                del self._by_name[gone.name]
                del self._names[bisect_left(self._names, gone.name)]
            self._count(gone, shards=-(2**gone.created.shard_power), producers=-len(gone.producers))
            tenant = self._tenants[gone.tenant]
            del tenant.topics[uuid]
            if not tenant.topics:
                del self._tenants[gone.tenant]
        return gone

    def _count(self, topic: Topic, *, shards: int = 0, producers: int = 0) -> None:
        for counts in (self, self._tenants[topic.tenant]):
            counts.shards += shards
            counts.producers += producers

    def _remove(self, place: Place) -> None:
        for topic in self.below(place):
            self._delete(topic.uuid)
        self.tree.remove(place)

    def _change_settings(self, change: SettingsChanged) -> Topic | None:
        topic = self._by_name.get(change.name)
        if topic is not None:
            change_own(topic.own, change)
            topic.settings_changed()
            return topic
        holding = self.tree.get(place := Place.of(change.name))
        if holding is not None:
            change_own(holding.own, change)
            for below in self.below(place):
                below.settings_changed()
        return None

    def _change_producers(self, change: ProducerChange) -> Topic | None:
        topic = self._by_uuid.get(change.topic)
        if topic is not None:
            before = len(topic.producers)
            topic.producers.apply(change)
            self._count(topic, producers=len(topic.producers) - before)
        return topic

    def snapshot(self) -> Iterator[CatalogChange]:
        yield from map(TopicDeleted, sorted(self.deleted))
        yield from self.tree.snapshot()
        for topic in self:
            yield msgspec.structs.replace(topic.created, settings=dict(topic.own), durability="sync")
            for version, schema in enumerate(topic.schemas.encoded[1:] if topic.schemas is not None else (), 2):
                yield TopicAltered(topic.uuid, version, schema)
            yield from topic.producers.snapshot()

    def __iter__(self) -> Iterator[Topic]:
        """In the order of their names; topics may come and go meanwhile."""
        return iter([self._by_name[name] for name in self._names])

    def __len__(self) -> int:
        return len(self._by_name)
