"""The writer: programs stage rows, and one commit publishes them as a batch, all or none, exactly once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa

from headpond.client.arguments import checked
from headpond.client.link.link import Link
from headpond.client.produce.tables import cut_rows
from headpond.client.scope import AsyncScope
from headpond.client.tracing import Tracing
from headpond.model.errors import (
    BadRequest,
    Closed,
    HeadpondError,
    NotAcrossNodes,
    SegmentTooLarge,
    TimedOut,
    TopicNotFound,
)
from headpond.model.names import TopicName
from headpond.model.receipt import Stage
from headpond.producer.encoder import Sharder
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.producing import Ack
from headpond.wire.control.staging import (
    STAGE_BYTES,
    AbortStages,
    BatchInfo,
    CommitBatch,
    DeleteWriter,
    FinishStage,
    OpenStage,
    StageOpened,
)
from headpond.wire.frame import SEGMENT_BYTES_MAX, FrameType, frame_parts
from headpond.wire.plain.segment import plain_parts
from headpond.wire.typed.record import encode_typed_record
from headpond.wire.typed.versions import SchemaVersions

WINDOW_BYTES = 16 * 1024 * 1024
"""Unconfirmed bytes of a stage after which the sender waits for a confirmation."""
ASK_BYTES = WINDOW_BYTES // 4
"""Bytes after which the sender asks for a confirmation, unless it waits for one already."""
CHUNK_BYTES = 1024 * 1024
TIMEOUT_S = 120.0

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[pa.Table | pa.RecordBatch]"
"""A table, a batch, or several of them in order."""


class StageSender:
    """Sends one stage, over lost connections and temporary refusals.

    It numbers chunks and keeps them until the node confirms that they are on its disk. It asks for that now and
    then, so that it keeps little, and sends on while the answer is on its way. After a lost connection it opens
    the stage again, and continues with the chunk that the node expects.
    """

    def __init__(
        self,
        link: Link,
        stage: bytes,
        writer: str,
        topic: str,
        *,
        create: bool,
        timeout_s: float,
        flowing: asyncio.Event,
    ) -> None:
        """``flowing`` is set when the link may have become writable."""
        self.stage = stage
        self._link = link
        self._ask = OpenStage(stage, writer, topic, create)
        self._timeout_s = timeout_s
        self._flowing = flowing
        self._chunks = 0
        self._unconfirmed: deque[list[bytes]] = deque()
        """The frames of the last chunks, in pieces."""
        self._unconfirmed_bytes = 0
        self._reconnects = link.reconnects
        self._confirmation: asyncio.Task[Any] | None = None
        self._confirmation_chunks = 0
        self._unasked_bytes = 0

    async def open(self) -> StageOpened:
        self._reconnects = self._link.reconnects
        return await self._link.ask(self._ask, timeout_s=self._timeout_s)

    async def send(self, chunk: EncodedChunk) -> None:
        """Sends the next chunk. Returns when it is written to the connection, or kept for the next one."""
        lead = self.stage + chunk.header
        parts = frame_parts(FrameType.STAGE, lead, chunk.body, shard=chunk.shard, segment=self._chunks)
        self._chunks += 1
        self._unconfirmed.append(parts)
        self._unconfirmed_bytes += len(chunk.body)
        self._unasked_bytes += len(chunk.body)
        await self._write(parts)
        if self._confirmation is not None:
            if self._confirmation.done() or self._unconfirmed_bytes >= WINDOW_BYTES:
                await self._hear()
        elif self._unasked_bytes >= ASK_BYTES:
            if self._link.reconnects == self._reconnects:
                self._ask_for(self._chunks)
            else:
                await self._confirm(last=False)

    async def finish(self) -> None:
        if self._confirmation is not None:
            await self._hear()
        await self._confirm(last=True)

    def _ask_for(self, chunks: int) -> None:
        """Asks for a confirmation, and does not wait for it."""
        ask = FinishStage(self.stage, chunks, last=False)
        self._confirmation = asyncio.ensure_future(self._link.request(ask, timeout_s=self._timeout_s))
        self._confirmation.add_done_callback(_heed)
        self._confirmation_chunks, self._unasked_bytes = chunks, 0

    async def _hear(self) -> None:
        """Waits for the confirmation; after a temporary refusal asks again, on a new connection if need be."""
        assert self._confirmation is not None
        asked, self._confirmation = self._confirmation, None
        try:
            await asked
        except HeadpondError as error:
            if not error.retryable and self._link.reconnects == self._reconnects:
                raise
            await self._confirm(last=False, again=True)
        else:
            for _ in range(self._confirmation_chunks - (self._chunks - len(self._unconfirmed))):
                self._unconfirmed_bytes -= len(self._unconfirmed.popleft()[1])

    async def _write(self, parts: list[bytes]) -> None:
        """Writes when there is room; `_confirm` sends what a lost connection did not take."""
        while self._link.up and not self._link.writable:
            self._flowing.clear()
            await self._flowing.wait()
        if self._link.reconnects == self._reconnects:
            self._link.send_frames(parts)

    async def _confirm(self, *, last: bool, again: bool = False) -> None:
        """Returns when the node has all chunks on its disk; retries temporary refusals until the timeout.

        ``again``: the stage must be opened first, since its connection was or may be lost.
        """
        deadline = time.monotonic() + self._timeout_s
        ask = FinishStage(self.stage, self._chunks, last)
        attempt = 0
        again = again or self._link.reconnects != self._reconnects
        while True:
            try:
                if again:
                    await self._send_again()
                left_s = max(deadline - time.monotonic(), 0.001)
                await self._link.request(ask, timeout_s=left_s)
            except HeadpondError as error:
                # The node does not know the stage on a new connection before it is opened there.
                moved = self._link.reconnects != self._reconnects
                if not (error.retryable or moved) or time.monotonic() >= deadline:
                    raise
                again = True
            else:
                self._unconfirmed.clear()
                self._unconfirmed_bytes = self._unasked_bytes = 0
                return
            await asyncio.sleep(self._link.backoff.delay_s(attempt))
            attempt += 1

    async def _send_again(self) -> None:
        """Opens the stage again and sends the chunks from the one that the node expects."""
        opened = await self.open()
        first = self._chunks - len(self._unconfirmed)
        for number, parts in enumerate(list(self._unconfirmed), first):
            if number >= opened.chunks:
                await self._write(parts)


def _heed(asked: asyncio.Task[Any]) -> None:
    """Takes the error of an answer that nobody waits for: a program may give up a stage."""
    if not asked.cancelled():
        asked.exception()


class EncodedChunk(NamedTuple):
    """A segment in two pieces, so that it is not copied."""

    shard: int
    rows: int
    header: bytes
    body: pa.Buffer

    @property
    def bytes(self) -> int:
        return len(self.header) + len(self.body)


class OpenedStage:
    """A stage to fill: ``add`` rows, then ``finish``. ``Writer.begin`` makes one."""

    def __init__(self, sender: StageSender, writer: str, topic: TopicInfo) -> None:
        self._sender = sender
        self._writer = writer
        self._topic = topic
        self._schemas = SchemaVersions(topic.schemas) if topic.schemas else None
        # Stages start with different shards, so that many small ones do not all go to the first.
        self._sharder = Sharder(topic.shards.bit_length() - 1, turn=int.from_bytes(sender.stage[:2], "little"))
        self._rows = 0
        self._bytes = 0

    @property
    def id(self) -> bytes:
        return self._sender.stage

    @property
    def columns(self) -> pa.Schema | None:
        """The topic's columns; None for a plain topic."""
        return None if self._schemas is None else self._schemas.newest

    async def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Sends rows; waits while much is unconfirmed.

        They have the columns that ``Producer.send_batch`` takes, and may have ``shard`` (``@shard`` beside the
        columns of a typed topic): the shard of rows without a key.
        """
        for chunk in self.encode(rows):
            await self.send(chunk)

    def encode(self, rows: pa.Table | pa.RecordBatch) -> Iterator[EncodedChunk]:
        """The rows as chunks to ``send`` in this order; any one thread at a time may make them."""
        _check_table(rows)
        topic, schema = self._topic, self.columns
        pieces = cut_rows(
            rows, self._sharder, CHUNK_BYTES, schema=schema, state=topic.state, may_name_shards=True
        )
        for piece in pieces:
            yield EncodedChunk(piece.shard, piece.batch.num_rows, *self._encode(piece.batch))

    async def send(self, *chunks: EncodedChunk) -> None:
        for chunk in chunks:
            self._rows += chunk.rows
            self._bytes += chunk.bytes
            await self._sender.send(chunk)

    async def finish(self) -> Stage:
        """Returns when all of it is on the node's disk."""
        await self._sender.finish()
        return Stage(self.id, self._writer, self._topic.topic, self._rows, self._bytes)

    def _encode(self, batch: pa.RecordBatch) -> tuple[bytes, pa.Buffer]:
        if self._schemas is None:
            return plain_parts(batch)
        segment = encode_typed_record(batch, self._schemas.version)
        if len(segment) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(f"a row of {len(segment):,} bytes; a segment holds {SEGMENT_BYTES_MAX:,}")
        return b"", pa.py_buffer(segment)


class Writer(AsyncScope):
    """Stages rows and commits batches of them. ``client.writer(name)`` makes one."""

    internal = AsyncScope.internal | {"on_ack", "on_down", "on_error", "on_up", "on_writable"}

    def __init__(
        self,
        link: Link,
        name: str,
        *,
        timeout: float = TIMEOUT_S,
        create: bool = True,
        tracing: Tracing | None = None,
    ) -> None:
        """``create``: staging rows creates their topic, if the node allows that."""
        if not isinstance(name, str) or not name:
            raise BadRequest(f"a writer needs a name, not {name!r}")
        if not timeout > 0:
            raise BadRequest(f"a timeout of {timeout!r} s; it must be above 0")
        self.name = name
        self._link = link
        self._timeout_s = timeout
        self._create = create
        self._tracing = tracing
        self._topics: dict[str, TopicInfo] = {}
        self._open = False
        self._flowing = asyncio.Event()
        self._node: str | None = None

    async def open(self) -> Self:
        self._link.check_loop()
        if not self._open:
            self._open = True
            self._link.add_producer(self)
        return self

    async def close(self) -> None:
        """Stages that no batch has stay at the node until they are aborted, or expire."""
        if self._open:
            self._open = False
            self._link.remove_producer(self)

    @property
    def shown(self) -> str:
        return f"the writer {self.name}"

    # --- staging ------------------------------------------------------------------------------------

    @checked
    async def stage(self, topic: str, rows: Rows) -> Stage:
        """Puts rows on the node's disk; readers see them after a commit that names the stage."""
        opened = await self.begin(topic)
        for part in each_table(rows):
            await opened.add(part)
        return await opened.finish()

    @checked
    async def begin(self, topic: str) -> OpenedStage:
        """A stage to fill in several steps."""
        self._check_open()
        info = await self._topic(topic)
        self._check_node()
        sender = StageSender(
            self._link,
            secrets.token_bytes(STAGE_BYTES),
            self.name,
            info.topic,
            create=self._create,
            timeout_s=self._timeout_s,
            flowing=self._flowing,
        )
        try:
            opened = await sender.open()
        except HeadpondError:
            self._topics.pop(topic, None)
            raise
        if opened.topic_uuid != info.uuid:  # the topic was deleted and created again since it was looked at
            self._topics.pop(topic, None)
            return await self.begin(topic)
        return OpenedStage(sender, self.name, info)

    async def _topic(self, topic: str) -> TopicInfo:
        info = self._topics.get(topic)
        if info is None:
            ask = OpenTopic(str(TopicName.parse(topic)), self._create)
            info = self._topics[topic] = await self._link.at_group(partial(self._open_topic, ask))
        return info

    async def _open_topic(self, ask: OpenTopic, link: Link) -> TopicInfo:
        info = await link.ask(ask, timeout_s=self._timeout_s)
        if link is not self._link and self._node is not None:
            raise NotAcrossNodes(
                f"topic {info.topic} is on another group of the cluster than the writer's first topic",
                hint="A batch is one group's. Use a writer for each group.",
            )
        self._move(link)
        return info

    def _move(self, link: Link) -> None:
        """Stages and commits at the group of another link."""
        if link is not self._link:
            self._link.remove_producer(self)
            link.add_producer(self)
            self._link = link

    # --- batches ------------------------------------------------------------------------------------

    @checked
    async def commit(
        self,
        batch: int,
        stages: Sequence[Stage | bytes],
        *,
        holder: str = "",
        on_repeat: str = "compare",
    ) -> BatchInfo:
        """Publishes the stages as this batch, all or none; returns when they are in their topics, durably.

        A batch that was committed before, with the same rows, is a ``duplicate``: the node publishes nothing
        and drops its stages. After a lost connection that may be this call's own commit. With other rows it is
        ``BatchDiffers``, and one too old to compare ``BatchOutOfTurn``; ``on_repeat="drop"`` makes duplicates
        of both. If several programs use the writer's name, ``holder`` tells them apart, and one works at a
        time (``WriterHeld``).
        """
        self._check_open()
        await self._find(stages)
        ask = CommitBatch(self.name, batch, [_id(stage) for stage in stages], holder, on_repeat)
        if self._tracing is None:
            return await self._commit(ask)
        topics = sorted({stage.topic for stage in stages if isinstance(stage, Stage)})
        return await self._tracing.commit(self.name, batch, topics, partial(self._commit, ask))

    async def _commit(self, ask: CommitBatch) -> BatchInfo:
        deadline = time.monotonic() + self._timeout_s
        attempt = 0
        while True:
            left_s = max(deadline - time.monotonic(), 0.001)
            self._check_node()
            try:
                return await self._link.ask(ask, timeout_s=left_s)
            except HeadpondError as error:
                if not error.retryable or isinstance(error, TimedOut) or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(self._link.backoff.delay_s(attempt))
            attempt += 1

    @checked
    async def abort(self, stages: Sequence[Stage | bytes]) -> int:
        """Drops stages that no batch has; returns how many. Committed ones stay."""
        self._check_open()
        await self._find(stages)
        ask = AbortStages(self.name, [_id(stage) for stage in stages])
        return await self._link.ask(ask, timeout_s=self._timeout_s)

    async def delete(self) -> int:
        """Forgets the writer, as ``admin.delete_writer`` does, on the group of its topics."""
        self._check_open()
        return int((await self._link.ask(DeleteWriter(self.name), timeout_s=self._timeout_s))["stages"])

    async def _find(self, stages: Sequence[Stage | bytes]) -> None:
        """Goes to the group that has the stages, if another client made them."""
        topic = next((stage.topic for stage in stages if isinstance(stage, Stage)), None)
        if topic is not None and self._node is None:
            with suppress(TopicNotFound):
                await self._link.at_group(partial(self._open_topic, OpenTopic(topic)))

    def _check_node(self) -> None:
        """Refuses another node than the first: it does not know which batches were committed."""
        node = self._link.welcome.node if self._link.welcome is not None else None
        self._node = self._node or node
        if node != self._node:
            raise NotAcrossNodes(
                f"writer {self.name} began at node {self._node}, and node {node} answers now",
                hint="Wait for the first node; or check what the topic holds, and open a new writer.",
            )

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("the writer is not open", hint="Use it inside `async with client.writer(...)`.")

    # --- the link's events --------------------------------------------------------------------------

    def on_up(self) -> None:
        self._flowing.set()

    def on_down(self) -> None:
        self._flowing.set()

    def on_writable(self) -> None:
        self._flowing.set()

    def on_error(self, error: HeadpondError) -> None:
        """The node refuses stages and batches by answers to requests."""

    def on_ack(self, ack: Ack) -> None:
        """The node does not answer single chunks."""


def each_table(rows: Rows) -> Iterable[pa.Table | pa.RecordBatch]:
    """The tables among the rows, in order."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return [rows]
    if not isinstance(rows, Iterable):
        _check_table(rows)
    return rows


def _check_table(rows: object) -> None:
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise BadRequest(f"a stage takes Arrow tables or record batches, not {type(rows).__name__}")


def _id(stage: Stage | bytes) -> bytes:
    return stage.id if isinstance(stage, Stage) else stage
