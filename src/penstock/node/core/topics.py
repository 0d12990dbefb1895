"""Topics: what the catalog journal says exists, and the open logs of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from penstock.files.disk import Disk
from penstock.model.errors import BadFrame
from penstock.model.topic import TopicName
from penstock.node.core.admission import Admission
from penstock.node.core.commits import Lane
from penstock.node.core.log import LogOptions, ShardLog
from penstock.wire.control import ShardInfo, TopicInfo
from penstock.wire.title import Title

TOPICS_FOLDER = "topics"


class TopicCreated(msgspec.Struct, array_like=True, frozen=True, tag=1):
    name: str
    uuid: bytes
    shard_power: int
    created_at_us: int
    durability: str = "sync"


class TopicDeleted(msgspec.Struct, array_like=True, frozen=True, tag=2):
    uuid: bytes


CatalogChange = TopicCreated | TopicDeleted

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[CatalogChange] = msgspec.msgpack.Decoder(CatalogChange)

encode_change = _encoder.encode


def decode_change(body: bytes) -> CatalogChange:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadFrame(f"a catalog record that cannot be read: {error}") from error


@dataclass(slots=True)
class Shard:
    """One shard of an open topic: its log, the rules at its door, and those who wait for its sync."""

    log: ShardLog
    admission: Admission
    lane: Lane


@dataclass(slots=True)
class Topic:
    created: TopicCreated
    shards: list[Shard] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.created.name

    @property
    def uuid(self) -> bytes:
        return self.created.uuid

    @property
    def folder(self) -> str:
        return f"{TOPICS_FOLDER}/{self.uuid.hex()}"

    @property
    def shown(self) -> str:
        """The name as a person writes it."""
        return TopicName.parse(self.name).short

    def open_log(self, shard: int, disk: Disk, now_us: int, options: LogOptions) -> ShardLog:
        return ShardLog.open(
            disk,
            f"{self.folder}/{shard:05d}",
            title=Title(self.name, self.uuid),
            shard=shard,
            shard_power=self.created.shard_power,
            now_us=now_us,
            options=options,
        )

    def info(self, *, with_shards: bool = False) -> TopicInfo:
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
                )
                for number, shard in enumerate(self.shards)
            ]
        return TopicInfo(
            topic=self.name,
            uuid=self.uuid,
            shards=2**self.created.shard_power,
            created_at_us=self.created.created_at_us,
            durability=self.created.durability,
            shard_list=shard_list,
        )


class Catalog:
    """Which topics exist, by name and by uuid."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_uuid: dict[bytes, Topic] = {}

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_uuid(self, uuid: bytes) -> Topic | None:
        return self._by_uuid.get(uuid)

    def apply(self, change: CatalogChange) -> Topic | None:
        """Makes a change that is in the journal; returns the topic it concerns."""
        if isinstance(change, TopicCreated):
            topic = Topic(change)
            self._by_name[topic.name] = topic
            self._by_uuid[topic.uuid] = topic
            return topic
        gone = self._by_uuid.pop(change.uuid, None)
        if gone is not None:
            del self._by_name[gone.name]
        return gone

    def snapshot(self) -> Iterator[bytes]:
        for topic in self:
            yield _encoder.encode(topic.created)

    def __iter__(self) -> Iterator[Topic]:
        return iter(sorted(self._by_name.values(), key=lambda topic: topic.name))

    def __len__(self) -> int:
        return len(self._by_name)
