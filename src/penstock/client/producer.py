"""The producer: messages in, receipts out.

Rows gather in the batcher; a segment is cut at the end of the loop's iteration while the window has room, so
that concurrent sends share segments, and larger ones when it is full. The shipper takes them to the node.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.client.batcher import SEGMENT_SPARE_BYTES, Batcher
from penstock.client.link import Link
from penstock.client.options import ProducerOptions
from penstock.client.promise import BatchReceipt, Fate, Parcel, Part, Promise
from penstock.client.queue import Queue
from penstock.client.scope import Scope
from penstock.client.shipper import Shipper
from penstock.client.tables import Piece, cut_table
from penstock.model.errors import BufferFull, Closed, NotSupported, PenstockError, TimedOut
from penstock.model.identity import BLOCK_BYTES
from penstock.model.receipt import Outcome, Receipt
from penstock.model.topic import TopicName
from penstock.transport.sharder import Sharder
from penstock.wire.control import OpenTopic, TopicInfo, check_fields, read_result
from penstock.wire.frame import FrameType, encode
from penstock.wire.segment import encode_plain
from penstock.wire.title import Title, encode_title

if TYPE_CHECKING:
    import pyarrow as pa

FAILED_KEPT_MAX = 1024


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Counts of messages; ``posted = stored + duplicate + rejected + unconfirmed``."""

    posted: int
    stored: int
    duplicate: int
    rejected: int
    resent: int
    """Segments that were sent more than once."""
    in_flight_bytes: int
    memory_bytes: int
    reconnects: int

    @property
    def unconfirmed(self) -> int:
        return self.posted - self.stored - self.duplicate - self.rejected


class Producer(Scope):
    """Sends messages to one topic. Open it with ``async with client.producer(topic) as producer``."""

    def __init__(
        self,
        link: Link,
        topic: str,
        name: str | None,
        options: ProducerOptions,
        make_batcher: Callable[..., Batcher] = Batcher,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.name = name or ""
        self.block = secrets.token_bytes(BLOCK_BYTES)
        """The 16 bytes that name this run."""
        self.shards = 0
        self.linger_s = options.linger_s
        self._link = link
        self._options = options
        self._memory_max = options.memory_max
        self._make_batcher = make_batcher
        self.batcher: Batcher
        """Where rows gather; the blocking twin adds to it from its own thread."""
        self._sharder: Sharder
        self._shipper: Shipper
        self.stopped: PenstockError | None = Closed("the producer is not open")
        """Why nothing can be sent any more, or yet."""
        self._counts = dict.fromkeys(Outcome, 0)
        self._table_rows = 0
        self._freed_bytes = 0
        """Bytes of confirmed messages, less those that came in tables: what comes off the batcher's count."""
        self._reconnects_before = link.reconnects
        self._outstanding: dict[Parcel, None] = {}
        self._failed: deque[Parcel] = deque(maxlen=FAILED_KEPT_MAX)
        self._room = Queue()
        self._scheduled = False
        self._overdue = False
        self._expiry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Reads the topic's settings (creating it if allowed); ``async with`` does this."""
        ask = OpenTopic(self.topic, self._options.create)
        info = read_result(await self._link.request(ask, retry=True), TopicInfo)
        if info.schema is not None:
            raise NotSupported(f"topic {self.topic} is typed; this client sends to plain topics")
        self._loop = asyncio.get_running_loop()
        self.topic = info.topic
        self.shards = info.shards
        power = info.shards.bit_length() - 1
        self._sharder = Sharder(power, turn=secrets.randbelow(info.shards))
        segment_bytes_max = self._segment_bytes_max()
        self.batcher = self._make_batcher(
            self.block,
            info.topic,
            self._sharder,
            rows_max=self._options.batch_rows,
            bytes_max=min(self._options.batch_bytes, segment_bytes_max),
            row_bytes_max=segment_bytes_max,
        )
        title_fields = Title(info.topic, info.uuid, self.name)
        check_fields(title_fields)
        title = encode_title(self.block, power, title_fields)
        self._shipper = Shipper(
            self._link,
            self.block,
            encode(FrameType.TITLE, title),
            window_bytes=self._options.window_bytes,
            timeout_s=self._options.timeout,
            on_finished=self._finish,
            on_answered=self._on_answered,
        )
        self.stopped = None
        return self

    @property
    def shown(self) -> str:
        return f"the producer of {self.topic}"

    async def close(self) -> None:
        """Flushes, within ``close_timeout``, and ends the block. Failures nobody awaited are raised."""
        if self.stopped is not None:
            return
        self.stopped = Closed("the producer was closed")
        self.batcher.end(self.stopped)
        try:
            async with asyncio.timeout(self._options.close_timeout):
                await self._drain()
        except TimeoutError:
            left = self.stats.unconfirmed
            self._shipper.give_up(
                TimedOut(f"{left:,} messages were not confirmed within {self._options.close_timeout:.3g} s")
            )
        except BaseException:
            self._shipper.give_up(Closed("the producer was closed before this was confirmed"))
            raise
        finally:
            self._shipper.end()
            if self._expiry is not None:
                self._expiry.cancel()
        self._raise_failures()

    # --- sending ------------------------------------------------------------------------------------

    def post(
        self,
        value: bytes | bytearray | memoryview,
        *,
        key: bytes | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Promise:
        """Takes a message and returns at once; ``await`` the promise for its receipt.

        Raises ``BufferFull`` when ``memory_max`` is reached: await promises or ``flush()`` now and then.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        batcher = self.batcher
        if batcher.bytes - self._freed_bytes >= self._memory_max:
            self.check_room()
        promise = batcher.add(value, key, id, headers)  # type: ignore[arg-type]  # it checks
        if batcher.sealed:
            self.ship_sealed()
        elif not self._scheduled:
            self._schedule()
        return promise

    async def send(
        self,
        value: bytes | bytearray | memoryview,
        *,
        key: bytes | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Sends a message and returns its receipt: it is stored, durably, or this raises what refused it."""
        await self.wait_room()
        return await self.post(value, key=key, id=id, headers=headers)

    async def send_batch(self, table: pa.Table | pa.RecordBatch) -> BatchReceipt:
        """Sends a table with the columns value and, if wanted, key, id, headers, sent_at.

        Returns when the fate of every row is known. Rows that were refused are counted in ``rejected``, with
        ``errors`` to say why; nothing is raised for them.
        """
        sent: list[Part] = []
        now_us = time.time_ns() // 1000
        for piece in cut_table(table, self._sharder_or_raise(), now_us, self._batch_bytes()):
            await self.wait_room()
            if self.stopped is not None:
                raise self.stopped.again()
            parcel = self._ship_piece(piece)
            sent.append((parcel, piece.first_row, piece.places))
        for parcel, _, _ in sent:
            await parcel.wait()
        return BatchReceipt.of(sent)

    async def flush(self) -> None:
        """Returns when the fate of everything posted before is known. Failures nobody awaited are raised."""
        if self.stopped is not None:
            raise self.stopped.again()
        await self._drain()
        self._raise_failures()

    @property
    def stats(self) -> ProducerStats:
        """Counts as they stand now."""
        if not hasattr(self, "_shipper"):
            return ProducerStats(0, 0, 0, 0, 0, 0, 0, 0)
        return ProducerStats(
            self.batcher.rows + self._table_rows,
            self._counts[Outcome.STORED],
            self._counts[Outcome.DUPLICATE],
            self._counts[Outcome.REJECTED],
            self._shipper.resent,
            self._shipper.in_flight_bytes,
            self.memory_bytes,
            self._link.reconnects - self._reconnects_before,
        )

    @property
    def memory_bytes(self) -> int:
        """Bytes of messages that are not confirmed."""
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
        if self._shipper.eager:
            self.batcher.seal_all()
            self.ship_sealed()
        else:
            self._overdue = True
            self.ship_sealed()

    def _on_answered(self) -> None:
        if self._overdue and self._shipper.eager:
            self._overdue = False
            self.batcher.seal_all()
            self.ship_sealed()

    def ship_sealed(self) -> None:
        """Encodes and sends what is sealed."""
        sealed = self.batcher.sealed
        while sealed:
            parcel = sealed.popleft()
            self._outstanding[parcel] = None
            try:
                body = encode_plain(parcel.to_batch())
            except PenstockError as error:
                parcel.drop_rows()
                self._finish(parcel, Fate(Outcome.REJECTED, self._link.destination, error=error))
                continue
            self._shipper.ship(parcel, body)
        self._shipper.pump()
        self._watch_expiry()

    def _ship_piece(self, piece: Piece) -> Parcel:
        """A table's piece goes behind the rows posted before it."""
        self.batcher.seal_all()
        parcel = Parcel(self.block, self.topic, piece.shard)
        parcel.rows = piece.batch.num_rows
        parcel.posted_at = time.monotonic()
        body = encode_plain(piece.batch)
        parcel.size = len(body)
        parcel.claimed = True
        self._table_rows += parcel.rows
        self._freed_bytes -= parcel.size
        self.ship_sealed()
        self._outstanding[parcel] = None
        self._shipper.ship(parcel, body)
        self._shipper.pump()
        self._watch_expiry()
        return parcel

    def _finish(self, parcel: Parcel, fate: Fate) -> None:
        self._outstanding.pop(parcel, None)
        self._counts[fate.outcome] += parcel.rows
        self._freed_bytes += parcel.size
        if fate.error is not None:
            self._failed.append(parcel)
        parcel.finish(fate)
        self._wake_one()

    async def _drain(self) -> None:
        self.batcher.seal_all()
        self.ship_sealed()
        for parcel in list(self._outstanding):
            await parcel.wait()

    def _raise_failures(self) -> None:
        """Raises the first failure that nobody awaited, saying how many there were."""
        failed = [parcel for parcel in self._failed if parcel.unclaimed]
        self._failed.clear()
        if not failed:
            return
        rows = sum(parcel.unclaimed for parcel in failed)
        fate = failed[0].fate
        assert fate is not None and fate.error is not None
        error = type(fate.error)(f"{rows:,} posted messages failed: {fate.error.message}", hint=fate.error.hint)
        error.receipt = failed[0].receipt(0)
        raise error

    # --- room, giving up -----------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raises if a message cannot be taken now."""
        if self.stopped is not None:
            raise self.stopped.again()
        if self.memory_bytes >= self._memory_max:
            raise BufferFull(f"{self._memory_max:,} bytes of messages are unconfirmed")

    async def wait_room(self) -> None:
        """Returns when there is room for a message; ``timeout`` bounds it."""
        if self.stopped is not None:
            raise self.stopped.again()
        self._link.check_loop()
        if self.memory_bytes < self._memory_max:
            return
        try:
            async with asyncio.timeout(self._options.timeout):
                while self.memory_bytes >= self._memory_max:
                    await self._room.wait()
        except TimeoutError:
            raise TimedOut(f"no room for a message within {self._options.timeout:.3g} s") from None
        self._wake_one()  # the next looks for itself whether there is room behind this one

    def _wake_one(self) -> None:
        if self._room and self.memory_bytes < self._memory_max:
            self._room.wake_one()

    def _watch_expiry(self) -> None:
        timeout_s = self._options.timeout
        if timeout_s is not None and self._expiry is None and self._outstanding:
            self._expiry = self._loop.call_later(timeout_s / 4, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.batcher.seal_all()
        self.ship_sealed()
        self._shipper.expire()
        self._watch_expiry()

    # --- settings -----------------------------------------------------------------------------------

    def _segment_bytes_max(self) -> int:
        assert self._link.welcome is not None, "the topic was opened over this link"
        return self._link.welcome.segment_bytes_max - SEGMENT_SPARE_BYTES

    def _batch_bytes(self) -> int:
        return min(self._options.batch_bytes, self._segment_bytes_max())

    def _sharder_or_raise(self) -> Sharder:
        if self.stopped is not None:
            raise self.stopped.again()
        return self._sharder
