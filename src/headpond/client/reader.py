"""A reader: any range of a topic by position, without a subscription. It settles nothing.

A position is (topic uuid, shard, incarnation, entry); it stays valid when the node restarts. A part lists
exactly which entries no longer exist. The reader checks checksums, as a consumer does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headpond.client.arguments import checked_methods
from headpond.client.consume.batch import Batch, RecordReader, in_runs
from headpond.client.link.link import Link
from headpond.client.options import LostSpan
from headpond.client.scope import AsyncScope
from headpond.model.bounds import Span
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame, BadRequest, Closed, HeadpondError, TopicMismatch, TopicNotFound
from headpond.model.names import TopicName
from headpond.model.ranges import RangeSet, runs
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.consuming import Deliver
from headpond.wire.control.reading import Ends, Fetched, FetchEntries, FindTime, ReadEnds, ShardEnds
from headpond.wire.frame import Frame
from headpond.wire.record import decode_record_header
from headpond.wire.typed.versions import SchemaVersions

FETCH_BYTES = 2 * 1024 * 1024
"""Bytes that one fetch asks for."""


@dataclass(frozen=True, slots=True)
class Part:
    """The answer to one fetch: batches in order, the entries missing among them, and where to continue."""

    batches: list[Batch]
    lost: list[LostSpan]
    entry_next: int
    entry_end: int
    """One past the last durable entry of the shard."""
    producers: dict[bytes, str] = field(default_factory=dict)
    """If requested: by block, the name of its producer, if the node knows one."""
    incarnation: int = 0
    """Of ``entry_next``: together they are the position to continue from."""

    @property
    def nbytes(self) -> int:
        """Bytes of its rows in memory."""
        return sum(batch.nbytes for batch in self.batches)


async def read_ends(
    link: Link,
    topics: Sequence[str],
    known: Sequence[Sequence[int]] | None = None,
    wait: float = 0.0,
    subscription: str = "",
) -> list[Ends]:
    """How far topics reach; see ``Admin.ends``."""
    names = [str(TopicName.parse(topic)) for topic in topics]
    ask = ReadEnds(names, None if known is None else [list(each) for each in known], float(wait), subscription)
    return await link.ask(ask, timeout_s=link.request_timeout_s + wait)


@checked_methods
class Reader(AsyncScope):
    """Reads a topic by position. Open it with ``async with client.reader(topic) as reader``."""

    def __init__(
        self,
        link: Link,
        topic: str,
        uuid: bytes | None = None,
        schema_version: int | None = None,
        subscription: str = "",
    ) -> None:
        """``uuid`` is the expected topic; rows come in ``schema_version``, or in the newest.

        A token bound to ``subscription`` may read in its name.
        """
        self.topic = str(TopicName.parse(topic))
        self._link = link
        self._expected = uuid
        self._version = schema_version
        self._subscription = subscription
        self._info: TopicInfo | None = None
        self._schemas: SchemaVersions | None = None

    async def open(self) -> Self:
        info = await self._link.at_group(self._open_at)
        if self._expected not in (None, info.uuid):
            shown = TopicName.parse(self.topic).short
            raise TopicMismatch(
                f"topic {shown} is not the one that was read before: it was deleted and created again",
                hint="Positions of the old topic mean nothing in the new one; begin with a new `start`.",
            )
        if info.schemas:
            self._schemas = SchemaVersions(info.schemas[: self._version])
        self._info = info
        return self

    async def _open_at(self, link: Link) -> TopicInfo:
        info = await link.ask(OpenTopic(self.topic))
        self._link = link
        return info

    async def close(self) -> None:
        """A reader holds nothing on the node; this only ends its use."""
        self._info = None

    @property
    def shown(self) -> str:
        return f"a reader of {self.topic}"

    @property
    def info(self) -> TopicInfo:
        """The topic as it was when the reader was opened."""
        if self._info is None:
            raise Closed("the reader is not open", hint="Use it inside `async with client.reader(...)`.")
        return self._info

    @property
    def uuid(self) -> bytes:
        return self.info.uuid

    @property
    def shards(self) -> int:
        return self.info.shards

    @property
    def schemas(self) -> SchemaVersions | None:
        """For a typed topic: its schema versions up to the one that rows come in."""
        return self._schemas

    async def ends(self, known: Sequence[int] | None = None, wait: float = 0.0) -> list[ShardEnds]:
        """Incarnation, first stored and next entry of each shard.

        With ``known`` (the next entries of an earlier answer) it waits up to ``wait`` seconds for more.
        """
        (ends,) = await read_ends(
            self._link, [self.topic], None if known is None else [known], wait, self._subscription
        )
        if ends.uuid is None:
            raise TopicNotFound(f"topic {TopicName.parse(self.topic).short} was deleted")
        if ends.uuid != self.uuid:
            raise TopicMismatch(f"topic {TopicName.parse(self.topic).short} was deleted and created again")
        return ends.shards

    async def entries_at(self, when: datetime) -> list[int]:
        """The first entry of each shard that was stored at ``when`` or later."""
        when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        ask = FindTime(self.uuid, round(when.timestamp() * 1e6), self._subscription)
        return await self._link.ask(ask)

    async def fetch(
        self,
        shard: int,
        entry: int,
        end: int | None = None,
        *,
        incarnation: int | None = None,
        bytes_max: int = FETCH_BYTES,
        filter: str = "",
        columns: Collection[str] | None = None,
        named: bool = False,
        rows_bytes_max: int | None = None,
    ) -> Part:
        """The messages from ``entry`` up to ``end``, as many as fit into ``bytes_max``, at least one record.

        ``bytes_max`` counts stored bytes, which may be compressed; with ``rows_bytes_max`` the part ends at the
        record whose rows reach that size in memory.

        ``incarnation`` is that of ``end``, or of ``entry`` without one, as ``ends`` or the part before returned
        it with the entry. If other messages have these entries now, since somebody restored an old copy of the
        node's data, ``IncarnationChanged`` is raised.

        With a ``filter`` (docs/spark_source.md) the node leaves out rows for which it is not true; with
        ``columns``, all but these of value, key, id and headers. With ``named`` the part has producers' names.
        """
        wanted = None if columns is None else list(columns)
        place = (self.uuid, shard, entry, end, incarnation, bytes_max)
        ask = FetchEntries(*place, filter, wanted, named, self._subscription, packed=True)
        answer = await self._link.request(ask, retry=True)
        if not isinstance(answer, tuple):
            raise BadFrame("the node answered a fetch with another message")
        return self._part(ask, *answer, rows_bytes_max=rows_bytes_max)

    async def read(
        self,
        shard: int,
        start: int,
        end: int,
        *,
        incarnation: int | None = None,
        bytes_max: int = FETCH_BYTES,
        filter: str = "",
        columns: Collection[str] | None = None,
        named: bool = False,
    ) -> AsyncIterator[Part]:
        """All messages of a range, part by part; it fetches the next part while the caller has one.

        A range that ends after the last durable entry is a ``BadRequest``, raised when that entry is reached;
        ``incarnation`` is that of ``end``.
        """
        if start >= end:
            return

        def ask(entry: int) -> asyncio.Future[Part]:
            part = self.fetch(
                shard,
                entry,
                end,
                incarnation=incarnation,
                bytes_max=bytes_max,
                filter=filter,
                columns=columns,
                named=named,
            )
            return asyncio.ensure_future(part)

        coming = ask(start)
        try:
            at = start
            while True:
                part = await coming
                if part.entry_next <= at:
                    raise _beyond(self.topic, shard, end, part.entry_end)
                at = part.entry_next
                if at < end:
                    coming = ask(at)
                yield part
                if at >= end:
                    return
        finally:
            coming.cancel()

    def _part(
        self, ask: FetchEntries, fetched: Fetched, frames: list[Frame], *, rows_bytes_max: int | None
    ) -> Part:
        """Decodes an answer, without the rows outside of the requested range."""
        node = self._link.welcome.node if self._link.welcome is not None else ""
        reader = RecordReader(self.topic, node, self._schemas)
        end = 2**63 if ask.end is None else ask.end
        if fetched.masks is not None and len(fetched.masks) != len(frames):
            raise BadFrame(f"{len(frames)} records with {len(fetched.masks)} masks")
        gone = RangeSet((start, stop) for start, stop, _ in fetched.lost)
        compacted = EntrySet.decode(fetched.compacted) if fetched.compacted else None
        batches: list[Batch] = []
        entry_next, size = fetched.entry_next, 0
        # A batch has no gap inside, and the sizes of rows are those of single records.
        plain = self._schemas is None and not fetched.lost and rows_bytes_max is None
        number = 0
        for run in in_runs(frames, plain=plain):
            meant = [(ask.entry, end)]
            if fetched.masks is not None:
                meant = _masked(run, fetched.masks[number : number + len(run)], ask.entry, end)
            meant = [span for each in meant for span in gone.missing(*each)]
            if compacted is not None:
                meant = [span for each in meant for span in compacted.missing(*each)]
            number += len(run)
            for batch in _read(reader, run, Deliver(0, ask.shard, 1, 1, meant)):
                batches.append(batch)
                if rows_bytes_max is not None:
                    size += batch.nbytes
            if rows_bytes_max is not None and size >= rows_bytes_max and number < len(frames):
                entry_next = min(entry_next, decode_record_header(run[-1].body).end_entry)
                break
        lost = [LostSpan(ask.shard, *span) for span in fetched.lost if span[0] < entry_next]
        return Part(batches, lost, entry_next, fetched.entry_end, fetched.producers, fetched.incarnation)


def _read(reader: RecordReader, run: Sequence[Frame], deliver: Deliver) -> list[Batch]:
    """The rows of a run that are meant; if it cannot be read as one, of each record that has some of them."""
    try:
        found = [reader.read(run, deliver)]
    except HeadpondError:
        if len(run) == 1:
            raise
        found = [reader.read([frame], deliver) for frame in run]
    return [batch for batch in found if batch is not None]


def _masked(run: Sequence[Frame], masks: Sequence[bytes], start: int, end: int) -> list[Span]:
    """The entries in a range whose rows the masks of their records set."""
    entries: list[int] = []
    for frame, mask in zip(run, masks, strict=True):
        header = decode_record_header(frame.body)
        if len(mask) != (header.count + 7) // 8:
            raise BadFrame(f"a mask of {len(mask)} bytes for {header.count} rows")
        rows = pa.BooleanArray.from_buffers(pa.bool_(), header.count, [None, pa.py_buffer(mask)])
        entries += [header.first_entry + row for row in pc.indices_nonzero(rows).to_pylist()]
    return runs(entry for entry in entries if start <= entry < end)


def _beyond(topic: str, shard: int, end: int, there: int) -> BadRequest:
    return BadRequest(f"entries up to {end} of shard {shard} of {topic} were asked for; it ends at {there}")
