"""Topics: opened, created, shown, altered, compacted and deleted, and who hears of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.changes import PlaceRemoved, TopicAltered, TopicCreated, TopicDeleted
from headpond.broker.catalog.compact import Compacting
from headpond.broker.catalog.pages import page_of
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.session import Session
from headpond.broker.steps import SingleFlight, Steps, journaled
from headpond.broker.stores import Stores
from headpond.model.errors import (
    BadRequest,
    HeadpondError,
    LimitReached,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
)
from headpond.model.identity import SHARD_POWER_MAX
from headpond.model.names import Place, TopicName
from headpond.model.topic_settings import Value, read_values
from headpond.wire.control.catalog import (
    AlterTopic,
    CompactTopic,
    CreateTopic,
    DeleteTopic,
    ListTopics,
    OpenTopic,
    ShowTopic,
    TopicCompaction,
    TopicInfo,
)
from headpond.wire.frame import RESPONSE_BYTES_MAX
from headpond.wire.typed.schema import check_evolves, check_fits, decode_schema
from headpond.wire.typed.versions import VERSIONS_BYTES_MAX


class TopicListener:
    """A part of the broker that hears of topics."""

    def before_deletion(self, topics: list[Topic]) -> Steps[None]:
        """Runs before topics are deleted. The other methods are called when the change is on the disk."""
        yield from ()

    def topic_created(self, topic: Topic) -> None:
        pass

    def topic_altered(self, topic: Topic) -> None:
        """Called before the first record that has the new schema is stored."""

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        pass


class TopicRequests:
    def __init__(self, context: Context, stores: Stores, quotas: Quotas, compacting: Compacting) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._quotas = quotas
        self._compacting = compacting
        self.listeners: list[TopicListener] = []
        """They hear of every change of a topic."""
        self._creating: SingleFlight[None] = SingleFlight()
        """By name of a topic."""
        self._altering: SingleFlight[TopicInfo] = SingleFlight()
        """By uuid of a topic whose schema is being changed."""

    # --- finding ------------------------------------------------------------------------------------

    def find(self, name: str) -> Topic:
        """The topic of that name, or ``TopicNotFound``."""
        parsed = TopicName.parse(name)
        topic = self._catalog.by_name(str(parsed))
        if topic is None:
            raise TopicNotFound(f"there is no topic {parsed.short!r}")
        return topic

    def open(self, session: Session, name: str, *, create: bool) -> Steps[Topic]:
        """Finds a topic for a client, or creates it with the defaults if ``create`` and its place allow it.

        Raises ``QuotaReached`` for one connection too many of the topic's tenant.
        """
        parsed = TopicName.parse(name)
        topic = self._catalog.by_name(str(parsed)) if create else self.find(name)
        if topic is None:
            if not self._catalog.tree.creates_on_first_use(Place.of(str(parsed))):
                create_it = f"`headpond topic create {parsed.short}`"
                raise TopicNotFound(
                    f"there is no topic {parsed.short!r}, and topics are not created on first use here",
                    hint=f"{create_it} creates it; so does create_on_first_use = true.",
                )
            topic = yield from self._create(session, str(parsed), 0)
        if (crowded := self._quotas.enter(session, topic)) is not None:
            raise crowded
        return topic

    def ensure(self, name: str) -> Steps[Topic]:
        """Finds a topic that the node itself needs, or creates it with one shard."""
        return self._catalog.by_name(name) or (yield from self._create(None, name, 0))

    def creating_below(self, place: Place) -> list[str]:
        """The names of topics below a place that are being created."""
        return [name for name in self._creating if place.holds(Place.of(name))]

    def open_topic(self, session: Session, ask: OpenTopic) -> Steps[TopicInfo]:
        topic = yield from self.open(session, ask.topic, create=ask.create)
        return topic.info()

    def list_topics(self, session: Session, ask: ListTopics) -> list[TopicInfo]:
        """All topics, without schemas where those would make the answer too long; ``show_topic`` has them.

        The topics of a page are as ``show_topic`` shows them, without the older versions of their schemas.
        """
        if ask.page is not None:
            named = ((topic.name, topic, topic) for topic in self._catalog)
            return page_of(
                session, ask, ask.page, named, lambda topic, _: topic.info(with_shards=True, with_schemas=False)
            )
        infos = [topic.info(with_schemas=False, with_totals=True) for topic in self._catalog]
        if sum(len(info.schema or b"") for info in infos) > RESPONSE_BYTES_MAX // 2:
            infos = [msgspec.structs.replace(info, schema=None) for info in infos]
        return infos

    def show_topic(self, session: Session, ask: ShowTopic) -> TopicInfo:
        return self.find(ask.topic).info(with_shards=True)

    def compact_topic(self, session: Session, ask: CompactTopic) -> Steps[TopicCompaction]:
        return self._compacting.compact(self.find(ask.topic))

    # --- creating -----------------------------------------------------------------------------------

    def create_topic(self, session: Session | None, ask: CreateTopic) -> Steps[TopicInfo]:
        name = str(TopicName.parse(ask.topic))
        shard_power = ask.shards.bit_length() - 1
        if ask.shards < 1 or 2**shard_power != ask.shards or shard_power > SHARD_POWER_MAX:
            raise BadRequest(
                f"{ask.shards} shards: the number of shards is a power of 2 from 1 to {2**SHARD_POWER_MAX}"
            )
        settings = read_values(ask.settings, "topic")
        if ask.schema is not None:
            _check_schema(ask.schema, state=bool(settings.get("state")))
        topic = self._catalog.by_name(name)
        if topic is None:
            self._catalog.tree.check_room(Place.of(name))
            topic = yield from self._create(session, name, shard_power, ask.schema, settings)
        elif not ask.exist_ok:
            raise _exists(topic)
        _check_same(topic, shard_power, ask.schema, state=settings.get("state"))
        return topic.info()

    def _create(
        self,
        session: Session | None,
        name: str,
        shard_power: int,
        schema: bytes | None = None,
        settings: dict[str, Value] | None = None,
    ) -> Steps[Topic]:
        """Creates a topic, or waits for the client that is creating it: the first one decides what it is."""
        if name in self._creating:
            yield self._creating.join(name)
        else:
            self._check_limits(session, name, shard_power)
            uuid, now_us = self._context.new_uuid(), self._context.now_us()
            created = TopicCreated(name, uuid, shard_power, now_us, schema=schema, settings=settings or {})
            yield from self._creating.run(name, self._write_created(created))
        found = self._catalog.by_name(name)
        if found is None:
            raise TopicNotFound(f"topic {name} was deleted at once")
        return found

    def _write_created(self, created: TopicCreated) -> Steps[None]:
        yield journaled(self._stores.catalog_journal, created)
        topic = self._stores.topic_created(created)
        for listener in self.listeners:
            listener.topic_created(topic)

    def _check_limits(self, session: Session | None, name: str, shard_power: int) -> None:
        limits, shards = self._context.settings.limits, 2**shard_power
        if len(self._catalog) + len(self._creating) >= limits.topics:
            raise LimitReached(f"this node holds at most {limits.topics} topics (limits.topics)")
        if self._catalog.shards + shards > limits.shards:
            raise LimitReached(f"this node holds at most {limits.shards} shards in all topics (limits.shards)")
        tenant = name.partition("/")[0]
        has = self._catalog.tenant(tenant)
        self._quotas.check(tenant, "shards", has.shards, shards)
        creating = sum(each.startswith(f"{tenant}/") for each in self._creating)
        self._quotas.create(session, tenant, "topics", len(has.topics) + creating)

    # --- changing -----------------------------------------------------------------------------------

    def alter_topic(self, session: Session | None, ask: AlterTopic) -> Steps[TopicInfo]:
        """Gives a topic a new version of its schema; one change of a topic at a time."""
        while (uuid := self.find(ask.topic).uuid) in self._altering:
            with suppress(HeadpondError):  # of the other change
                yield self._altering.join(uuid)
        topic = self.find(ask.topic)
        schema = _check_schema(ask.schema, state=topic.is_state)
        if topic.schemas is None:
            raise SchemaMismatch(
                f"topic {topic.shown} is plain and has no schema to change",
                hint="A topic is typed or plain for its life; create another one with a schema.",
            )
        if schema.equals(topic.schemas.newest):
            return topic.info()
        check_evolves(topic.schemas.newest, schema)
        if sum(map(len, topic.schemas.encoded)) + len(ask.schema) > VERSIONS_BYTES_MAX:
            raise LimitReached(
                f"topic {topic.shown} has {topic.schemas.version} versions of its schema, as many as it can",
                hint="Create another topic with the columns that are wanted now.",
            )
        altered = TopicAltered(topic.uuid, topic.schemas.version + 1, ask.schema)
        return (yield from self._altering.run(topic.uuid, self._write_altered(topic, altered)))

    def _write_altered(self, topic: Topic, altered: TopicAltered) -> Steps[TopicInfo]:
        yield journaled(self._stores.catalog_journal, altered)
        if self._catalog.apply(altered) is None:
            raise TopicNotFound(f"topic {topic.shown} was deleted")
        for listener in self.listeners:
            listener.topic_altered(topic)
        return topic.info()

    def delete_topic(self, session: Session, ask: DeleteTopic) -> Steps[dict[str, Any]]:
        topic = self.find(ask.topic)
        yield from self._before_deletion([topic])
        yield journaled(self._stores.catalog_journal, TopicDeleted(topic.uuid))
        self._deleted(topic)
        return {"topic": topic.name, "deleted": True}

    def delete_below(self, place: Place) -> Steps[tuple[list[str], list[str]]]:
        """Deletes a place with everything below it; returns the names of those places and topics."""
        removed = PlaceRemoved(str(place))
        yield from self._before_deletion(self._catalog.below(place))
        yield journaled(self._stores.catalog_journal, removed)
        places, topics = self._catalog.tree.below(place), self._catalog.below(place)
        for topic in topics:
            self._deleted(topic)
        self._catalog.apply(removed)
        return [str(each) for each in places], [topic.name for topic in topics]

    def _before_deletion(self, topics: list[Topic]) -> Steps[None]:
        for listener in self.listeners:
            yield from listener.before_deletion(topics)

    def _deleted(self, topic: Topic) -> None:
        """The deletion is on the disk."""
        error = TopicNotFound(f"topic {topic.shown} was deleted")
        if self._stores.topic_deleted(TopicDeleted(topic.uuid), error) is not None:
            for listener in self.listeners:
                listener.topic_deleted(topic, error)


def _check_schema(encoded: bytes, *, state: bool) -> pa.Schema:
    """A state topic's columns take nulls, since a delete is a row of them."""
    schema = decode_schema(encoded)
    strict = [field.name for field in schema if not field.nullable]
    if state and strict:
        raise SchemaMismatch(
            f"column {strict[0]!r} takes no nulls, and a state topic's row of nulls deletes its key",
            hint="Let every column of a state topic take nulls.",
        )
    return schema


def _check_same(topic: Topic, shard_power: int, encoded: bytes | None, *, state: Value) -> None:
    """Raises how a topic differs from the one that a client wants to create."""
    if state is not None and state != topic.is_state:
        raise TopicExists(f"topic {topic.shown} exists and is {'no' if state else 'a'} state topic")
    if topic.created.shard_power != shard_power or (encoded is None) != (topic.schemas is None):
        raise _exists(topic)
    if encoded is not None and topic.schemas is not None:
        try:
            check_fits(decode_schema(encoded), topic.schemas.newest)
        except SchemaMismatch as error:
            raise TopicExists(f"topic {topic.shown} exists with another schema: {error.message}") from error


def _exists(topic: Topic) -> TopicExists:
    shards = f"{len(topic.shards)} shard{'s' if len(topic.shards) > 1 else ''}"
    kind = "no schema" if topic.schemas is None else f"schema version {topic.schemas.version}"
    return TopicExists(f"topic {topic.shown} exists with {shards} and {kind}")
