"""The node's core: wires the parts of the broker and passes each input to the part that handles it.

The shell (node/server.py, or a simulation) calls in: ``connected``, ``received``, ``disconnected``, ``wrote``,
``fetched``, ``on_time``; after each call it carries out ``effects()``. The core does no IO.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headpond.broker.access.admin_log import AdminLogger
from headpond.broker.access.groups import Elsewhere
from headpond.broker.access.guard import Guard
from headpond.broker.access.quotas import Quotas
from headpond.broker.access.requests import TokenRequests
from headpond.broker.backup import BackupRequests, FolderCut
from headpond.broker.catalog.compact import Compacting
from headpond.broker.catalog.pack import Packing
from headpond.broker.catalog.place_requests import PlaceRequests
from headpond.broker.catalog.retain import Retaining
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.context import Context
from headpond.broker.effects import Commit, Effect, Fetch, RemoveTree, Send
from headpond.broker.ingest.ingest import Ingester
from headpond.broker.ingest.requests import ProducerRequests
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.ledger.ledger import LedgerRequests
from headpond.broker.ledger.top import TopRequests
from headpond.broker.links.requests import LinkRequests
from headpond.broker.operations import LocalRequest, Operations
from headpond.broker.reading.fetch import Fetcher
from headpond.broker.session import Session, shown
from headpond.broker.sessions import Sessions
from headpond.broker.settings import Settings
from headpond.broker.staging.requests import WriterRequests
from headpond.broker.staging.staging import Staging
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Dispatcher
from headpond.broker.subscriptions.requests import SubscriptionRequests
from headpond.model.errors import HeadpondError
from headpond.model.grant import ALL
from headpond.storage.commit_lane import Committer, Write
from headpond.storage.commit_rounds import RoundWrite
from headpond.storage.disk import Disk, is_disk_full
from headpond.storage.log.batch import LogBatch
from headpond.storage.log.read import ReadResult
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.connection import ConnectionState, Event, NodeSide
from headpond.wire.control.codec import CONTROL_TYPES, Misfit, Request, encode_control
from headpond.wire.control.consuming import Credit, Extend, GiveBack, Renew, Settle, Subscribe, Unsubscribe
from headpond.wire.control.greeting import Hello, Ping, Pong
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack, BlockEnd, Hole
from headpond.wire.frame import Frame, FrameType

logger = logging.getLogger("headpond.node")

CLIENT_LENGTH_MAX = 256


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
        elsewhere: Elsewhere | None = None,
        cut: FolderCut | None = None,
    ) -> None:
        """``now_us`` is the time of day; ``clock_us`` is never set back; ``vitals``: node/process.py.

        ``elsewhere``: in a cluster, the error for a tenant on another group. ``cut``: None if the disk has no
        folder of this machine that could be backed up.
        """
        context = self.context = Context(
            settings,
            node=node,
            software=software,
            now_us=now_us,
            clock_us=clock_us or now_us,
            new_uuid=new_uuid,
        )
        stores = self.stores = Stores(disk, context)
        context.effects += [RemoveTree(folder) for folder in stores.leftovers]
        catalog = stores.catalog
        sessions = self.sessions = Sessions(context)
        watermark = self.watermark = Watermark(
            disk.free_bytes, settings.limits.free_bytes_min, context.clock_us, context.alarms
        )
        quotas = self.quotas = Quotas(catalog, stores.stages, context.counters, context.clock_us)
        guard = self._guard = Guard(context, sessions, stores, quotas, elsewhere)
        topics = self.topics = TopicRequests(context, stores, quotas, Compacting(context, stores))
        if not disk.ordered:
            Packing(context, stores, watermark)
        producing = self._producing = Ingester(context, sessions, catalog, watermark, quotas)
        consuming = self.consuming = Dispatcher(
            context,
            sessions,
            stores,
            guard,
            quotas,
            topics,
            full=lambda topic, size: watermark.refusal(size) or quotas.refusal(topic, size),
        )
        Retaining(context, stores, consuming)
        fetching = self.fetching = Fetcher(context, catalog)
        writers = WriterRequests(stores)
        staging = Staging(context, stores, guard, quotas, watermark, topics, writers)
        subscriptions = SubscriptionRequests(context, stores, topics, consuming, fetching)
        peering = self.peering = LinkRequests(
            context, stores, quotas, watermark, topics, consuming, fetching, subscriptions
        )
        producers = self._producers = ProducerRequests(context, sessions, stores, quotas, topics, producing)
        top = TopRequests(
            context,
            sessions,
            stores,
            disk,
            watermark,
            vitals=vitals,
            links=peering.infos,
        )
        backups = self._backups = BackupRequests(context, stores, cut)
        topics.listeners += [consuming, producing, peering, fetching]
        operations = self.operations = Operations(
            context,
            sessions,
            guard,
            AdminLogger(stores.admin_log_journal, now_us),
            (
                topics,
                PlaceRequests(context, stores, quotas, topics),
                producers,
                subscriptions,
                fetching,
                staging,
                writers,
                *peering.parts,
                TokenRequests(context, disk, stores, guard, watermark),
                LedgerRequests(context, stores, topics, producing),
                top,
                backups,
            ),
        )
        self._on_raw: dict[int, Callable[[Session, Frame], None]] = {
            FrameType.TITLE: producing.on_title,
            FrameType.SEGMENT: producing.on_segment,
            FrameType.SNAPSHOT: producing.on_snapshot,
            FrameType.STAGE: staging.on_chunk,
            FrameType.PEER: peering.on_record,
        }
        self._on_control: dict[type[Control], Callable[[Session, Any], None]] = {
            Hello: self._on_hello,
            Ping: self._on_ping,
            Pong: lambda session, pong: None,
            Request: operations.on_request,
            Hole: producing.on_hole,
            BlockEnd: producing.on_block_end,
            Subscribe: consuming.on_subscribe,
            Unsubscribe: consuming.on_unsubscribe,
            Credit: consuming.on_credit,
            Settle: consuming.on_settle,
            Extend: consuming.on_extend,
            Renew: consuming.on_renew,
            GiveBack: consuming.on_give_back,
        }

    def effects(self) -> list[Effect]:
        """Takes the effects that the shell carries out now, in order; it asks until there are none.

        Producers are answered before consumers are served, and both before the next writes begin.
        """
        context, stores = self.context, self.stores
        if self._producing.answers:
            self._producing.flush()
        if not context.effects:
            if stores.readable:
                self._serve()
            context.effects += map(Commit, stores.due())
            if stores.deleted:
                for topic in stores.at_rest():
                    context.effects.append(RemoveTree(topic.folder, tuple(shard.log for shard in topic.shards)))
        effects, context.effects = context.effects, []
        return effects

    @property
    def unacked_bytes(self) -> int:
        return self.context.unacked_bytes

    # --- connections --------------------------------------------------------------------------------

    def connected(self, connection: int, take_ack: Callable[[Ack], None] | None = None) -> Session:
        """A connection was made; ``take_ack`` is of a client in the node's process."""
        settings = self.context.settings
        side = NodeSide(
            node=self.context.node,
            software=self.context.software,
            window_bytes_max=settings.limits.window_bytes,
            successor=settings.successor,
            group=settings.group if settings.cluster else "",
            greet=partial(self._greet, connection),
        )
        session = Session(connection, side, take_ack, heard_us=self.sessions.note_call())
        self.sessions.add(session)
        self.context.counters["connections_opened"] += 1
        return session

    def disconnected(self, connection: int) -> None:
        session = self.sessions.remove(connection)
        if session is not None:
            session.gone = True
            self.context.counters["connections_closed"] += 1
            self._guard.leave(session)
            self.quotas.leave(session)
            self._producing.on_disconnect(session)
            self._producers.on_disconnect(session)
            self.consuming.on_disconnect(session)
            self.fetching.on_disconnect(session)
            self.peering.on_disconnect(connection)
            self._backups.on_disconnect(session)

    def received(self, session: Session, data: bytes) -> None:
        """Bytes came on a connection."""
        if not session.gone:
            self._handle(session, session.side.receive(data))
            if out := session.side.data_to_send():
                self.context.effects.append(Send(session.connection, out))

    def take(self, session: Session, events: Sequence[Event | LocalRequest]) -> None:
        """A client in the node's process sends objects; a connection that was refused sends nothing."""
        if session.side.state is ConnectionState.OPEN:
            self._handle(session, events)

    def _handle(self, session: Session, events: Sequence[Event | LocalRequest]) -> None:
        session.heard_us = self.sessions.note_call()
        for event in events:
            try:
                self._on_event(session, event)
            except HeadpondError as error:
                self.sessions.refuse(session.connection, error)
                break
            except Exception:
                # A fault of the node's own ends this connection and no other.
                logger.exception("connection %d: a frame could not be handled", session.connection)
                self.context.counters["faults_internal"] += 1
                self.sessions.refuse(session.connection, HeadpondError("the node could not handle a frame"))
                break

    def _on_event(self, session: Session, event: Event | LocalRequest) -> None:
        if isinstance(event, Frame):
            if session.grant is not ALL:
                self._guard.check_frame(session, event.type)
            self._on_raw[event.type](session, event)
        elif isinstance(event, Control):
            self._guard.check_frame(session, CONTROL_TYPES[type(event)])
            self._on_control[type(event)](session, event)
        elif isinstance(event, LocalRequest):
            self._guard.check_frame(session, FrameType.REQUEST)
            self.operations.carry_out(session, *event)
        elif isinstance(event, Misfit):
            self._guard.check_frame(session, CONTROL_TYPES[event.kind])
            part = self.operations if event.kind is Request else self.consuming
            part.on_misfit(session, event)
        else:
            self.context.counters[f"faults_{event.error.code}"] += 1
            self.sessions.end(session)

    def _on_hello(self, session: Session, hello: Hello) -> None:
        session.greeted = True

    def _greet(self, connection: int, hello: Hello) -> None:
        session = self.sessions.get(connection)
        assert session is not None
        session.client = shown(hello.client[:CLIENT_LENGTH_MAX])
        self._guard.greet(session, hello)

    def _on_ping(self, session: Session, ping: Ping) -> None:
        self.sessions.send(session.connection, [encode_control(Pong(ping.number))])

    def set_writable(self, connection: int, writable: bool) -> None:
        """The shell's write buffer for a connection is full, or has drained."""
        session = self.sessions.get(connection)
        if session is None:
            return
        session.writable = writable
        self.consuming.set_writable(session, writable)
        self.fetching.opened(session)

    # --- the disk -----------------------------------------------------------------------------------

    def wrote(self, lane: Committer, write: Write, error: OSError | None) -> None:
        """A lane's write ended."""
        if error is not None:
            self.context.counters["writes_failed"] += 1
        if error is not None or self.watermark.failed_us is not None or isinstance(write, RoundWrite):
            self._note_room(write, error)
        self.stores.wrote(lane, write, error)

    def _serve(self) -> None:
        """Records became readable: consumers, followers and clients that wait for them get them."""
        counters = self.context.counters
        readable, self.stores.readable = self.stores.readable, []
        for topic, shard, records in readable:
            if records:
                counters["segments_stored"] += len(records)
                counters["messages_stored"] += records[-1].header.end_entry - records[0].header.first_entry
                self.consuming.on_durable(topic, shard, records)
        changed = [topic.name for topic, _, _ in readable]
        self.peering.source.touched(changed)
        self.fetching.wake(changed)

    def _note_room(self, write: Write, error: OSError | None) -> None:
        """A write shows whether the disk has room."""
        errors = list(write.errors.values()) if isinstance(write, RoundWrite) else []
        if error is not None:
            errors.append(error)
        if errors and any(map(is_disk_full, errors)):
            self.watermark.failed()
        elif error is None and isinstance(write, LogBatch | RoundWrite):
            self.watermark.fitted()

    def log_of(self, fetch: Fetch) -> ShardLog | None:
        topic = self.stores.catalog.by_uuid(fetch.topic)
        return topic.shards[fetch.shard].log if topic is not None else None

    def fetched(self, fetch: Fetch, run: ReadResult | None) -> None:
        """A read of a log ended; None if the disk failed it."""
        if run is not None and run.lost:
            self.fetching.log_losses(fetch, run.lost)
        fetch.then(run)

    # --- time and end -------------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When the shell calls ``on_time`` next."""
        return self.context.alarms.due_us

    def on_time(self) -> None:
        self.sessions.note_call()
        self.context.alarms.ring()

    def begin_stop(self) -> None:
        """Refuses new requests, and begins no work of the node's own."""
        self.context.alarms.stopping = True
        self.stores.long_work.stopped = True

    def close(self) -> None:
        """Closes the files in good order; the shell has committed everything that was staged."""
        with suppress(HeadpondError):  # a position that is not written down is found again
            self.peering.progress.write()
        for error in self.stores.close():
            logger.error("a file could not be closed in good order: %s", error)
