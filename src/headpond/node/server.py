"""The node's shell: sockets, worker threads and timers around the core.

It makes no decisions: it passes bytes to the core and carries out the core's effects in order. Writes, syncs
and reads of files run in worker threads. A short write that is alone runs on the loop, if the disk is fast: a
thread would take longer to wake up, and to wake the loop, than the write takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Protocol, cast

from headpond.broker.catalog.topics import TOPICS_FOLDER
from headpond.broker.core import NodeCore
from headpond.broker.effects import Close, Commit, Effect, Fetch, RemoveTree, Send
from headpond.broker.operations import LocalRequest
from headpond.broker.session import Session
from headpond.broker.settings import Settings
from headpond.client.link.spin import LoopSpin, Spin
from headpond.model.address import Address
from headpond.model.errors import AddressInUse, LimitReached, NodeStopping, TimedOut
from headpond.node.links.links import Peers
from headpond.node.memory_transport import MemoryTransport, connect_in_memory
from headpond.storage.append import Batch
from headpond.storage.commit_lane import CommitLane, Committer, Write
from headpond.storage.commit_rounds import RoundWrite
from headpond.storage.disk import Disk, MeasuredDisk, is_disk_full
from headpond.storage.log.batch import LogBatch
from headpond.storage.log.read import ReadResult
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.control.codec import encode_control
from headpond.wire.control.greeting import Ping
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack
from headpond.wire.frame import Frame

logger = logging.getLogger("headpond.node")

GOODBYE_S = 2.0
"""How long a refused client may take to read the reason."""
PING_S = 5.0
"""How often the node pings a client that it does not read from."""
STOP_S_MAX = 30.0
"""How long a stopping node waits for its last writes, in all."""
MEASURE_S = 1.0
"""How often the free room of the disk is measured while nothing is written."""
MEASURE_FULL_S = 0.1
"""The same while the disk is full, and after writes."""
HERE_BYTES_MAX = 32 * 1024
HERE_S_MAX = 0.001
"""A write runs on the loop if it is no longer, and the last ones took no longer on average."""
HERE_SHARE = 0.2
"""What one write counts in that average."""
SPIN_S = 0.0002
"""How long the loop does not sleep after a write on it that followed the last one within this time."""
LEAVE_TURNS = 500
"""For how many turns, of a millisecond each, a stopping node waits until its connections have ended."""


def now_us() -> int:
    return time.time_ns() // 1000


def clock_us() -> int:
    """A clock that is never set back, for waits."""
    return time.monotonic_ns() // 1000


class Listening(Protocol):
    """What accepts connections."""

    def close(self) -> None: ...


async def listen(
    accept: Callable[[], asyncio.Protocol],
    place: tuple[str, int],
    settings: Settings,
    tls: ssl.SSLContext | None,
    protocol: str = "",
) -> tuple[asyncio.Server, Address]:
    """Listens at ``place``; returns the listener and its address, with the port that the system chose for 0."""
    host, port = place
    try:
        listener = await asyncio.get_running_loop().create_server(
            accept,
            host,
            port,
            backlog=1024,
            ssl=tls,
            ssl_handshake_timeout=settings.limits.handshake_s if tls else None,
        )
    except OSError as error:
        hint = (
            None if error.errno == errno.EADDRINUSE else "Choose an address of this machine, such as 127.0.0.1."
        )
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise AddressInUse(f"cannot listen on {Address(host, port)}{protocol}: {why}", hint=hint) from error
    return listener, Address(host, listener.sockets[0].getsockname()[1], tls=tls is not None)


class ClientConnection(asyncio.Protocol):
    """One client: its transport and its clocks. ``take_ack`` is of a client in this process."""

    def __init__(self, server: Server, number: int, take_ack: Callable[[Ack], None] | None = None) -> None:
        self._server = server
        self.number = number
        self.take_ack = take_ack
        self.transport: asyncio.Transport | None = None
        self.session: Session | None = None
        self.opened_s = self.frame_s = self.pinged_s = 0.0
        self.reading = True
        self.partial_bytes = 0
        """The bytes of its incomplete frame, as the server has counted them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.opened_s = time.monotonic()
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        server, session = self._server, self.session
        assert session is not None
        server.core.received(session, data)
        held_bytes = session.side.reader.partial_bytes
        if held_bytes or self.partial_bytes:
            if held_bytes <= len(data):  # an incomplete frame began with these bytes
                self.frame_s = time.monotonic()
            server.count_partial(self, held_bytes)
        server.drain_soon()
        server.check_window(self)

    def take(self, *events: Frame | Control | LocalRequest) -> None:
        """A client in this process sends objects instead of bytes."""
        assert self.session is not None
        self._server.core.take(self.session, events)
        self._server.drain()
        self._server.check_window(self)

    async def wait_reading(self) -> None:
        """Returns when the node takes more from a client in this process, or the connection has ended."""
        assert isinstance(self.transport, MemoryTransport)
        await self.transport.wait_reading()

    def pause_writing(self) -> None:
        self._server.core.set_writable(self.number, False)

    def resume_writing(self) -> None:
        self._server.core.set_writable(self.number, True)
        self._server.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.disconnected(self)


class Server:
    def __init__(
        self,
        disk: MeasuredDisk,
        core: NodeCore,
        settings: Settings,
        tls: ssl.SSLContext | None = None,
        threads: Callable[..., Executor] = ThreadPoolExecutor,
        certain: Callable[[], bool] = lambda: True,
        spin: Spin | None = None,
    ) -> None:
        """``certain``: whether no other node serves this data; while it is not, clients get nothing.

        ``spin``: how long the loop may wait for a program's next message without sleeping; not at all without.
        """
        self.core = core
        self._certain = certain
        self._tls = tls
        self._disk = disk
        self._settings = settings
        # Two pools, so that slow reads of old data do not delay a sync.
        self._writers = threads(settings.threads, thread_name_prefix="headpond-write")
        self._readers = threads(settings.threads, thread_name_prefix="headpond-read")
        self._connections: dict[int, ClientConnection] = {}
        self._strangers: dict[int, ClientConnection] = {}
        """Connections that may not have sent HELLO yet, oldest first."""
        self._paused: dict[ClientConnection, None] = {}
        self._numbers = 0
        self._writing = 0
        self._write_s = HERE_S_MAX
        """How long a write took, on average."""
        self._here: tuple[CommitLane, Batch] | None = None
        """The write that runs on the loop."""
        self._unproven: tuple[CommitLane, Batch] | None = None
        """The write that ran on the loop and gets its STATUS when its effects are carried out."""
        self._awake = LoopSpin(spin) if spin else None
        self._draining = False
        self._partial_bytes = 0
        self._at_rest: asyncio.Event | None = None
        """Set when no write is under way; a stopping node waits for it."""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._loop = asyncio.get_running_loop()
        self._clock_us = core.context.clock_us
        self._listener: Listening | None = None
        self.url = ""
        """Where clients connect, once it listens."""
        self.peers = Peers(core, self.drain)
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---------------------------------------------------------------------------------------

    async def start(self, listening: tuple[Listening, Address] | None = None) -> str:
        """Listens, unless somebody does who calls ``accept``; returns the URL that clients use."""
        if listening is None:
            listening = await listen(self.accept, self._settings.address, self._settings, self._tls)
        self._listener, address = listening
        self.url = address.url
        self._tasks = [self._loop.create_task(each) for each in (self._tick(), self._measure_disk())]
        self.core.watermark.lack()  # logs a disk that is full already
        self.peers.start()
        self.drain()
        return self.url

    async def stop(self) -> None:
        """Refuses new requests, finishes what is under way, ends connections, and closes the files in order."""
        self.core.begin_stop()
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await self.peers.stop()
        for connection in self._connections.values():
            if connection.transport is not None and connection.reading:
                connection.transport.pause_reading()
        self.drain()
        until_s = self._loop.time() + STOP_S_MAX
        await self._rest(until_s)
        goodbye = NodeStopping("the node is shutting down")
        goodbye.successor = self._settings.successor
        for number in list(self._connections):
            self.core.sessions.refuse(number, goodbye)
        self.drain()
        await asyncio.sleep(0.05)
        for connection in list(self._connections.values()):
            if connection.transport is not None:
                connection.transport.abort()
        self._readers.shutdown(wait=True)
        for _ in range(LEAVE_TURNS):  # the end of a connection may write to journals
            await asyncio.sleep(0.001)
            if not self._connections:
                break
        await self._rest(until_s)
        self._closed = True
        await self._loop.run_in_executor(self._writers, self.core.close)
        self._writers.shutdown(wait=True)

    async def _rest(self, until_s: float) -> None:
        """Returns when no write is under way for once, or at a time of the loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                if self._writing:
                    self._at_rest = asyncio.Event()
                    await self._at_rest.wait()

    def accept(self) -> ClientConnection:
        self._numbers += 1
        return ClientConnection(self, self._numbers)

    def attach(self, client: asyncio.Protocol, take_ack: Callable[[Ack], None]) -> ClientConnection:
        """Connects a client in this process; its connection counts like any other."""
        self._numbers += 1
        connection = ClientConnection(self, self._numbers, take_ack)
        connect_in_memory(client, connection)
        return connection

    # --- connections --------------------------------------------------------------------------------

    def connected(self, connection: ClientConnection) -> None:
        self._connections[connection.number] = connection
        connection.session = self.core.connected(connection.number, connection.take_ack)
        limit = self._settings.limits.connections
        if len(self._connections) > limit:
            error = LimitReached(f"this node takes at most {limit} connections (limits.connections)")
            self.core.sessions.refuse(self._least_wanted(connection).number, error)
            self.drain()
        self._strangers[connection.number] = connection

    def _least_wanted(self, newcomer: ClientConnection) -> ClientConnection:
        """The connection to refuse when there is one too many: the oldest that has not sent HELLO.

        So connections that send nothing cannot keep out clients that do.
        """
        for number, connection in list(self._strangers.items()):
            del self._strangers[number]
            assert connection.session is not None
            if not connection.session.greeted:
                return connection
        return newcomer

    def disconnected(self, connection: ClientConnection) -> None:
        self._connections.pop(connection.number, None)
        self._strangers.pop(connection.number, None)
        self._paused.pop(connection, None)
        self._partial_bytes -= connection.partial_bytes
        connection.partial_bytes = 0
        self.core.disconnected(connection.number)
        self.drain()

    def check_window(self, connection: ClientConnection) -> None:
        """Stops reading from a client that is far ahead of the disk, or beyond its quota."""
        limits, session = self._settings.limits, connection.session
        assert session is not None
        held_bytes = self.core.context.unacked_bytes
        full = session.unacked_bytes > limits.window_bytes or held_bytes > limits.staged_bytes
        wait_us = session.resume_us - self._clock_us() if session.resume_us else 0
        if (full or wait_us > 0) and connection.reading and connection.transport is not None:
            connection.reading = False
            session.unread = True
            connection.pinged_s = time.monotonic()
            connection.transport.pause_reading()
            self._paused[connection] = None
            if wait_us > 0:
                self._loop.call_later(wait_us / 1e6 + 0.001, self._resume_reading)

    def _resume_reading(self) -> None:
        limits = self._settings.limits
        if self.core.unacked_bytes > limits.staged_bytes // 2:
            return
        for connection in list(self._paused):
            assert connection.session is not None and connection.transport is not None
            if connection.session.resume_us > self._clock_us():
                continue
            if connection.session.unacked_bytes <= limits.window_bytes // 2:
                self._paused.pop(connection, None)
                connection.reading = True
                connection.frame_s = time.monotonic()
                connection.session.unread = False
                connection.session.heard_us = self._clock_us()
                connection.transport.resume_reading()

    async def _tick(self) -> None:
        """Once a second: ends connections that took too long."""
        limits = self._settings.limits
        while True:
            await asyncio.sleep(1.0)
            now_s = time.monotonic()
            for connection in list(self._connections.values()):
                session = connection.session
                assert session is not None
                if not connection.reading:  # the node does not read its pings, so it pings
                    if now_s - connection.pinged_s > PING_S:
                        connection.pinged_s = now_s
                        self._do(Send(connection.number, [encode_control(Ping(0))]))
                    continue
                if not session.greeted and now_s - connection.opened_s > limits.handshake_s:
                    error = TimedOut(f"no greeting within {limits.handshake_s:g} s")
                elif session.side.reader.partial_bytes and now_s - connection.frame_s > limits.frame_s:
                    error = TimedOut(f"a frame was not complete within {limits.frame_s:g} s")
                elif self._clock_us() - session.heard_us > limits.idle_s * 1e6:
                    error = TimedOut(f"the client sent nothing for {limits.idle_s:g} s")
                else:
                    continue
                self.core.sessions.refuse(connection.number, error)
            self.core.sessions.note_call()
            if self._paused:
                self._resume_reading()
            self.drain()

    async def _measure_disk(self) -> None:
        """Measures the free room of the disk in a thread, more often while the disk is full."""
        while True:
            await asyncio.sleep(MEASURE_FULL_S if self.core.watermark.full else MEASURE_S)
            await self._loop.run_in_executor(self._readers, self._disk.measure)

    def count_partial(self, connection: ClientConnection, held_bytes: int) -> None:
        """Keeps incomplete frames within their limit; refuses the clients whose frames began longest ago."""
        self._partial_bytes += held_bytes - connection.partial_bytes
        connection.partial_bytes = held_bytes
        limit = self._settings.limits.partial_bytes
        if self._partial_bytes <= limit:
            return
        error = LimitReached(f"incomplete frames hold over {limit:,} bytes (limits.partial_bytes)")
        halves = [item for item in self._connections.values() if item.partial_bytes]
        for slow in sorted(halves, key=lambda item: item.frame_s):
            if self._partial_bytes <= limit:
                break
            self._partial_bytes -= slow.partial_bytes
            slow.partial_bytes = 0
            self.core.sessions.refuse(slow.number, error)
        self.drain()

    # --- effects ------------------------------------------------------------------------------------

    def drain_soon(self) -> None:
        """Carries out the effects of the core when every connection that has bytes now has been read."""
        if not self._draining:
            self._draining = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._draining = False
        self.drain()

    def drain(self) -> None:
        """Carries out the effects of the core."""
        if self._closed or not self._certain():  # a thread closes the files
            return
        while effects := self.core.effects():
            for effect in effects:
                self._do(effect)
            if self._here is not None:
                self._write_here(*self._here)
        if self._unproven is not None:
            self._prove(*self._unproven)
        self._set_timer()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(effect)
        elif isinstance(effect, Commit):
            if self._unproven is not None:
                self._prove(*self._unproven)
            write = effect.lane.take()
            self._writing += 1
            if self._disk.ordered and effect.lane is not self.core.stores.long_work:
                # It writes to memory; nothing waits for a sync.
                self._run_write(effect.lane, write, time.monotonic())
            elif isinstance(write, Batch) and self._may_write_here(write):
                assert isinstance(effect.lane, CommitLane), "no other committer writes one batch"
                self._here = effect.lane, write
            else:
                self._writers.submit(self._run_write, effect.lane, write, time.monotonic())
        elif isinstance(effect, Fetch):
            log = self.core.log_of(effect)
            if log is None:
                self._loop.call_soon(self._fetched, effect, None)
            else:
                self._readers.submit(self._run_fetch, effect, log)
        elif isinstance(effect, Close):
            connection = self._connections.get(effect.connection)
            if connection is not None and connection.transport is not None:
                connection.transport.close()
                self._loop.call_later(GOODBYE_S, connection.transport.abort)  # it may not read the reason
        else:
            assert isinstance(effect, RemoveTree)
            self._writers.submit(self._run_remove, effect)

    def _send(self, send: Send) -> None:
        connection = self._connections.get(send.connection)
        if connection is None or connection.transport is None or connection.transport.is_closing():
            return
        connection.transport.writelines(send.parts)
        if connection.transport.get_write_buffer_size() > self._settings.limits.unsent_bytes:
            logger.warning("connection %d does not read what the node sends; closed", connection.number)
            self.core.context.counters["connections_refused_unsent"] += 1
            connection.transport.abort()

    def _set_timer(self) -> None:
        due_us = self.core.context.alarms.due_us
        if due_us == self._timer_us:
            return
        self._timer_us = due_us
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_us is not None:
            self._timer = self._loop.call_later(
                max(0.0, (due_us - self._clock_us()) / 1e6) + 0.001, self.on_time
            )

    def on_time(self) -> None:
        """Lets the core do what is due by its clock."""
        if self._closed:
            return
        self._timer_us = None
        self.core.on_time()
        self.drain()
        if self._paused:
            self._resume_reading()

    # --- writes -------------------------------------------------------------------------------------

    def _may_write_here(self, write: Batch) -> bool:
        alone = self._writing == 1 and self._here is None
        short = write.bytes <= HERE_BYTES_MAX and not (write.creates or write.reserve_to or write.removals)
        return alone and short and self._write_s < HERE_S_MAX

    def _write_here(self, lane: CommitLane, write: Batch) -> None:
        """Runs a write on the loop. Its STATUS comes when the producer has its answer: no promise needs it."""
        self._here = None
        self.core.context.counters["writes_on_loop"] += 1
        began_s = time.monotonic()
        error = self._try(lane, write.append)
        if error is None and isinstance(write, LogBatch):
            self._unproven = lane, write
        elif error is None:
            write.prove()
        self._wrote(lane, write, began_s, error)
        if self._awake is not None:
            self._awake.between(began_s)

    def _prove(self, lane: CommitLane, write: Batch) -> None:
        self._unproven = None
        lane.appender.prove(write)

    def _run_write(self, lane: Committer, write: Write, began_s: float) -> None:
        """In a worker thread; ``began_s``: when it was given to it."""
        error = self._try(lane, write.run)
        if error is None:
            self._disk.when_durable(partial(self._report_write, lane, write, began_s))
        else:
            self._report_write(lane, write, began_s, error)

    def _try(self, lane: Committer, run: Callable[[Disk], None]) -> OSError | None:
        error: OSError | None = None
        try:
            run(self._disk)
        except OSError as failure:
            error = failure
        except Exception as failure:  # an internal fault must not pass for a write that succeeded
            logger.exception("writing %s failed", lane.name)
            error = OSError(errno.EIO, f"internal fault: {failure}")
        self._disk.measure(MEASURE_FULL_S)
        return error

    def _report_write(self, lane: Committer, write: Write, began_s: float, error: OSError | None) -> None:
        self._loop.call_soon_threadsafe(self._write_ended, lane, write, began_s, error)

    def _write_ended(self, lane: Committer, write: Write, began_s: float, error: OSError | None) -> None:
        self._wrote(lane, write, began_s, error)
        self.drain()

    def _wrote(self, lane: Committer, write: Write, began_s: float, error: OSError | None) -> None:
        self._writing -= 1
        took_s = time.monotonic() - began_s
        if isinstance(write, Batch):
            self._write_s += HERE_SHARE * (took_s - self._write_s)
        if error is None and isinstance(write, Batch | RoundWrite):
            self.core.context.timings.sync.observe(int(took_s * 1e6))
        known = error is not None and is_disk_full(error) and self.core.watermark.lack() is not None
        if error is not None and not known:  # the watermark logs a full disk once
            logger.error("cannot write %s: %s; the node refuses what it had not acknowledged", lane.name, error)
        self.core.wrote(lane, write, error)
        if self._paused:
            self._resume_reading()
        if not self._writing and self._at_rest is not None:
            self._at_rest.set()

    def _run_fetch(self, fetch: Fetch, log: ShardLog) -> None:
        run: ReadResult | None = None
        try:
            run = fetch.run(log)
        except OSError as error:
            logger.error("cannot read entry %d: %s", fetch.entry, error)
        except Exception:
            logger.exception("reading entry %d failed", fetch.entry)
        self._loop.call_soon_threadsafe(self._fetched, fetch, run)

    def _fetched(self, fetch: Fetch, run: ReadResult | None) -> None:
        self.core.fetched(fetch, run)
        self.drain()
        if self._paused:
            self._resume_reading()

    def _run_remove(self, remove: RemoveTree) -> None:
        try:
            for log in remove.logs:
                log.close()
            self._disk.remove_tree(remove.folder)
            self._disk.sync_folder(TOPICS_FOLDER)
        except OSError as error:
            logger.error("cannot remove %s: %s", remove.folder, error)
