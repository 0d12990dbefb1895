"""The producer: messages in, receipts out.

Rows gather in the batcher. While the window has room, a segment is cut at the end of the loop's iteration, so
that concurrent sends share segments; when it is full, segments grow. A ``send`` that is alone does not wait for
others. The run takes segments to every destination, and to the refill where a destination does not take them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Generic, Self

from headpond.client.heap import LARGE_BYTES, keep_freed_memory
from headpond.client.link.connection import Connection
from headpond.client.link.link import Link
from headpond.client.options import ProducerOptions
from headpond.client.produce.batcher import Batcher, SentT
from headpond.client.produce.promise import BatchReceipt, Outstanding, Parcel, Part, Promise
from headpond.client.produce.run import ProducerRun, open_run
from headpond.client.produce.tables import cut_rows
from headpond.client.produce.values import TypedValues
from headpond.client.scope import AsyncScope
from headpond.client.tracing import Tracing
from headpond.model.errors import BufferFull, Closed, HeadpondError, TimedOut
from headpond.model.names import TopicName
from headpond.model.receipt import Fate, Outcome, Receipt
from headpond.producer.encoder import NoSharder, Sharder
from headpond.wire.expiry import with_ttl

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS_EAGER_MAX = 64
"""With this many segments unanswered, rows wait and share the next one."""
ROWS_A_TURN = 256
"""Rows that ``post_when_room`` takes before it lets the event loop run."""


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Counts of messages; ``posted = stored + duplicate + spilled + rejected + unconfirmed``.

    A spilled message stays counted as spilled, also when it was delivered later.
    """

    posted: int
    stored: int
    duplicate: int
    rejected: int
    resent: int
    """Segments that were sent more than once."""
    in_flight_bytes: int
    memory_bytes: int
    reconnects: int
    spilled: int = 0
    refill_bytes: int = 0
    """Bytes on disk that wait for a destination."""
    refill_max: int = 0
    rotations: int = 0
    holes: tuple[str, ...] = ()
    """The segments that a destination lacks and nobody has."""
    lost: tuple[str, ...] = ()
    """The segments that can no longer be read from the refill."""
    hindrances: tuple[str, ...] = ()
    """Why a destination takes nothing for now: its name, and the code and message of its last refusal."""

    @property
    def unconfirmed(self) -> int:
        return self.posted - self.stored - self.duplicate - self.spilled - self.rejected


class RoomQueue:
    """Senders that wait for room, in order.

    A woken sender uses its turn and wakes the next if there is more room; a cancelled one passes its turn on. A
    sender that finds no room waits again under its old turn.
    """

    def __init__(self) -> None:
        self._turns = count()
        self.waiting: list[int] = []
        """Turns, in order."""
        self._waiters: dict[int, asyncio.Future[None]] = {}

    async def wait(self, turn: int | None = None) -> int:
        """Returns its turn, for waiting again, when it is woken."""
        turn = next(self._turns) if turn is None else turn
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[turn] = waiter
        insort(self.waiting, turn)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake_one()
            raise
        return turn

    def wake_one(self) -> None:
        while self.waiting:
            waiter = self._waiters.pop(self.waiting.pop(0))
            if not waiter.done():
                waiter.set_result(None)
                return


class Producer(AsyncScope, Generic[SentT]):
    """Sends messages to one topic. Open it with ``async with client.producer(topic) as producer``."""

    internal = AsyncScope.internal | {
        *("batcher", "connection", "is_lone", "linger_s", "reached", "ship_sealed", "stopped", "tick"),
        *("check_room", "has_room", "is_pressed", "memory_bytes", "on_answered", "on_topic", "wait_room"),
    }

    def __init__(
        self,
        links: Sequence[Link],
        topic: str,
        name: str | None,
        options: ProducerOptions,
        batcher: type[Batcher] = Batcher,
        tracing: Tracing | None = None,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.name = name or ""
        self.shards = 0
        """1 while no node has said how many there are."""
        self.linger_s = options.linger_s
        options.check_name(name)
        self.stopped: HeadpondError | None = Closed("the producer is not open")
        """Why nothing can be sent, if nothing can."""
        self._links = list(links)
        self._options = options
        self._memory_max = options.memory_max
        self._tracing = None if tracing is None else tracing.sends(self.topic, links[0].addresses)
        if self._tracing is not None:
            batcher = self._tracing.batcher(batcher)
        self.batcher = batcher(options.batch_rows)
        """Where rows gather; the blocking twin adds to it from its own threads."""
        self._open_run: ProducerRun | None = None
        self._sharder: Sharder | None = None
        """None while the number of shards is not known."""
        self._table_rows = 0
        self._reconnects_before = links[0].reconnects
        self._outstanding = Outstanding()
        self._room = RoomQueue()
        self._scheduled = False
        self._rows_last = 0
        """The rows of the last segment."""
        self._overdue = False
        self._expiry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Reads the topic's settings (creating it if allowed); ``async with`` does this."""
        run = self._open_run = await open_run(self._links, self.topic, self.name, self._options, self)
        self.topic = run.topic
        self.batcher.begin(
            self.topic,
            self._new_sharder() or NoSharder(),
            bytes_max=min(self._options.batch_bytes, run.segment_bytes_max),
            row_bytes_max=run.message_bytes_max,
            typed=None if run.schema is None else TypedValues(run.schema),
            state=run.state,
        )
        self.stopped = None
        run.start()
        return self

    @property
    def _run(self) -> ProducerRun:
        assert self._open_run is not None, "it is open"
        return self._open_run

    def _new_sharder(self) -> Sharder | None:
        shards = self._run.shards
        self.shards = shards or 1
        self._sharder = None if shards is None else Sharder(shards.bit_length() - 1, secrets.randbelow(shards))
        return self._sharder

    def on_topic(self) -> None:
        """The number of shards is known, or is another than remembered."""
        sharder = self._new_sharder()
        assert sharder is not None
        self.batcher.learn(sharder, self._run.state)
        self.ship_sealed()

    @property
    def block(self) -> bytes:
        """The 16 bytes that name the present block of segments."""
        return b"" if self._open_run is None else self._open_run.keeper.current.block

    @property
    def shown(self) -> str:
        return f"the producer of {self.topic}"

    async def close(self) -> None:
        """Flushes, within ``close_timeout``, and ends the block; messages that no destination took stay in the
        refill.

        Raises failures that nobody awaited.
        """
        if self.stopped is not None:
            return
        run = self._run
        self.stopped = Closed("the producer was closed")
        self.batcher.end(self.stopped)
        try:
            async with asyncio.timeout(self._options.close_timeout):
                run.hurry()
                await self._drain()
                await run.settle()
        except TimeoutError:
            if not run.has_refill:
                left = self.stats.unconfirmed
                within = f"within {self._options.close_timeout:.3g} s"
                run.abandon(TimedOut(f"{left:,} messages were not confirmed {within}"))
        except BaseException:
            if not run.has_refill:
                run.abandon(Closed("the producer was closed before this was confirmed"))
            raise
        finally:
            await run.close()
            if self._expiry is not None:
                self._expiry.cancel()
        self._outstanding.raise_failures()

    # --- sending ------------------------------------------------------------------------------------

    def post(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Promise:
        """Takes a message and returns at once; ``await`` the promise for its receipt. None deletes a key.

        Raises ``BufferFull`` when ``memory_max`` is reached; ``post_when_room`` waits instead.
        With ``ttl`` the node delivers the message only within that many seconds after it stored it.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        batcher = self.batcher
        if batcher.bytes - self._outstanding.freed_bytes >= self._memory_max:
            self.check_room()
        if ttl is not None:
            headers = with_ttl(headers, ttl)
        promise = batcher.add(value, key, id, headers)
        if batcher.sealed:
            self.ship_sealed()
        if not self._scheduled:
            self._schedule()
        return promise

    def _schedule(self) -> None:
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if self.linger_s > 0:
            loop.call_later(self.linger_s, self.tick)
        else:
            loop.call_soon(self.tick)

    async def post_when_room(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Promise:
        """The same, once there is room for the message; see ``on_full`` and ``timeout``."""
        await self.wait_room()
        promise = self.post(value, key=key, id=id, headers=headers, ttl=ttl)
        if self.batcher.rows % ROWS_A_TURN == 0:
            await asyncio.sleep(0)  # a loop that only posts lets answers in
        return promise

    async def send(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Sends a message; returns its receipt once every destination stored or spilled it, or raises."""
        if not self.has_room:
            await self.wait_room()
        self._links[0].check_loop()
        if not self.is_lone:
            return await self.post(value, key=key, id=id, headers=headers, ttl=ttl)
        self._scheduled = True  # here and now
        try:
            promise = self.post(value, key=key, id=id, headers=headers, ttl=ttl)
        except BaseException:
            self._scheduled = False
            raise
        self.tick()
        connection = self.connection
        if connection is None or connection.awake is None:
            return await promise
        began_s = connection.awake.begin()
        try:
            return await promise
        finally:
            connection.awake.end(began_s)

    @property
    def is_lone(self) -> bool:
        """Whether a message sent now would share its segment with no other: they come one at a time."""
        alone = not (self._outstanding or self._scheduled or self.linger_s)
        return alone and self._rows_last == 1

    async def send_batch(self, table: pa.Table | pa.RecordBatch) -> BatchReceipt:
        """Sends a table with the columns value and, if wanted, key, id, headers, sent_at.

        The table of a typed topic has the topic's columns, or value as a struct of them. Returns when the fate
        of every row is known. Refused rows are counted in ``rejected``, with ``errors`` for the reasons; they
        raise nothing.
        """
        if self._tracing is None:
            return await self._send_table(table)
        return await self._tracing.table(partial(self._send_table, table))

    async def _send_table(
        self, table: pa.Table | pa.RecordBatch, headers: Mapping[str, str] | None = None
    ) -> BatchReceipt:
        if self.stopped is not None:
            raise self.stopped.again()
        sent: list[Part] = []
        run, sharder = self._run, self._sharder
        batch_bytes = min(self._options.batch_bytes, run.segment_bytes_max)
        pieces = cut_rows(
            table,
            sharder or Sharder(0),
            batch_bytes,
            schema=run.schema,
            state=run.state,
            headers=headers,
        )
        for piece in pieces:
            await self.wait_room()
            # Rows get their shards when they are sent, if the number of shards turned out since the cutting.
            shard = piece.shard if sharder is self._sharder and sharder is not None else None
            sent.append((self._ship_piece(piece.batch, shard), piece.first_row, piece.places))
        for parcel, _, _ in sent:
            await parcel.wait()
        return BatchReceipt.of(sent)

    async def flush(self) -> None:
        """Returns when every earlier message has its outcome. Raises failures that nobody awaited."""
        if self.stopped is not None:
            raise self.stopped.again()
        await self._drain()
        self._outstanding.raise_failures()

    @property
    def stats(self) -> ProducerStats:
        """The counts at present."""
        run, counts = self._open_run, self._outstanding.counts
        if run is None:
            return ProducerStats(0, 0, 0, 0, 0, 0, 0, 0)
        keeper = run.keeper
        return ProducerStats(
            posted=self.batcher.rows + self._table_rows,
            stored=counts[Outcome.STORED],
            duplicate=counts[Outcome.DUPLICATE],
            rejected=counts[Outcome.REJECTED],
            resent=keeper.resent,
            in_flight_bytes=sum(each.flight.bytes for manager in keeper.managers for each in manager.outlets),
            memory_bytes=self.memory_bytes,
            reconnects=self._links[0].reconnects - self._reconnects_before,
            spilled=counts[Outcome.SPILLED],
            refill_bytes=run.budget.used,
            refill_max=0 if self._options.refill is None else run.budget.bytes_max,
            rotations=keeper.rotations,
            holes=tuple(
                f"{name}: block {block.hex()}, shard {hole.shard}, segments {hole.start}–{hole.end - 1}"
                for name, block, hole in keeper.holes
            ),
            lost=tuple(keeper.lost),
            hindrances=tuple(
                f"{name}: {error.code}: {error.message}" for name, error in keeper.hindrances.items()
            ),
        )

    @property
    def connection(self) -> Connection | None:
        """The connection on which all answers come; None if there is none, or several."""
        destinations = self._run.destinations
        return destinations[0].link.connection if len(destinations) == 1 else None

    @property
    def unreachable(self) -> list[str]:
        """Destinations that take no messages now: unreachable, or refusing."""
        return [each.name for each in self._run.destinations if not each.ready]

    async def reached(self) -> None:
        """Returns when every destination can be sent to."""
        await self._run.reached()

    # --- cutting and shipping -----------------------------------------------------------------------

    def tick(self) -> None:
        """The rows that came together have waited enough."""
        self._scheduled = False
        run = self._open_run
        assert run is not None, "it is open"
        if run.keeper.is_eager(SEGMENTS_EAGER_MAX):
            self.batcher.seal_all()
        else:
            self._overdue = True
        self.ship_sealed()

    def on_answered(self) -> None:
        if self._overdue and self._run.keeper.is_eager(SEGMENTS_EAGER_MAX):
            self._overdue = False
            self.batcher.seal_all()
            self.ship_sealed()
        if self._room.waiting:
            if self._options.on_full == "raise" and self._run.is_full:
                self._room.wake_one()
            else:
                self._wake_one()

    def ship_sealed(self) -> None:
        """Encodes and sends the sealed parcels."""
        batcher, run = self.batcher, self._open_run
        assert run is not None, "it is open"
        sealed = batcher.sealed
        while sealed:
            parcel = sealed.popleft()
            self._rows_last = parcel.rows
            if parcel.size > LARGE_BYTES:
                keep_freed_memory()
            self._outstanding.add(parcel, len(self._links))
            try:
                run.keeper.send(parcel, parcel.encode(batcher.typed), time.monotonic())
            except HeadpondError as error:
                parcel.finish(Fate(Outcome.REJECTED, self._links[0].service, error=error))
        run.carry()
        if self._options.timeout is not None:
            self._watch_expiry()

    def _ship_piece(self, rows: pa.RecordBatch, shard: int | None) -> Parcel:
        """Sends a table's piece after the rows posted before it."""
        self.batcher.seal_all()
        self.ship_sealed()
        parcel = Parcel(self.topic, shard)
        parcel.rows = rows.num_rows
        parcel.size = rows.nbytes
        if parcel.size > LARGE_BYTES:
            keep_freed_memory()
        parcel.claimed = True
        self._table_rows += parcel.rows
        self._outstanding.freed_bytes -= parcel.size
        self._outstanding.add(parcel, len(self._links))
        try:
            self._run.keeper.send(parcel, rows, time.monotonic())
        except HeadpondError as error:
            parcel.finish(Fate(Outcome.REJECTED, self._links[0].service, error=error))
        self._run.carry()
        self._watch_expiry()
        return parcel

    async def _drain(self) -> None:
        self.batcher.seal_all()
        self.ship_sealed()
        await self._outstanding.wait()

    # --- room, giving up -----------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Bytes of messages that are neither confirmed nor spilled."""
        return self.batcher.bytes - self._outstanding.freed_bytes

    @property
    def is_pressed(self) -> bool:
        """Whether memory is full."""
        return self.memory_bytes >= self._memory_max

    @property
    def has_room(self) -> bool:
        """Whether a message can be taken now, before those who wait for that."""
        pressed = self.batcher.bytes - self._outstanding.freed_bytes >= self._memory_max
        return not (pressed or self._room.waiting or self.stopped is not None)

    def check_room(self) -> None:
        """Raises if a message cannot be taken now."""
        if self.stopped is not None:
            raise self.stopped.again()
        if self.is_pressed:
            self._run.loop.call_soon_threadsafe(self._run.relieve)
            raise self._buffer_full()

    def _buffer_full(self) -> BufferFull:
        return BufferFull(f"{self._memory_max:,} bytes of messages are unconfirmed{self._run.why_full}")

    async def wait_room(self) -> None:
        """Returns when there is room for a message; ``timeout`` bounds it."""
        if self.stopped is not None:
            raise self.stopped.again()
        self._links[0].check_loop()
        if not self.has_room:
            await self._wait_turn()

    async def _wait_turn(self) -> None:
        turn: int | None = None
        try:
            async with asyncio.timeout(self._options.timeout):
                # A sender that comes while others wait queues behind them, so that messages keep their order.
                while self.is_pressed or (turn is None and self._room.waiting):
                    self._wake_one()
                    if self.is_pressed:
                        self._run.relieve()
                    if self._options.on_full == "raise" and self._run.is_full and self.is_pressed:
                        self._room.wake_one()
                        raise self._buffer_full()
                    turn = await self._room.wait(turn)
                    if self.stopped is not None:
                        self._room.wake_one()  # the next sees the same
                        raise self.stopped.again()
        except TimeoutError:
            within = f"within {self._options.timeout:.3g} s{self._run.why_full}"
            raise TimedOut(f"no room for a message {within}") from None
        self._wake_one()  # the next checks whether there is room after this one

    def _wake_one(self) -> None:
        if self._room.waiting and not self.is_pressed:
            self._room.wake_one()

    def _watch_expiry(self) -> None:
        timeout_s = self._options.timeout
        if timeout_s is None or self._run.has_refill:
            return
        if self._expiry is None and self._outstanding:
            self._expiry = self._run.loop.call_later(timeout_s / 4, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.batcher.seal_all()
        self.ship_sealed()
        self._run.expire(self._options.timeout or 0.0)
        self._watch_expiry()
