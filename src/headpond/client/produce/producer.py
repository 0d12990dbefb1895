"""The producer: messages in, receipts out.

Rows gather in the batcher; a segment is cut at the end of the loop's iteration while the window has room, so
that concurrent sends share segments, and larger ones when it is full. The courier takes them to every
destination, and to the refill where a destination does not take them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Self

from headpond.client.link.link import Link
from headpond.client.options import ProducerOptions
from headpond.client.produce.batcher import Batcher, Value
from headpond.client.produce.promise import BatchReceipt, Outstanding, Parcel, Part, Promise
from headpond.client.produce.run import Run
from headpond.client.produce.tables import Piece, cut_again
from headpond.client.produce.values import TypedValues
from headpond.client.scope import AsyncScope
from headpond.model.errors import BufferFull, Closed, HeadpondError, TimedOut
from headpond.model.names import TopicName
from headpond.model.receipt import Fate, Outcome, Receipt
from headpond.producer.sharder import Sharder
from headpond.wire.plain.expiry import with_ttl

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Counts of messages; ``posted = stored + duplicate + spilled + rejected + unconfirmed``.

    Spilled ones are counted as such for good, also when they were delivered later.
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
    """What a destination lacks and nobody has any more, by segment."""
    lost: tuple[str, ...] = ()
    """What cannot be read from the refill any more, by segment."""
    hindrances: tuple[str, ...] = ()
    """Why a destination takes nothing for now: its name, and the code and message of its last refusal."""

    @property
    def unconfirmed(self) -> int:
        return self.posted - self.stored - self.duplicate - self.spilled - self.rejected


def stats_of(
    posted: int, counts: dict[Outcome, int], run: Run, memory_bytes: int, reconnects: int
) -> ProducerStats:
    """The counts of a run as they stand now."""
    return ProducerStats(
        posted=posted,
        stored=counts[Outcome.STORED],
        duplicate=counts[Outcome.DUPLICATE],
        rejected=counts[Outcome.REJECTED],
        resent=run.keeper.resent,
        in_flight_bytes=run.in_flight_bytes,
        memory_bytes=memory_bytes,
        reconnects=reconnects,
        spilled=counts[Outcome.SPILLED],
        refill_bytes=run.refill_bytes,
        refill_max=run.refill_max,
        rotations=run.keeper.rotations,
        holes=tuple(
            f"{name}: block {block.hex()}, shard {hole.shard}, segments {hole.start}–{hole.end - 1}"
            for name, block, hole in run.keeper.holes
        ),
        lost=tuple(run.keeper.lost),
        hindrances=tuple(
            f"{name}: {error.code}: {error.message}" for name, error in run.keeper.hindrances.items()
        ),
    )


class Queue:
    """Who is woken uses its turn, and wakes the next if there is more; one that was given up passes it on.

    One that was woken for nothing waits again under the turn that it had, before those who came later.
    """

    def __init__(self) -> None:
        self._turns = count()
        self._waiting: list[int] = []
        """Turns, in order."""
        self._waiters: dict[int, asyncio.Future[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, turn: int | None = None) -> int:
        """Returns when it is woken: its turn, to wait again with."""
        turn = next(self._turns) if turn is None else turn
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[turn] = waiter
        insort(self._waiting, turn)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake_one()
            raise
        return turn

    def wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiters.pop(self._waiting.pop(0))
            if not waiter.done():
                waiter.set_result(None)
                return


class Producer(AsyncScope):
    """Sends messages to one topic. Open it with ``async with client.producer(topic) as producer``."""

    def __init__(
        self,
        links: Sequence[Link],
        topic: str,
        name: str | None,
        options: ProducerOptions,
        make_batcher: Callable[..., Batcher] = Batcher,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.name = name or ""
        self.shards = 0
        self.linger_s = options.linger_s
        options.check_name(name)
        self._links = list(links)
        self._options = options
        self._memory_max = options.memory_max
        self._make_batcher = make_batcher
        self.batcher: Batcher
        """Where rows gather; the blocking twin adds to it from its own thread."""
        self._run: Run
        self.stopped: HeadpondError | None = Closed("the producer is not open")
        """Why nothing can be sent any more, or yet."""
        self._table_rows = 0
        self._freed_bytes = 0
        """Bytes that left memory, less those that came in tables: what comes off the batcher's count."""
        self._reconnects_before = links[0].reconnects
        self._outstanding = Outstanding()
        self._room = Queue()
        self._scheduled = False
        self._overdue = False
        self._expiry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Reads the topic's settings (creating it if allowed); ``async with`` does this."""
        self._loop = asyncio.get_running_loop()
        run = self._run = Run(self._links, self.topic, self.name, self._options, self)
        await run.open()
        self.topic = run.topic
        self.on_topic()
        self.stopped = None
        run.start()
        return self

    @property
    def is_pressed(self) -> bool:
        """Whether memory is full."""
        return self.memory_bytes >= self._memory_max

    def on_pause(self) -> None:
        """What was cut for a wrong number of shards is encoded anew: until then there is no room."""
        self._memory_max = 0
        self.batcher.pause(BufferFull("what was spilled is being encoded anew"))
        self.ship_sealed()

    def on_topic(self) -> None:
        """The number of shards is known, or has turned out to be another."""
        run = self._run
        self.shards = run.shards
        power = run.shards.bit_length() - 1
        self._sharder = Sharder(power, turn=secrets.randbelow(run.shards))
        self._memory_max = self._options.memory_max
        if hasattr(self, "batcher"):
            self.batcher.reshard(self._sharder, run.state)
            self._wake_one()
            return
        self.batcher = self._make_batcher(
            self.topic,
            self._sharder,
            rows_max=self._options.batch_rows,
            bytes_max=min(self._options.batch_bytes, run.segment_bytes_max),
            row_bytes_max=run.message_bytes_max,
            typed=None if run.schema is None else TypedValues(run.schema),
            state=run.state,
        )

    @property
    def block(self) -> bytes:
        """The 16 bytes that name the present run; a new block begins now and then."""
        return self._run.block if hasattr(self, "_run") else b""

    @property
    def shown(self) -> str:
        return f"the producer of {self.topic}"

    async def close(self) -> None:
        """Flushes, within ``close_timeout``, and ends the block; what no destination took stays in the refill.

        Failures nobody awaited are raised.
        """
        if self.stopped is not None:
            return
        self.stopped = Closed("the producer was closed")
        self.batcher.end(self.stopped)
        try:
            async with asyncio.timeout(self._options.close_timeout):
                self._run.courier.hurry()
                await self._drain()
                await self._run.settle()
        except TimeoutError:
            if not self._run.has_refill:
                left = self.stats.unconfirmed
                within = f"within {self._options.close_timeout:.3g} s"
                self._run.courier.abandon(TimedOut(f"{left:,} messages were not confirmed {within}"))
        except BaseException:
            if not self._run.has_refill:
                self._run.courier.abandon(Closed("the producer was closed before this was confirmed"))
            raise
        finally:
            await self._run.close()
            if self._expiry is not None:
                self._expiry.cancel()
        self._outstanding.raise_failures()

    # --- sending ------------------------------------------------------------------------------------

    def post(
        self,
        value: Value,
        *,
        key: bytes | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Promise:
        """Takes a message and returns at once; ``await`` the promise for its receipt. None deletes a key.

        Raises ``BufferFull`` when ``memory_max`` is reached: await promises or ``flush()`` now and then.
        ``ttl`` is for how many seconds after it was stored the message is worth delivering.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        batcher = self.batcher
        if batcher.bytes - self._freed_bytes >= self._memory_max:
            self.check_room()
        if ttl is not None:
            headers = with_ttl(headers, ttl)
        promise = batcher.add(value, key, id, headers)
        if batcher.sealed:
            self.ship_sealed()
        elif not self._scheduled:
            self._schedule()
        return promise

    async def send(
        self,
        value: Value,
        *,
        key: bytes | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Sends a message; returns its receipt once every destination stored or spilled it, or raises."""
        await self.wait_room()
        return await self.post(value, key=key, id=id, headers=headers, ttl=ttl)

    async def send_batch(self, table: pa.Table | pa.RecordBatch) -> BatchReceipt:
        """Sends a table with the columns value and, if wanted, key, id, headers, sent_at.

        Of a typed topic: with the topic's own columns, or with value as a struct of them. Returns when the
        fate of every row is known. Rows that were refused are counted in ``rejected``, with ``errors`` to say
        why; nothing is raised for them.
        """
        sent: list[Part] = []
        if self.stopped is not None:
            raise self.stopped.again()
        now_us = time.time_ns() // 1000
        batch_bytes = min(self._options.batch_bytes, self._run.segment_bytes_max)
        sharder = self._sharder
        for piece in self._run.cut(table, sharder, now_us, batch_bytes):
            await self.wait_room()
            if self.stopped is not None:
                raise self.stopped.again()
            # The topic may have turned out to have other shards since the table was cut.
            for part in [piece] if sharder is self._sharder else cut_again(piece, self._sharder):
                parcel = self._ship_piece(part)
                sent.append((parcel, part.first_row, part.places))
        for parcel, _, _ in sent:
            await parcel.wait()
        return BatchReceipt.of(sent)

    async def flush(self) -> None:
        """Returns when the fate of everything posted before is known. Failures nobody awaited are raised."""
        if self.stopped is not None:
            raise self.stopped.again()
        await self._drain()
        self._outstanding.raise_failures()

    @property
    def stats(self) -> ProducerStats:
        """Counts as they stand now."""
        if not hasattr(self, "_run") or not hasattr(self, "batcher"):
            return ProducerStats(0, 0, 0, 0, 0, 0, 0, 0)
        posted = self.batcher.rows + self._table_rows
        reconnects = self._links[0].reconnects - self._reconnects_before
        return stats_of(posted, self._outstanding.counts, self._run, self.memory_bytes, reconnects)

    @property
    def unreachable(self) -> list[str]:
        """Destinations that cannot be sent to now: away, or refusing what is sent."""
        return [each.name for each in self._run.destinations if not each.ready]

    async def reached(self) -> None:
        """Returns when every destination can be sent to."""
        await self._run.reached()

    @property
    def memory_bytes(self) -> int:
        """Bytes of messages that are neither confirmed nor spilled."""
        return self.batcher.bytes - self._freed_bytes

    # --- cutting and shipping -----------------------------------------------------------------------

    def _schedule(self) -> None:
        self._scheduled = True
        if self._options.linger_s > 0:
            self._loop.call_later(self._options.linger_s, self.tick)
        else:
            self._loop.call_soon(self.tick)

    def tick(self) -> None:
        """The rows that came together have waited enough."""
        self._scheduled = False
        if self._run.courier.eager:
            self.batcher.seal_all()
        else:
            self._overdue = True
        self.ship_sealed()

    def on_answered(self) -> None:
        if self._overdue and self._run.courier.eager:
            self._overdue = False
            self.batcher.seal_all()
            self.ship_sealed()
        if self._room and self._options.on_full == "raise" and self._run.is_full:
            self._room.wake_one()

    def on_failed(self, error: HeadpondError) -> None:
        self.stopped = error
        self.batcher.end(error)
        self._room.wake_one()

    def ship_sealed(self) -> None:
        """Encodes and sends what is sealed."""
        sealed = self.batcher.sealed
        while sealed:
            parcel = sealed.popleft()
            self._launch(parcel)
            try:
                self._run.courier.ship(parcel, parcel.to_batch(self.batcher.typed))
            except HeadpondError as error:
                parcel.drop_rows()
                parcel.finish(Fate(Outcome.REJECTED, self._links[0].service, error=error))
        self._run.courier.pump()
        self._watch_expiry()

    def _ship_piece(self, piece: Piece) -> Parcel:
        """A table's piece goes behind the rows posted before it."""
        self.batcher.seal_all()
        self.ship_sealed()
        parcel = Parcel(self.topic, piece.shard)
        parcel.rows = piece.batch.num_rows
        parcel.posted_at = time.monotonic()
        parcel.size = piece.batch.nbytes
        parcel.claimed = True
        self._table_rows += parcel.rows
        self._freed_bytes -= parcel.size
        self._launch(parcel)
        try:
            self._run.courier.ship(parcel, piece.batch)
        except HeadpondError as error:
            parcel.finish(Fate(Outcome.REJECTED, self._links[0].service, error=error))
        self._run.courier.pump()
        self._watch_expiry()
        return parcel

    def _launch(self, parcel: Parcel) -> None:
        parcel.owner = self
        parcel.fates = [None] * len(self._links)
        self._outstanding.add(parcel)

    def parcel_ended(self, parcel: Parcel) -> None:
        self._outstanding.ended(parcel)

    def parcel_freed(self, parcel: Parcel) -> None:
        self._freed_bytes += parcel.size
        self._wake_one()

    async def _drain(self) -> None:
        self.batcher.seal_all()
        self.ship_sealed()
        await self._outstanding.wait()

    # --- room, giving up -----------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raises if a message cannot be taken now."""
        if self.stopped is not None:
            raise self.stopped.again()
        if self.memory_bytes >= self._memory_max:
            self._loop.call_soon_threadsafe(self._run.courier.relieve)
            raise BufferFull(f"{self._memory_max:,} bytes of messages are unconfirmed{self._run.why_full}")

    def _check_open(self) -> None:
        if self.stopped is not None:
            self._room.wake_one()  # the next sees the same
            raise self.stopped.again()

    async def wait_room(self) -> None:
        """Returns when there is room for a message; ``timeout`` bounds it."""
        if self.stopped is not None:
            raise self.stopped.again()
        self._links[0].check_loop()
        if self.memory_bytes < self._memory_max and not self._room:
            return
        turn: int | None = None
        try:
            async with asyncio.timeout(self._options.timeout):
                # Whoever comes while others wait goes behind them, so that messages keep their order.
                while self.memory_bytes >= self._memory_max or (turn is None and self._room):
                    self._wake_one()
                    if self.is_pressed:
                        self._run.courier.relieve()
                    if (
                        self._options.on_full == "raise"
                        and self._run.is_full
                        and not self._run.paused
                        and self.is_pressed
                    ):
                        self._room.wake_one()
                        raise BufferFull(
                            f"{self._memory_max:,} bytes of messages are unconfirmed{self._run.why_full}"
                        )
                    turn = await self._room.wait(turn)
                    self._check_open()
        except TimeoutError:
            within = f"within {self._options.timeout:.3g} s{self._run.why_full}"
            raise TimedOut(f"no room for a message {within}") from None
        self._wake_one()  # the next looks for itself whether there is room behind this one

    def _wake_one(self) -> None:
        if self._room and self.memory_bytes < self._memory_max:
            self._room.wake_one()

    def _watch_expiry(self) -> None:
        timeout_s = self._options.timeout
        if timeout_s is None or self._run.has_refill:
            return
        if self._expiry is None and self._outstanding:
            self._expiry = self._loop.call_later(timeout_s / 4, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.batcher.seal_all()
        self.ship_sealed()
        self._run.courier.expire(self._options.timeout or 0.0)
        self._watch_expiry()
