"""The node's core: everything it decides, nothing it does itself.

The shell (server.py, or a simulation) calls in: ``connected``, ``received``, ``disconnected``, ``wrote``,
``fetched``, ``on_time``; after each call it drains ``effects()``. Reading this class top to bottom is reading
a message's way through the node.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from headpond.broker.access.guard import Guard
from headpond.broker.access.quotas import Quotas
from headpond.broker.alarms import Alarms
from headpond.broker.catalog.compact import Compacting
from headpond.broker.catalog.retain import Retaining
from headpond.broker.catalog.topic_changes import TopicChanges
from headpond.broker.catalog.topics import Topic
from headpond.broker.dispatch import Asking
from headpond.broker.effects import Close, Commit, Effect, Fetch, RemoveTree, Send
from headpond.broker.ingest.ingest import Producing
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.requests import Requests
from headpond.broker.session import Session, shown
from headpond.broker.settings import Settings
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Consuming
from headpond.model.errors import HeadpondError, NodeStopping
from headpond.storage.commit_lane import Committer, Write
from headpond.storage.commit_rounds import RoundWrite
from headpond.storage.disk import Disk, is_disk_full
from headpond.storage.log.batch import LogBatch
from headpond.storage.log.read import Run
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.connection import ConnectionFault, ConnectionState, Event, NodeSide
from headpond.wire.control.codec import CONTROL_TYPES, Misfit, Request, encode_control
from headpond.wire.control.consuming import Credit, Extend, GiveBack, Renew, Settle, Subscribe, Unsubscribe
from headpond.wire.control.greeting import Control, Hello, Ping, Pong
from headpond.wire.control.producing import BlockEnd, Hole
from headpond.wire.frame import Frame, FrameType

logger = logging.getLogger("headpond.node")

CLIENT_LENGTH_MAX = 256
STALL_US = 2_000_000
TOLD_LOST_MAX = 1000


class NodeCore:
    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        *,
        node: str,
        software: str,
        now_us: Callable[[], int],
        new_uuid: Callable[[], bytes],
        clock_us: Callable[[], int] | None = None,
        vitals: Callable[[], tuple[int | None, int | None]] = lambda: (None, None),
    ) -> None:
        """``now_us`` is the time of day; ``clock_us`` is never set back; ``vitals``: node/process.py."""
        clock_us = clock_us or now_us
        self.disk = disk
        self.settings = settings
        self.node = node
        self.now_us = now_us
        self.clock_us = clock_us
        self.new_uuid = new_uuid
        self.vitals = vitals
        self.began_us = self._turned_us = clock_us()
        self._deaf_until_us = 0
        self.counters: Counter[str] = Counter()
        self.alarms = Alarms(clock_us)
        self.stores = Stores(disk, settings, now_us, clock_us, self.alarms)
        self.catalog = self.stores.catalog
        self.subscriptions = self.stores.subscriptions
        self.software = software
        self._sessions: dict[int, Session] = {}
        self._told_lost: set[tuple[str, int, int, int]] = set()
        """Spans of entries that the log has told of: topic, shard, start, end."""
        self._effects: list[Effect] = [RemoveTree(folder) for folder in self.stores.leftovers]
        self.watermark = Watermark(disk.free_bytes, settings.limits.free_bytes_min, clock_us, self.alarms)
        self.quotas = Quotas(self.catalog, self.stores.staging.stages, self.counters, clock_us)
        self._producing = Producing(
            self.catalog,
            self.counters,
            now_us=now_us,
            send=lambda session, parts: self._send(session.connection, parts),
            limits=settings.limits,
            watermark=self.watermark,
            quotas=self.quotas,
        )
        self.consuming = self._consuming = Consuming(
            self.stores,
            self.counters,
            now_us=now_us,
            clock_us=clock_us,
            alarms=self.alarms,
            effect=lambda effect: self._effects.append(effect),
            send=self._send,
            sessions=self._sessions,
            full=lambda topic, size: self.watermark.refusal(size) or self.quotas.refusal(topic, size),
            may_subscribe=self.check_subscriptions,
        )
        self.retaining = Retaining(
            self.stores,
            self._consuming,
            self.counters,
            now_us=now_us,
            clock_us=clock_us,
            alarms=self.alarms,
        )
        self.compacting = Compacting(
            self.stores, self.counters, now_us=now_us, clock_us=clock_us, alarms=self.alarms
        )
        self.guard = Guard(self, self._sessions)
        self._requests = Requests(self, self.counters)
        self.requests = self._requests
        self.fetching = self._requests.fetching
        self.peering = self._requests.peering
        self.changes = TopicChanges(self)
        self._consuming.burying.make_topic = self._requests.ensure_topic
        producing, consuming = self._producing, self._consuming
        asking = self._asking = Asking(self, self._requests, consuming, self._send)
        self._on_raw: dict[int, Callable[[Session, Frame], None]] = {
            FrameType.TITLE: producing.on_title,
            FrameType.SEGMENT: producing.on_segment,
            FrameType.SNAPSHOT: producing.on_snapshot,
            FrameType.STAGE: self._requests.staging.on_chunk,
            FrameType.PEER: self.peering.on_record,
        }
        self._on_control: dict[type[Control], Callable[[Session, Any], None]] = {
            Hello: self._on_hello,
            Ping: self._on_ping,
            Pong: lambda session, pong: None,
            Request: asking.on_request,
            Hole: producing.on_hole,
            BlockEnd: producing.on_block_end,
            Subscribe: asking.on_subscribe,
            Unsubscribe: consuming.on_unsubscribe,
            Credit: consuming.on_credit,
            Settle: asking.on_settle,
            Extend: consuming.on_extend,
            Renew: consuming.on_renew,
            GiveBack: consuming.on_give_back,
        }

    @property
    def recovered(self) -> list[str]:
        """What opening the data folder found that is not as it should be, a line each."""
        return self.stores.recovered

    # --- effects ------------------------------------------------------------------------------------

    def effects(self) -> list[Effect]:
        """What is to be done now, in order; asking takes it."""
        self._turn()
        self._producing.flush()
        self._effects += map(Commit, self.stores.due())
        for topic in self.stores.at_rest():
            self._effects.append(RemoveTree(topic.folder, tuple(shard.log for shard in topic.shards)))
        effects, self._effects = self._effects, []
        return effects

    def add_effect(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, connection: int, parts: list[bytes]) -> None:
        if connection in self._sessions:
            self._effects.append(Send(connection, parts))

    @property
    def unacked_bytes(self) -> int:
        """Bytes of segments taken in and not answered yet, in all."""
        staging, peering = self._requests.staging, self.peering
        return self._producing.unacked_bytes + staging.unacked_bytes + peering.unacked_bytes

    # --- connections --------------------------------------------------------------------------------

    def connected(self, connection: int) -> Session:
        side = NodeSide(
            node=self.node,
            software=self.software,
            window_bytes_max=self.settings.limits.window_bytes,
            successor=self.settings.successor,
            greet=partial(self._greet, connection),
        )
        session = Session(connection, side, heard_us=self._turn())
        self._sessions[connection] = session
        self.counters["connections_opened"] += 1
        return session

    def disconnected(self, connection: int) -> None:
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.gone = True
            self.counters["connections_closed"] += 1
            self.guard.leave(session)
            self.quotas.leave(session)
            self._producing.on_disconnect(session)
            self._requests.producers.on_disconnect(session)
            self._consuming.on_disconnect(session)
            self.fetching.on_disconnect(session)
            self.peering.on_disconnect(connection)

    def received(self, connection: int, data: bytes) -> None:
        """Bytes came on a connection."""
        session = self._sessions.get(connection)
        if session is None:
            return
        session.heard_us = self._turn()
        for event in session.side.receive(data):
            try:
                self._on_event(session, event)
            except HeadpondError as error:
                self._refuse_connection(session, error)
                break
            except Exception:
                # A fault of ours: it ends this connection and no other, and is told in the log.
                logger.exception("connection %d: a frame could not be handled", connection)
                self.counters["faults_internal"] += 1
                self._refuse_connection(session, HeadpondError("the node could not handle a frame"))
                break
        out = session.side.data_to_send()
        if out:
            self._effects.append(Send(connection, out))

    def _turn(self) -> int:
        """The shell comes by. It does so every second: if it did not, nobody could be heard until now."""
        now_us = self.clock_us()
        if now_us - self._turned_us > STALL_US:
            self._deaf_until_us = now_us
        self._turned_us = now_us
        return now_us

    def heard_us(self, session: Session) -> int:
        """When a client was last heard of; the times do not count in which it could not be."""
        return self._turn() if session.unread else max(session.heard_us, self._deaf_until_us)

    def session(self, connection: int) -> Session | None:
        return self._sessions.get(connection)

    def refuse(self, connection: int, error: HeadpondError) -> None:
        """Ends a connection for a reason that the shell found: too slow, too many, stopping."""
        session = self._sessions.get(connection)
        if session is not None and session.side.state is not ConnectionState.CLOSED:
            self._refuse_connection(session, error)

    def _refuse_connection(self, session: Session, error: HeadpondError) -> None:
        self.counters[f"connections_refused_{error.code}"] += 1
        session.side.refuse(error)
        out = session.side.data_to_send()
        if out:
            self._effects.append(Send(session.connection, out))
        self._effects.append(Close(session.connection))

    def _on_event(self, session: Session, event: Event) -> None:
        if isinstance(event, Frame):
            self.guard.check_frame(session, event.type)
            self._on_raw[event.type](session, event)
        elif isinstance(event, Misfit):
            self.guard.check_frame(session, CONTROL_TYPES[event.kind])
            self._asking.on_misfit(session, event)
        elif isinstance(event, ConnectionFault):
            self.counters[f"faults_{event.error.code}"] += 1
            self._effects.append(Send(session.connection, session.side.data_to_send()))
            self._effects.append(Close(session.connection))
        else:
            self.guard.check_frame(session, CONTROL_TYPES[type(event)])
            self._on_control[type(event)](session, event)

    def _on_hello(self, session: Session, hello: Hello) -> None:
        session.greeted = True

    def _greet(self, connection: int, hello: Hello) -> None:
        session = self._sessions[connection]
        session.client = shown(hello.client[:CLIENT_LENGTH_MAX])
        self.guard.greet(session, hello)

    def _on_ping(self, session: Session, ping: Ping) -> None:
        self._send(session.connection, [encode_control(Pong(ping.number))])

    def check_subscriptions(self, session: Session | None, topic: Topic) -> None:
        """Refuses one subscription more than the topic's tenant may have."""
        topics = self.catalog.of_tenant(topic.tenant)
        have = sum(self.subscriptions.count_of(each.uuid) for each in topics)
        self.quotas.create(session, topic.tenant, "subscriptions", have)

    def check_running(self) -> None:
        if self.stopping:
            raise NodeStopping("the node is shutting down")

    def set_writable(self, connection: int, writable: bool) -> None:
        """The shell's write buffer for a connection is full, or has drained."""
        session = self._sessions.get(connection)
        if session is None:
            return
        session.writable = writable
        for attachment in list(session.consumers.values()):
            attachment.writable = writable
            if writable:
                self._consuming.opened(attachment)
        self.fetching.opened(session)

    # --- the disk -----------------------------------------------------------------------------------

    def wrote(self, lane: Committer, write: Write, error: OSError | None) -> None:
        """A lane's write ended."""
        if error is not None:
            self.counters["writes_failed"] += 1
        self._note_room(write, error)
        try:
            self.stores.wrote(lane, write, error)
        finally:
            self._producing.flush()  # producers are answered before consumers are served
            readable = self.stores.readable()
            for topic, shard, records in readable:
                self._consuming.on_durable(topic, shard, records)
            self.fetching.wake({topic.name for topic, _, _ in readable})

    def _note_room(self, write: Write, error: OSError | None) -> None:
        """What a write tells of the room on the disk."""
        errors = [error, *(write.errors.values() if isinstance(write, RoundWrite) else ())]
        if any(each is not None and is_disk_full(each) for each in errors):
            self.watermark.failed()
        elif error is None and isinstance(write, LogBatch | RoundWrite):
            self.watermark.fitted()

    def fetched(self, fetch: Fetch, run: Run | None) -> None:
        """A read of a log ended; None if the disk failed it."""
        if run is not None and run.lost:
            self._tell_lost(fetch, run.lost)
        fetch.then(run)

    def _tell_lost(self, fetch: Fetch, lost: list[tuple[int, int]]) -> None:
        """The log says once of each span that a read did not find, and why."""
        topic = self.catalog.by_uuid(fetch.topic)
        if topic is None:
            return
        kept = topic.shards[fetch.shard].log.entry_first
        for start, end in lost:
            place = (topic.shown, fetch.shard, start, end)
            if place in self._told_lost:
                continue
            if len(self._told_lost) >= TOLD_LOST_MAX:
                self._told_lost.clear()
            self._told_lost.add(place)
            where = f"topic {topic.shown}, shard {fetch.shard}"
            if start < kept:
                logger.info("%s: retention dropped entries %d to %d", where, start, min(end, kept) - 1)
            if kept < end:
                first = max(start, kept)
                logger.error("%s: entries %d to %d are damaged or missing", where, first, end - 1)

    def log_of(self, fetch: Fetch) -> ShardLog | None:
        topic = self.catalog.by_uuid(fetch.topic)
        return topic.shards[fetch.shard].log if topic is not None else None

    @property
    def sessions(self) -> Collection[Session]:
        return self._sessions.values()

    def is_connected(self, session: Session) -> bool:
        return self._sessions.get(session.connection) is session

    # --- time and end -------------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When ``on_time`` is to be called next."""
        return self.alarms.due_us

    def on_time(self) -> None:
        self.alarms.ring()

    @property
    def stopping(self) -> bool:
        return self.alarms.stopping

    def begin_stop(self) -> None:
        """Refuses what is asked from now on, and begins no work of its own."""
        self.alarms.stopping = True
        self.stores.long_work.stopped = True

    def close(self) -> None:
        """Everything staged was committed: closes the files in good order."""
        with suppress(HeadpondError):  # a place that is not written down is found again
            self.peering.note_places()
        for error in self.stores.close():
            logger.error("a file could not be closed in good order: %s", error)

    def describe(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "software": self.software,
            "topics": len(self.catalog),
            "connections": len(self._sessions),
            "counters": dict(sorted(self.counters.items())),
            "recovered": self.stores.recovered[:1000],
            "disk_full": self.watermark.lack() is not None,
        }
