"""Administration: topics and subscriptions created, shown and removed.

A change is answered once it is on the disk; it takes effect in memory at the same moment, so nobody sees a
topic that a power cut could take back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headpond.broker.access.requests import TokenRequests
from headpond.broker.catalog.requests import TenancyRequests
from headpond.broker.catalog.topics import Topic, TopicAltered, TopicCreated, TopicDeleted
from headpond.broker.catalog.topics import encode_change as encode_catalog_change
from headpond.broker.ingest.requests import ProducerRequests
from headpond.broker.ledger.requests import LedgerRequests
from headpond.broker.links.requests import Peering
from headpond.broker.reading.fetch import Fetching
from headpond.broker.session import Session
from headpond.broker.staging.staging import Staging
from headpond.broker.subscriptions.requests import SubscriptionRequests
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
    TopicInfo,
)
from headpond.wire.control.codec import Operation
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import RESPONSE_BYTES_MAX
from headpond.wire.typed.schema import check_evolves, check_fits, decode_schema
from headpond.wire.typed.versions import VERSIONS_BYTES_MAX

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

Answer = Callable[[Any], None]
Refuse = Callable[[HeadpondError], None]


class Requests:
    def __init__(self, node: NodeCore, counters: Counter[str]) -> None:
        self._node = node
        self._counters = counters
        self._subscriptions = SubscriptionRequests(node, self.topic)
        self._tenancy = TenancyRequests(node, self.topic, lambda: list(self._creating))
        self.producers = ProducerRequests(node, self.topic, lambda topic: self._tenancy.may_create(topic.place))
        self._ledger = LedgerRequests(node, self.topic)
        self.fetching = Fetching(node, self._subscriptions.find)
        self.staging = Staging(node, counters, self.open_topic)
        self._access = TokenRequests(node, node.guard)
        self.peering = Peering(node)
        self._creating: dict[str, list[Callable[[HeadpondError | None], None]]] = {}
        self._altering: dict[bytes, list[Callable[[], None]]] = {}
        """By topic: what is to be tried once the change of its schema that is under way has ended."""

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> None:
        """Carries out an operation; exactly one of ``answer`` and ``refuse`` is called, now or later."""
        self._counters["requests"] += 1
        if isinstance(operation, OpenTopic):

            def found(topic: Topic) -> None:
                crowded = self._node.quotas.enter(session, topic)
                answer(topic.info()) if crowded is None else refuse(crowded)

            self.open_topic(session, operation.topic, operation.create, found, refuse)
        elif isinstance(operation, CreateTopic):
            self._create_topic(session, operation, answer, refuse)
        elif isinstance(operation, ShowTopic):
            answer(self.topic(operation.topic).info(with_shards=True))
        elif isinstance(operation, AlterTopic):
            self._alter_topic(operation, answer, refuse)
        elif isinstance(operation, ListTopics):
            answer(self._list_topics())
        elif isinstance(operation, DeleteTopic):
            self._delete_topic(self.topic(operation.topic), answer, refuse)
        elif isinstance(operation, CompactTopic):
            self._node.compacting.compact(self.topic(operation.topic), answer, refuse)
        elif isinstance(operation, ShowNode):
            answer(self._node.describe())
        else:
            known = (
                self.fetching.on_request(session, operation, answer, refuse)
                or self._subscriptions.on_request(session, operation, answer, refuse)
                or self._tenancy.on_request(session, operation, answer, refuse)
                or self.producers.on_request(session, operation, answer, refuse)
                or self._ledger.on_request(operation, answer)
                or self.staging.on_request(session, operation, answer, refuse)
                or self._access.on_request(session, operation, answer, refuse)
                or self.peering.on_request(session, operation, answer, refuse)
            )
            assert known, "every operation is somebody's"

    # --- topics -------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of that name, or ``TopicNotFound``."""
        parsed = TopicName.parse(name)
        topic = self._node.catalog.by_name(str(parsed))
        if topic is None:
            raise TopicNotFound(f"there is no topic {parsed.short!r}")
        return topic

    def open_topic(
        self,
        session: Session,
        name: str,
        create: bool,
        found: Callable[[Topic], None],
        refuse: Refuse,
    ) -> None:
        """Finds a topic, or creates it with the defaults where that is asked for and allowed."""
        parsed = TopicName.parse(name)
        topic = self._node.catalog.by_name(str(parsed))
        if topic is not None:
            found(topic)
        elif not create:
            raise TopicNotFound(f"there is no topic {parsed.short!r}")
        elif not self._tenancy.may_create(Place.of(str(parsed))):
            raise TopicNotFound(
                f"there is no topic {parsed.short!r}, and topics are not created on first use here",
                hint=f"`headpond topic create {parsed.short}` creates it; so does create_on_first_use = true.",
            )
        else:
            self._create(session, str(parsed), None, found, refuse)

    def ensure_topic(self, name: str, found: Callable[[Topic], None], refuse: Refuse) -> None:
        """Finds a topic that the node itself needs, or creates it with one shard."""
        topic = self._node.catalog.by_name(name)
        if topic is not None:
            found(topic)
        else:
            self._create(None, name, None, found, refuse)

    def _list_topics(self) -> list[TopicInfo]:
        """All topics; schemas that would make the answer too long are left out, and told by ``show_topic``."""
        infos = [topic.info(with_schemas=False) for topic in self._node.catalog]
        if sum(len(info.schema or b"") for info in infos) > RESPONSE_BYTES_MAX // 2:
            infos = [msgspec.structs.replace(info, schema=None) for info in infos]
        return infos

    def _create_topic(self, session: Session | None, ask: CreateTopic, answer: Answer, refuse: Refuse) -> None:
        parsed = TopicName.parse(ask.topic)
        shard_power = ask.shards.bit_length() - 1
        if ask.shards < 1 or 2**shard_power != ask.shards or shard_power > SHARD_POWER_MAX:
            raise BadRequest(
                f"{ask.shards} shards: the number of shards is a power of 2 from 1 to {2**SHARD_POWER_MAX}"
            )
        settings = read_values(ask.settings, "topic")
        if ask.schema is not None:
            _check_schema(ask.schema, state=bool(settings.get("state")))

        def found(topic: Topic) -> None:
            difference = _difference(topic, shard_power, ask.schema, state=settings.get("state"))
            if difference is None:
                answer(topic.info())
            else:
                refuse(difference)

        topic = self._node.catalog.by_name(str(parsed))
        if topic is None:
            self._tenancy.check_room(Place.of(str(parsed)))
            asked = (str(parsed), shard_power, found, refuse)
            self._create(session, *asked, schema=ask.schema, settings=settings)
        elif ask.exist_ok:
            found(topic)
        else:
            raise _exists(topic)

    def _create(
        self,
        session: Session | None,
        name: str,
        shard_power: int | None,
        made: Callable[[Topic], None],
        refuse: Refuse,
        *,
        schema: bytes | None = None,
        settings: dict[str, Value] | None = None,
    ) -> None:
        """Creates a topic, or waits for somebody else who does and takes what comes of that."""

        def ended(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            topic = self._node.catalog.by_name(name)
            if topic is None:
                refuse(TopicNotFound(f"topic {name} was deleted at once"))
            else:
                made(topic)

        waiting = self._creating.get(name)
        if waiting is not None:  # somebody else creates it right now: whoever is first decides what it is
            waiting.append(ended)
            return
        limit = self._node.settings.limits.topics
        if len(self._node.catalog) + len(self._creating) >= limit:
            raise LimitReached(f"this node holds at most {limit} topics (limits.topics)")
        limit = self._node.settings.limits.shards
        if self._node.stores.shards + 2 ** (shard_power or 0) > limit:
            raise LimitReached(f"this node holds at most {limit} shards in all topics (limits.shards)")
        self._check_tenant(session, name.partition("/")[0], 2 ** (shard_power or 0))
        created = TopicCreated(
            name,
            self._node.new_uuid(),
            shard_power or 0,
            self._node.now_us(),
            schema=schema,
            settings=settings or {},
        )
        self._creating[name] = [ended]

        def durable(error: HeadpondError | None) -> None:
            if error is None:
                self._node.stores.topic_created(created)
                self.peering.topic_created(name)
            for waiter in self._creating.pop(name):
                waiter(error)

        self._node.stores.change_catalog(encode_catalog_change(created), durable)

    def _check_tenant(self, session: Session | None, tenant: str, shards: int) -> None:
        quotas, topics = self._node.quotas, self._node.catalog.of_tenant(tenant)
        have = sum(2**topic.created.shard_power for topic in topics)
        quotas.check(tenant, "shards", have, shards)
        making = sum(name.startswith(f"{tenant}/") for name in self._creating)
        quotas.create(session, tenant, "topics", len(topics) + making)

    def _alter_topic(self, ask: AlterTopic, answer: Answer, refuse: Refuse) -> None:
        """Gives a topic a new version of its schema; one change of a topic at a time."""
        topic = self.topic(ask.topic)
        schema = _check_schema(ask.schema, state=topic.is_state)
        if topic.schemas is None:
            raise SchemaMismatch(
                f"topic {topic.shown} is plain and has no schema to change",
                hint="A topic is typed or plain for its life; create another one with a schema.",
            )
        if topic.uuid in self._altering:
            self._altering[topic.uuid].append(lambda: self._alter_again(ask, answer, refuse))
            return
        if schema.equals(topic.schemas.newest):
            answer(topic.info())
            return
        check_evolves(topic.schemas.newest, schema)
        if sum(map(len, topic.schemas.encoded)) + len(ask.schema) > VERSIONS_BYTES_MAX:
            raise LimitReached(
                f"topic {topic.shown} has {topic.schemas.version} versions of its schema, as many as it can",
                hint="Create another topic with the columns that are wanted now.",
            )
        altered = TopicAltered(topic.uuid, topic.schemas.version + 1, ask.schema)
        self._altering[topic.uuid] = []

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
            elif self._node.changes.topic_altered(altered) is None:
                refuse(TopicNotFound(f"topic {topic.shown} was deleted"))
            else:
                answer(topic.info())
            for retry in self._altering.pop(topic.uuid):
                retry()

        self._node.stores.change_catalog(encode_catalog_change(altered), durable)

    def _alter_again(self, ask: AlterTopic, answer: Answer, refuse: Refuse) -> None:
        try:
            self._alter_topic(ask, answer, refuse)
        except HeadpondError as error:
            refuse(error)

    def _delete_topic(self, topic: Topic, answer: Answer, refuse: Refuse) -> None:
        deleted = TopicDeleted(topic.uuid)

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            self._node.changes.topic_deleted(deleted)
            answer({"topic": topic.name, "deleted": True})

        def barred(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
            else:
                self._node.stores.change_catalog(encode_catalog_change(deleted), durable)

        self.peering.before_deletion([topic], barred)


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


def _difference(topic: Topic, shard_power: int, encoded: bytes | None, *, state: Value) -> TopicExists | None:
    """Why a topic is not the one that somebody wanted to create, if it is not."""
    if state is not None and state != topic.is_state:
        return TopicExists(f"topic {topic.shown} exists and is {'no' if state else 'a'} state topic")
    if topic.created.shard_power != shard_power or (encoded is None) != (topic.schemas is None):
        return _exists(topic)
    if encoded is not None and topic.schemas is not None:
        try:
            check_fits(decode_schema(encoded), topic.schemas.newest)
        except SchemaMismatch as error:
            return TopicExists(f"topic {topic.shown} exists with another schema: {error.message}")
    return None


def _exists(topic: Topic) -> TopicExists:
    shards = f"{len(topic.shards)} shard{'s' if len(topic.shards) > 1 else ''}"
    kind = "no schema" if topic.schemas is None else f"schema version {topic.schemas.version}"
    return TopicExists(f"topic {topic.shown} exists with {shards} and {kind}")
