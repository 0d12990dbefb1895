"""Producers registered, opened, closed, shown and removed; the lease of single access granted and given back.

What a producer may do, by how its name is registered at the topic:

================  =============================================================================================
registered        opened as
================  =============================================================================================
not at all        multiple: registered so. single: registered so, and granted. Where nothing is created on first
                  use, multiple is let in without a registration, and single is refused.
multiple          multiple or nothing said: let in. single: refused (``producer-mismatch``).
single            single or nothing said: the lease decides. multiple: refused (``producer-mismatch``).
================  =============================================================================================

A producer without a name is nobody's second instance: it has multiple access and is not registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.catalog.changes import (
    ProducerChange,
    ProducerGranted,
    ProducerRegistered,
    ProducerRemoved,
    ProducerSeen,
    encode_change,
)
from headpond.broker.catalog.topics import Topic
from headpond.broker.ingest.producers import (
    ACCESSES,
    MULTIPLE,
    SINGLE,
    Lease,
    Presence,
    Registration,
    Verdict,
    fenced,
)
from headpond.broker.session import Session
from headpond.model.errors import (
    BadRequest,
    HeadpondError,
    LimitReached,
    ProducerBusy,
    ProducerExists,
    ProducerMismatch,
    ProducerNotFound,
    TopicNotFound,
)
from headpond.wire.control.codec import Operation
from headpond.wire.control.producing import (
    CloseProducer,
    CreateProducer,
    DeleteProducer,
    ListProducers,
    OpenProducer,
    ProducerInfo,
    ProducerOpened,
    ShowProducer,
)

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

EPOCHS_AHEAD_MAX = 1_000_000
"""How far above the one known here an epoch may be that was granted elsewhere, or before a restore: nobody
takes the highest there is and leaves none for others."""

Answer = Callable[[Any], None]
Refuse = Callable[[HeadpondError], None]


class ProducerRequests:
    """``topic_of`` finds a topic by its name, or raises; ``may_create`` says whether first use is enough."""

    def __init__(
        self, node: NodeCore, topic_of: Callable[[str], Topic], may_create: Callable[[Topic], bool]
    ) -> None:
        self._node = node
        self._topic = topic_of
        self._may_create = may_create

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about producers."""
        if isinstance(operation, OpenProducer):
            self._open(session, operation, answer, refuse)
        elif isinstance(operation, CloseProducer):
            self._close(operation, answer)
        elif isinstance(operation, CreateProducer):
            self._create(session, operation, answer, refuse)
        elif isinstance(operation, ListProducers):
            topics = [self._topic(operation.topic)] if operation.topic else list(self._node.catalog)
            answer([self._info(topic, known) for topic in topics for known in topic.producers])
        elif isinstance(operation, ShowProducer):
            answer(self._info(*self._find(operation.topic, operation.producer)))
        elif isinstance(operation, DeleteProducer):
            self._delete(operation, answer, refuse)
        else:
            return False
        return True

    def on_disconnect(self, session: Session) -> None:
        """Whatever was open over the connection is lost; leases stand for a while."""
        for topic_uuid, producer, instance in session.producers:
            topic = self._node.catalog.by_uuid(topic_uuid)
            known = topic.producers.get(producer) if topic is not None else None
            if topic is None or known is None:
                continue
            presence = known.present.get(instance)
            if presence is not None and presence.connection == session.connection:
                del known.present[instance]
                known.lease.lose(session.connection, self._node.heard_us(session))
                self._seen(topic, known, instance, free=False)

    # --- registering --------------------------------------------------------------------------------

    def _find(self, topic_name: str, producer: str) -> tuple[Topic, Registration]:
        topic = self._topic(topic_name)
        known = topic.producers.get(producer)
        if known is None:
            raise ProducerNotFound(f"topic {topic.shown} has no producer {producer[:80]!r}")
        return topic, known

    def _create(self, session: Session, ask: CreateProducer, answer: Answer, refuse: Refuse) -> None:
        topic = self._topic(ask.topic)
        _check_name(ask.producer)
        if ask.access not in ACCESSES:
            raise BadRequest(f"access {ask.access[:80]!r}: it is one of {', '.join(ACCESSES)}")
        known = topic.producers.get(ask.producer)
        if known is not None:
            self._check_same(topic, known, ask)
            answer(self._info(topic, known))
            return
        self._check_limit(session, topic)
        registered = ProducerRegistered(topic.uuid, ask.producer, ask.access, self._node.now_us())

        def made() -> None:
            known = topic.producers.get(ask.producer)
            assert known is not None
            if known.access != ask.access:
                raise _mismatch(topic, known, ask.access)
            answer(self._info(topic, known))

        self._write(topic, registered, made, refuse)

    def _check_same(self, topic: Topic, known: Registration, ask: CreateProducer) -> None:
        if not ask.exist_ok:
            raise ProducerExists(
                f"topic {topic.shown} has a producer {ask.producer!r} with {known.access} access"
            )
        if known.access != ask.access:
            raise _mismatch(topic, known, ask.access)

    def _check_limit(self, session: Session, topic: Topic) -> None:
        limit = self._node.settings.limits.producers
        if sum(len(topic.producers) for topic in self._node.catalog) >= limit:
            raise LimitReached(f"this node holds at most {limit:,} registered producers (limits.producers)")
        have = sum(len(each.producers) for each in self._node.catalog.of_tenant(topic.tenant))
        self._node.quotas.create(session, topic.tenant, "producers", have)

    def _delete(self, ask: DeleteProducer, answer: Answer, refuse: Refuse) -> None:
        topic, known = self._find(ask.topic, ask.producer)
        if known.present:
            who = ", ".join(sorted({each.client for each in known.present.values()}))
            raise ProducerBusy(
                f"producer {known.producer!r} of {topic.shown} is open at {who}", hint="Close it there first."
            )
        epoch = known.lease.epoch

        def removed() -> None:
            self._node.changes.fence(topic, ask.producer, None)
            answer({"topic": topic.name, "producer": ask.producer, "deleted": True})

        self._write(topic, ProducerRemoved(topic.uuid, ask.producer, epoch), removed, refuse)

    # --- opening ------------------------------------------------------------------------------------

    def _open(self, session: Session, ask: OpenProducer, answer: Answer, refuse: Refuse) -> None:
        topic = self._topic(ask.topic)
        _check_name(ask.producer)
        if ask.access not in ("", *ACCESSES):
            raise BadRequest(f"access {ask.access[:80]!r}: it is one of {', '.join(ACCESSES)}")
        known = topic.producers.get(ask.producer)
        if known is not None and ask.access not in ("", known.access):
            raise _mismatch(topic, known, ask.access)
        if known is None:
            self._open_new(session, topic, ask, answer, refuse)
        elif known.access == MULTIPLE:
            self._enter(session, topic, known, ask)
            answer(ProducerOpened(MULTIPLE, 0, 0.0, True))
        else:
            self._ask_lease(session, topic, known, ask, answer, refuse)

    def _open_new(
        self, session: Session, topic: Topic, ask: OpenProducer, answer: Answer, refuse: Refuse
    ) -> None:
        access = ask.access or MULTIPLE
        try:
            self._check_limit(session, topic)
            if not self._may_create(topic):
                raise ProducerNotFound(
                    f"topic {topic.shown} has no producer {ask.producer[:80]!r}, "
                    "and none is registered on first use"
                )
        except HeadpondError:
            if access == SINGLE:
                raise
            answer(ProducerOpened(MULTIPLE, 0, 0.0, False))  # it may send; nobody looks after its name
            return
        registered = ProducerRegistered(topic.uuid, ask.producer, access, self._node.now_us())
        # The lease is asked for once the name is there: two that register it at once are told apart by that.
        self._write(topic, registered, lambda: self._open(session, ask, answer, refuse), refuse)

    def _ask_lease(
        self,
        session: Session,
        topic: Topic,
        known: Registration,
        ask: OpenProducer,
        answer: Answer,
        refuse: Refuse,
    ) -> None:
        if ask.elsewhere and not ask.epoch:
            who = f"producer {known.producer!r} of {topic.shown} has single access here"
            raise ProducerBusy(f"{who}, and no epoch was granted at its first destination")
        lease, lease_s = known.lease, topic.settings().producer_lease
        left_s = self._left_s(topic, lease)
        if ask.epoch > topic.producers.next_epoch(lease) + EPOCHS_AHEAD_MAX:
            raise BadRequest(
                f"epoch {ask.epoch:,} is none that was granted; the one known here is {lease.epoch:,}"
            )
        if ask.elsewhere:
            verdict, epoch = lease.follow(ask.instance, ask.epoch), ask.epoch
        else:
            verdict = lease.ask(ask.instance, ask.epoch, self._node.clock_us(), round(lease_s * 1e6))
            epoch = topic.producers.next_epoch(lease, ask.epoch)

        def held() -> None:
            self._enter(session, topic, known, ask)
            answer(ProducerOpened(SINGLE, lease.epoch, lease_s, True))

        def granted() -> None:
            lease.heard_us = self._node.clock_us()  # if its connection went meanwhile
            self._node.changes.fence(topic, known.producer, lease.epoch)
            self._node.counters["leases_granted"] += 1
            held()

        if verdict is Verdict.KEEP:
            held()
        elif verdict is Verdict.FENCED:
            raise fenced(known, topic.shown, ask.epoch)
        elif verdict is Verdict.BUSY:
            raise _busy(topic, known, lease_s - left_s, left_s)
        else:
            lease.granting = ask.instance
            grant = ProducerGranted(
                topic.uuid, known.producer, epoch, session.client, ask.instance, self._node.now_us()
            )
            self._write(topic, grant, granted, refuse, ended=lambda: setattr(lease, "granting", b""))

    def _left_s(self, topic: Topic, lease: Lease) -> float:
        """How long a lease still stands if nothing more is heard of its holder."""
        session = None if lease.connection is None else self._node.session(lease.connection)
        if session is not None:
            lease.heard_us = self._node.heard_us(session)
        return lease.left_s(self._node.clock_us(), round(topic.settings().producer_lease * 1e6))

    def _enter(self, session: Session, topic: Topic, known: Registration, ask: OpenProducer) -> None:
        known.seen_us = self._node.now_us()
        if not self._node.is_connected(session):
            return
        known.present[ask.instance] = Presence(session.connection, session.client)
        if known.access == SINGLE:
            known.lease.hold(session.connection)
        session.producers[topic.uuid, ask.producer, ask.instance] = None

    def _close(self, ask: CloseProducer, answer: Answer) -> None:
        topic = self._topic(ask.topic)
        known = topic.producers.get(ask.producer)
        if known is not None and known.present.pop(ask.instance, None) is not None:
            free = known.lease.give_back(ask.instance)
            self._seen(topic, known, ask.instance, free=free)
        answer({"topic": topic.name, "producer": ask.producer, "closed": True})

    # --- the journal --------------------------------------------------------------------------------

    def _write(
        self,
        topic: Topic,
        change: ProducerChange,
        then: Callable[[], None],
        refuse: Refuse,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes a change once it is on the disk, then goes on; anything that keeps it from that is told."""

        def durable(error: HeadpondError | None) -> None:
            ended()
            try:
                if error is not None:
                    raise error
                if self._node.catalog.by_uuid(topic.uuid) is not topic:
                    raise TopicNotFound(f"topic {topic.shown} was deleted")
                topic.producers.apply(change)
                then()
            except HeadpondError as refusal:
                refuse(refusal)

        self._node.stores.change_catalog(encode_change(change), durable)

    def _seen(self, topic: Topic, known: Registration, instance: bytes, *, free: bool) -> None:
        known.seen_us = self._node.now_us()
        if not self._node.stopping:
            self._node.stores.note_catalog(
                ProducerSeen(topic.uuid, known.producer, known.seen_us, instance, free)
            )

    def _info(self, topic: Topic, known: Registration) -> ProducerInfo:
        present = list(known.present.values())
        left_s = self._left_s(topic, known.lease)
        gone = not known.lease.instance or left_s <= 0
        lost = not gone and known.lease.connection is None
        return ProducerInfo(
            topic.name,
            known.producer,
            known.access,
            known.registered_at_us,
            self._node.now_us() if present else known.seen_us,
            known.lease.epoch,
            "" if gone else known.lease.holder,
            [each.connection for each in present],
            left_s if lost else None,
            sorted({each.client for each in present}),
        )


def _busy(topic: Topic, known: Registration, silent_s: float, left_s: float) -> ProducerBusy:
    who, lease = f"producer {known.producer!r} of {topic.shown}", known.lease
    if not lease.holder:
        return ProducerBusy(f"{who} is held by an instance that is just being granted it")
    heard = f"heard of {silent_s:.1f} s ago" if lease.connection is not None else "its connection was lost"
    return ProducerBusy(f"{who} is held by {lease.holder}; {heard}, and its lease lapses in {left_s:.1f} s")


def _check_name(producer: str) -> None:
    if not producer:
        raise BadRequest("a producer that is registered has a name")


def _mismatch(topic: Topic, known: Registration, access: str) -> ProducerMismatch:
    return ProducerMismatch(
        f"producer {known.producer!r} of {topic.shown} is registered with {known.access} access, not {access}"
    )
