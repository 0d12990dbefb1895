"""A batch: rows of stored segments that a node delivered together, as Arrow columns and as messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise, repeat
from operator import index
from typing import Any, NamedTuple

import pyarrow as pa

from headpond.client.arguments import checked
from headpond.client.consume.packed_origins import PackedOrigins, counts_of, stored_times_of
from headpond.model.bounds import Span
from headpond.model.errors import BadFrame, BadRequest, BadSegment
from headpond.model.message import Message, Origin
from headpond.model.ranges import RangeSet, overlap, runs
from headpond.wire.control.consuming import Deliver
from headpond.wire.frame import Frame
from headpond.wire.plain.columns import PLAIN_SCHEMA, rows_to_batch
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, FORM_BARE, FewRows, read_few
from headpond.wire.plain.many import TOGETHER_MIN, decode_records, parents
from headpond.wire.plain.packed import facts_of, is_packed
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from headpond.wire.typed.record import fill_messages, stored_rows
from headpond.wire.typed.schema import fit_messages
from headpond.wire.typed.values import python_values
from headpond.wire.typed.versions import SchemaVersions

_BARE = bytes((FORM_BARE,))
_BOOLEANS = ("bool", "bool_")
"""Python's and NumPy's."""


class NodeEntries(NamedTuple):
    """Entries of a shard at a node."""

    place: str
    """The id of the node."""
    shard: int
    spans: list[Span]


class Batch:
    """Rows of one or more stored segments of a shard, in order.

    It makes columns and messages when a program asks for them, and Arrow's arrays of a few rows too.
    """

    __slots__ = ("_arrow", "_few", "_schema", "attempt", "origins", "spans")

    def __init__(
        self,
        rows: pa.RecordBatch | FewRows,
        origins: Sequence[Origin],
        spans: list[Span],
        attempt: int,
        schema: pa.Schema = PLAIN_SCHEMA,
    ) -> None:
        self._few = rows if isinstance(rows, FewRows) else None
        self._arrow: pa.RecordBatch | None = None if isinstance(rows, FewRows) else rows
        self._schema = schema
        self.origins = origins
        """Where the segments came from, and their positions, in order; ``counts`` has the rows of each."""
        self.spans = spans
        """The entries of the rows, as ranges ``start <= entry < end``."""
        self.attempt = attempt

    def __len__(self) -> int:
        return int(self._rows.num_rows) if self._few is None else len(self._few.sent_at_us)

    @property
    def _rows(self) -> pa.RecordBatch:
        if self._arrow is None:
            assert self._few is not None
            values, keys, ids, sent_at_us = self._few
            self._arrow = rows_to_batch(values, keys, ids, None, sent_at_us)
        return self._arrow

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} rows, shard {self.shard}, entries {self.spans}>"

    @property
    def topic(self) -> str:
        return self.origins[0].topic

    @property
    def shard(self) -> int:
        return self.origins[0].shard

    @property
    def node(self) -> str:
        """The id of the node that it was read from."""
        return self.origins[0].node

    @property
    def life(self) -> int:
        return self.origins[0].life

    @property
    def counts(self) -> list[int]:
        """How many of the rows are of each segment."""
        whole = counts_of(self.origins)
        if sum(whole) == len(self):
            return whole
        entries = self._entry_list()
        starts = [bisect_left(entries, origin.first_entry) for origin in self.origins]
        return [end - start for start, end in pairwise((*starts, len(entries)))]

    @property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return int(self._rows.nbytes)

    @property
    def typed(self) -> bool:
        """Whether the topic has a schema: then values are rows of it."""
        return self._schema is not PLAIN_SCHEMA

    @property
    def arrow(self) -> pa.RecordBatch:
        """The columns value, key, id, headers, sent_at; a column that no row has is null.

        ``value`` is binary; in a typed topic it is a struct of the columns of the newest schema.
        """
        return fill_messages(self._rows, self._schema)

    @checked
    def column(self, name: str) -> pa.Array | None:
        """One of those columns; None where no row has it."""
        place = self._rows.schema.get_field_index(name)
        return self._rows.column(place) if place >= 0 else None

    @property
    def entries(self) -> pa.Int64Array:
        """The entry of each row."""
        return pa.array(self._entry_list(), pa.int64())

    @property
    def stored_at(self) -> pa.TimestampArray:
        """The time when the node stored each row."""
        times, counts = pa.array(stored_times_of(self.origins), pa.int64()), self.counts
        if counts.count(1) < len(counts):
            times = times.take(parents(pa.array(counts, pa.int64())))
        return times.view(PLAIN_SCHEMA.field("sent_at").type)

    def messages(self) -> list[Message]:
        """The rows as messages."""
        nothing: list[Any] = [None] * len(self)
        values = keys = ids = headers = nothing
        times: Sequence[int]
        if self._few is not None:
            values, keys, ids = (nothing if column is None else column for column in self._few[:3])
            times = self._few.sent_at_us
        else:
            columns = dict(zip(self._rows.schema.names, self._rows.columns, strict=True))
            if "value" in columns:
                values = python_values(columns["value"])
            keys, ids, headers = (
                columns[name].to_pylist() if name in columns else nothing for name in ("key", "id", "headers")
            )
            times = _micros(columns["sent_at"])
        attempt, counts = self.attempt, self.counts
        origins: Iterable[Origin] = self.origins
        if counts.count(1) < len(counts):
            origins = chain.from_iterable(map(repeat, origins, counts))
        return [
            Message(value, key, own_id, entry, attempt, origin, sent_at_us, items)
            for value, key, own_id, entry, origin, sent_at_us, items in zip(
                values,
                keys,
                ids,
                self._entry_list(),
                origins,
                times,
                headers,
                strict=True,
            )
        ]

    def by_segment(self) -> Iterator[tuple[Origin, list[Span]]]:
        """The entries of the rows of each segment."""
        at = 0
        entries = self._entry_list()
        for origin, count in zip(self.origins, self.counts, strict=True):
            if count:
                yield origin, self.spans if count == len(entries) else runs(entries[at : at + count])
            at += count

    def select(self, rows: Any) -> list[Span]:
        """The entries of chosen rows as ranges: ``rows`` is a boolean mask of all rows, or row numbers.

        In a mask, null chooses nothing. Row numbers count from 0.
        """
        try:
            chosen = rows.to_pylist() if isinstance(rows, pa.Array | pa.ChunkedArray) else list(rows)
        except TypeError:
            raise BadRequest(f"rows are of type {type(rows).__name__}, not a mask or row numbers") from None
        entries = self._entry_list()
        first = next((each for each in chosen if each is not None), False)  # a mask of nulls is a mask
        if chosen and type(first).__name__ in _BOOLEANS:
            if len(chosen) != len(entries):
                raise BadRequest(f"a mask of {len(chosen)} for a batch of {len(entries)} rows")
            return runs([entry for entry, wanted in zip(entries, chosen, strict=True) if wanted])
        try:
            numbers = sorted(set(map(index, chosen)))
        except TypeError:
            raise BadRequest(f"rows {chosen!r:.80} are neither a mask nor row numbers") from None
        if numbers and not 0 <= numbers[0] <= numbers[-1] < len(entries):
            raise BadRequest(f"rows {chosen!r:.80} are not all in a batch of {len(entries)} rows")
        return runs([entries[number] for number in numbers])

    def _entry_list(self) -> Sequence[int]:
        if len(self.spans) == 1:
            return range(*self.spans[0])
        return [entry for start, end in self.spans for entry in range(start, end)]


class RecordReader(NamedTuple):
    """Reads the records of a topic at a node. Faults are ``HeadpondError``s.

    ``schemas`` are those of a typed topic; its rows come in the newest one.
    """

    topic: str
    node: str
    schemas: SchemaVersions | None = None
    life: int = 0

    def read(self, frames: Sequence[Frame], deliver: Deliver) -> Batch | None:
        """The rows of a record, or of a run, that are meant; None if there are none."""
        return self._read_one(frames[0], deliver) if len(frames) == 1 else self._read_run(frames, deliver)

    def _read_one(self, frame: Frame, deliver: Deliver) -> Batch | None:
        header = decode_record_header(frame.body)
        spans = overlap(deliver.spans, header.first_entry, header.end_entry)
        if not spans:
            return None
        fields = (header.first_entry, header.block, frame.segment, header.stored_at_us)
        origin = Origin(self.topic, deliver.shard, *fields, self.node, header.count, self.life)
        whole = [(header.first_entry, header.end_entry)]
        if spans == whole and self.schemas is None and len(frame.body) <= BARE_BYTES_MAX:
            few = read_few(frame.body[RECORD_HEADER_BYTES:], header.stored_at_us)
            if few is not None and len(few.sent_at_us) == header.count:
                return Batch(few, [origin], spans, deliver.attempt)
        segment = memoryview(frame.body)[RECORD_HEADER_BYTES:]  # a copy would cost more than decoding it
        rows = stored_rows(segment, self.schemas, header.stored_at_us)
        if rows.num_rows != header.count:
            raise BadSegment(f"a record of {header.count} rows holds {rows.num_rows}")
        if self.schemas is None and is_packed(segment):
            batch = Batch(rows, PackedOrigins(facts_of(segment), origin), whole, deliver.attempt)
            return batch if spans == whole else only(batch, spans)
        rows = _rows_of(rows, [(start - header.first_entry, end - header.first_entry) for start, end in spans])
        if self.schemas is None:
            return Batch(rows, [origin], spans, deliver.attempt)
        rows = fit_messages(rows, self.schemas.newest)
        return Batch(rows, [origin], spans, deliver.attempt, self.schemas.messages(self.schemas.version))

    def _read_run(self, frames: Sequence[Frame], deliver: Deliver) -> Batch | None:
        found = decode_records([frame.body for frame in frames])
        topic, node, life, shard = self.topic, self.node, self.life, deliver.shard
        origins = [
            Origin(topic, shard, first, block, frame.segment, stored_at_us, node, count, life)
            for first, count, block, stored_at_us, frame in zip(*found[1:], frames, strict=True)
        ]
        first_entry, end_entry = found.first_entries[0], found.end_entry
        if end_entry - first_entry == found.rows.num_rows:
            spans = [(first_entry, end_entry)]
        else:
            spans = list(RangeSet((each.first_entry, each.first_entry + each.count) for each in origins))
        return only(Batch(found.rows, origins, spans, deliver.attempt), deliver.spans)


def in_runs(frames: Sequence[Frame], *, plain: bool) -> list[Sequence[Frame]]:
    """Records in order, those to be read together as one run: many small ones of a plain topic."""
    if not plain or len(frames) < TOGETHER_MIN:
        return [[frame] for frame in frames]
    found: list[Sequence[Frame]] = []
    for small, group in groupby(frames, _is_small):
        run = list(group)
        found += [run] if small and len(run) >= TOGETHER_MIN else [[frame] for frame in run]
    return found


def _is_small(frame: Frame) -> bool:
    """Whether it is as small in memory as it is stored: a few compressed bytes may unfold to many."""
    return len(frame.body) <= BARE_BYTES_MAX and frame.body.startswith(_BARE, RECORD_HEADER_BYTES)


def meant_spans(run: Sequence[Frame], deliver: Deliver) -> list[Span]:
    """The entries of a delivery in records; all of the delivery's if a header cannot be read."""
    try:
        headers = [decode_record_header(frame.body) for frame in run]
    except BadFrame:
        return deliver.spans
    held = RangeSet((header.first_entry, header.end_entry) for header in headers)
    return [span for each in held for span in overlap(deliver.spans, *each)]


def without(batch: Batch, drop: list[Span]) -> Batch | None:
    """The batch less the entries in ``drop``; None if no row is left."""
    left = RangeSet(batch.spans)
    for start, end in drop:
        left.discard(start, end)
    return only(batch, list(left))


def only(batch: Batch, spans: list[Span], attempt: int | None = None) -> Batch | None:
    """The batch's rows of the entries in ``spans``; None if it has none of them."""
    entries: list[Span] = []
    rows: list[Span] = []
    row = 0
    many = RangeSet(spans) if len(spans) > 1 else None
    for first, last in batch.spans:
        for start, end in overlap(spans, first, last) if many is None else many.overlap(first, last):
            entries.append((start, end))
            rows.append((row + start - first, row + end - first))
        row += last - first
    if not entries:
        return None
    attempt = batch.attempt if attempt is None else attempt
    low = bisect_right(batch.origins, entries[0][0], key=_first_entry) - 1
    high = bisect_left(batch.origins, entries[-1][1], key=_first_entry)
    return Batch(_rows_of(batch._rows, rows), batch.origins[low:high], entries, attempt, batch._schema)


def _first_entry(origin: Origin) -> int:
    return origin.first_entry


def last_of(batch: Batch, count: int) -> Batch | None:
    """Its last rows; None for no rows."""
    rows = len(batch)
    return only(batch, batch.select(range(rows - count, rows))) if count else None


def _rows_of(rows: pa.RecordBatch, spans: list[Span]) -> pa.RecordBatch:
    """The rows with these numbers: all, a slice, or slices put together."""
    if len(spans) > 1:
        return rows.take(pa.array([row for start, end in spans for row in range(start, end)], pa.int64()))
    start, end = spans[0]
    return rows if end - start == rows.num_rows else rows.slice(start, end - start)


def _micros(column: pa.Array) -> list[int]:
    """A timestamp column as whole numbers, without a Python object of Arrow's for each."""
    start = column.offset
    return memoryview(column.buffers()[1]).cast("q")[start : start + len(column)].tolist()
