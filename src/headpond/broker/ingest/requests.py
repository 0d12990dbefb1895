"""Producers: registered, opened, closed, shown and removed; the lease of single access granted and given back.

Whether a client may open a producer depends on how its name is registered at the topic:

================  =============================================================================================
registered        opened as
================  =============================================================================================
not at all        multiple: registered so. single: registered so, and granted. Where nothing is created on first
                  use, multiple is let in without a registration, and single is refused.
multiple          multiple or nothing said: let in. single: refused (``producer-mismatch``).
single            single or nothing said: the lease decides. multiple: refused (``producer-mismatch``).
================  =============================================================================================

A producer without a name has multiple access and is not registered.
"""

from __future__ import annotations

from typing import Any

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.changes import (
    ProducerChange,
    ProducerGranted,
    ProducerRegistered,
    ProducerRemoved,
    ProducerSeen,
)
from headpond.broker.catalog.pages import page_of
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.ingest import Ingester
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
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Steps, journaled
from headpond.broker.stores import Stores
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

EPOCHS_AHEAD_MAX = 1_000_000
"""How far an epoch that was granted elsewhere, or before a restore, may be above the one known here: no client
can use up all epochs."""


class ProducerRequests:
    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        stores: Stores,
        quotas: Quotas,
        topics: TopicRequests,
        producing: Ingester,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._stores = stores
        self._catalog = stores.catalog
        self._quotas = quotas
        self._topics = topics
        self._producing = producing

    def list_producers(self, session: Session, ask: ListProducers) -> list[ProducerInfo]:
        topics = [self._topics.find(ask.topic)] if ask.topic else list(self._catalog)
        found = (
            (f"{topic.name}/{known.producer}", topic, known) for topic in topics for known in topic.producers
        )
        if ask.page is not None:
            return page_of(session, ask, ask.page, found, self._info)
        return [self._info(topic, known) for _, topic, known in found]

    def show_producer(self, session: Session, ask: ShowProducer) -> ProducerInfo:
        return self._info(*self._find(ask.topic, ask.producer))

    def on_disconnect(self, session: Session) -> None:
        """The connection's producers are gone; their leases last for a while."""
        for topic_uuid, producer, instance in session.producers:
            topic = self._catalog.by_uuid(topic_uuid)
            known = topic.producers.get(producer) if topic is not None else None
            if topic is None or known is None:
                continue
            presence = known.present.get(instance)
            if presence is not None and presence.connection == session.connection:
                del known.present[instance]
                known.lease.lose(session.connection, self._sessions.heard_us(session))
                self._seen(topic, known, instance, free=False)

    # --- registering --------------------------------------------------------------------------------

    def _find(self, topic_name: str, producer: str) -> tuple[Topic, Registration]:
        topic = self._topics.find(topic_name)
        known = topic.producers.get(producer)
        if known is None:
            raise ProducerNotFound(f"topic {topic.shown} has no producer {producer[:80]!r}")
        return topic, known

    def create_producer(self, session: Session, ask: CreateProducer) -> Steps[ProducerInfo]:
        topic = self._topics.find(ask.topic)
        _check_name(ask.producer)
        if ask.access not in ACCESSES:
            raise BadRequest(f"access {ask.access[:80]!r}: it is one of {', '.join(ACCESSES)}")
        known = topic.producers.get(ask.producer)
        if known is None:
            self._check_limit(session, topic)
            now_us = self._context.now_us()
            yield from self._write(topic, ProducerRegistered(topic.uuid, ask.producer, ask.access, now_us))
            known = topic.producers.get(ask.producer)
            assert known is not None
        elif not ask.exist_ok:
            raise ProducerExists(
                f"topic {topic.shown} has a producer {ask.producer!r} with {known.access} access"
            )
        if known.access != ask.access:
            raise _mismatch(topic, known, ask.access)
        return self._info(topic, known)

    def _check_limit(self, session: Session, topic: Topic) -> None:
        limit = self._context.settings.limits.producers
        if self._catalog.producers >= limit:
            raise LimitReached(f"this node holds at most {limit:,} registered producers (limits.producers)")
        self._quotas.create(session, topic.tenant, "producers", self._catalog.tenant(topic.tenant).producers)

    def delete_producer(self, session: Session, ask: DeleteProducer) -> Steps[dict[str, Any]]:
        topic, known = self._find(ask.topic, ask.producer)
        if known.present:
            who = ", ".join(sorted({each.client for each in known.present.values()}))
            raise ProducerBusy(
                f"producer {known.producer!r} of {topic.shown} is open at {who}", hint="Close it there first."
            )
        yield from self._write(topic, ProducerRemoved(topic.uuid, ask.producer, known.lease.epoch))
        self._producing.fence(topic, ask.producer, None)
        return {"topic": topic.name, "producer": ask.producer, "deleted": True}

    # --- opening ------------------------------------------------------------------------------------

    def open_producer(self, session: Session, ask: OpenProducer) -> Steps[ProducerOpened]:
        topic = self._topics.find(ask.topic)
        _check_name(ask.producer)
        if ask.access not in ("", *ACCESSES):
            raise BadRequest(f"access {ask.access[:80]!r}: it is one of {', '.join(ACCESSES)}")
        known = topic.producers.get(ask.producer)
        if known is None:
            access = ask.access or MULTIPLE
            try:
                self._check_first_use(session, topic, ask)
            except HeadpondError:
                if access == SINGLE:
                    raise
                return ProducerOpened(MULTIPLE, 0, 0.0, False)  # it may send, without a registration
            now_us = self._context.now_us()
            yield from self._write(topic, ProducerRegistered(topic.uuid, ask.producer, access, now_us))
            known = topic.producers.get(ask.producer)
            assert known is not None
        # Two clients may have registered the name at once: the registration that won decides for both.
        if ask.access not in ("", known.access):
            raise _mismatch(topic, known, ask.access)
        if known.access == MULTIPLE:
            self._enter(session, topic, known, ask)
            return ProducerOpened(MULTIPLE, 0, 0.0, True)
        return (yield from self._open_single(session, topic, known, ask))

    def _check_first_use(self, session: Session, topic: Topic, ask: OpenProducer) -> None:
        self._check_limit(session, topic)
        if not self._catalog.tree.creates_on_first_use(topic.place):
            raise ProducerNotFound(
                f"topic {topic.shown} has no producer {ask.producer[:80]!r}, "
                "and none is registered on first use"
            )

    def _open_single(
        self, session: Session, topic: Topic, known: Registration, ask: OpenProducer
    ) -> Steps[ProducerOpened]:
        """Keeps or grants the lease of single access; raises if another instance has it."""
        if ask.elsewhere and not ask.epoch:
            who = f"producer {known.producer!r} of {topic.shown} has single access here"
            raise ProducerBusy(f"{who}, and no epoch was granted at its first destination")
        lease, lease_s = known.lease, topic.settings.producer_lease
        left_s = self._left_s(topic, lease)
        if ask.epoch > topic.producers.next_epoch(lease) + EPOCHS_AHEAD_MAX:
            raise BadRequest(f"epoch {ask.epoch:,} was never granted; the latest one is {lease.epoch:,}")
        if ask.elsewhere:
            verdict, epoch = lease.follow(ask.instance, ask.epoch), ask.epoch
        else:
            verdict = lease.ask(ask.instance, ask.epoch, self._context.clock_us(), round(lease_s * 1e6))
            epoch = topic.producers.next_epoch(lease, ask.epoch)
        if verdict is Verdict.FENCED:
            raise fenced(known, topic.shown, ask.epoch)
        if verdict is Verdict.BUSY:
            raise _busy(topic, known, lease_s - left_s, left_s)
        if verdict is not Verdict.KEEP:
            now_us = self._context.now_us()
            grant = ProducerGranted(topic.uuid, known.producer, epoch, session.client, ask.instance, now_us)
            lease.granting = ask.instance
            try:
                yield from self._write(topic, grant)
            finally:
                lease.granting = b""
            lease.heard_us = self._context.clock_us()  # its connection may have ended meanwhile
            self._producing.fence(topic, known.producer, lease.epoch)
            self._context.counters["leases_granted"] += 1
        self._enter(session, topic, known, ask)
        return ProducerOpened(SINGLE, lease.epoch, lease_s, True)

    def _left_s(self, topic: Topic, lease: Lease) -> float:
        """How long a lease lasts if the node hears nothing more from its holder."""
        session = None if lease.connection is None else self._sessions.get(lease.connection)
        if session is not None:
            lease.heard_us = self._sessions.heard_us(session)
        return lease.left_s(self._context.clock_us(), round(topic.settings.producer_lease * 1e6))

    def _enter(self, session: Session, topic: Topic, known: Registration, ask: OpenProducer) -> None:
        known.seen_us = self._context.now_us()
        if not self._sessions.is_connected(session):
            return
        known.present[ask.instance] = Presence(session.connection, session.client)
        if known.access == SINGLE:
            known.lease.hold(session.connection)
        session.producers[topic.uuid, ask.producer, ask.instance] = None

    def close_producer(self, session: Session, ask: CloseProducer) -> dict[str, Any]:
        topic = self._topics.find(ask.topic)
        known = topic.producers.get(ask.producer)
        if known is not None and known.present.pop(ask.instance, None) is not None:
            free = known.lease.give_back(ask.instance)
            self._seen(topic, known, ask.instance, free=free)
        return {"topic": topic.name, "producer": ask.producer, "closed": True}

    # --- the journal --------------------------------------------------------------------------------

    def _write(self, topic: Topic, change: ProducerChange) -> Steps[None]:
        """Makes a change once it is on the disk."""
        yield journaled(self._stores.catalog_journal, change)
        if self._catalog.by_uuid(topic.uuid) is not topic:
            raise TopicNotFound(f"topic {topic.shown} was deleted")
        self._catalog.apply(change)

    def _seen(self, topic: Topic, known: Registration, instance: bytes, *, free: bool) -> None:
        known.seen_us = self._context.now_us()
        if not self._context.stopping:
            seen = ProducerSeen(topic.uuid, known.producer, known.seen_us, instance, free)
            self._stores.catalog_journal.stage(seen)

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
            self._context.now_us() if present else known.seen_us,
            known.lease.epoch,
            "" if gone else known.lease.holder,
            [each.connection for each in present],
            left_s if lost else None,
            sorted({each.client for each in present}),
        )


def _busy(topic: Topic, known: Registration, silent_s: float, left_s: float) -> ProducerBusy:
    who, lease = f"producer {known.producer!r} of {topic.shown}", known.lease
    if not lease.holder:
        return ProducerBusy(f"{who} is being granted to another instance")
    heard = "its connection was lost" if lease.connection is None else f"last heard from {silent_s:.1f} s ago"
    return ProducerBusy(f"{who} is held by {lease.holder}; {heard}, and its lease lapses in {left_s:.1f} s")


def _check_name(producer: str) -> None:
    if not producer:
        raise BadRequest("a registered producer needs a name")


def _mismatch(topic: Topic, known: Registration, access: str) -> ProducerMismatch:
    return ProducerMismatch(
        f"producer {known.producer!r} of {topic.shown} is registered with {known.access} access, not {access}"
    )
