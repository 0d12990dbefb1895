"""A batch: the rows of one stored segment that a node delivered, as Arrow columns and as messages."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

import pyarrow as pa

from headpond.client.arguments import checked
from headpond.model.bounds import Span
from headpond.model.errors import BadFrame, BadRequest, BadSegment
from headpond.model.message import Message, Origin
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Deliver
from headpond.wire.frame import Frame
from headpond.wire.plain.columns import PLAIN_SCHEMA
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from headpond.wire.typed.record import fill_messages, stored_rows
from headpond.wire.typed.schema import fit_messages
from headpond.wire.typed.values import python_values
from headpond.wire.typed.versions import SchemaVersions

_BOOLEANS = ("bool", "bool_")
"""Python's and NumPy's."""


class NodeEntries(NamedTuple):
    """Entries of a shard at a node."""

    place: str
    """The id of the node."""
    shard: int
    spans: list[Span]


class Batch:
    """Rows of one stored segment, in order. It makes columns and messages when a program asks for them."""

    __slots__ = ("_rows", "_schema", "attempt", "origin", "spans")

    def __init__(
        self,
        rows: pa.RecordBatch,
        origin: Origin,
        spans: list[Span],
        attempt: int,
        schema: pa.Schema = PLAIN_SCHEMA,
    ) -> None:
        self._rows = rows
        self._schema = schema
        self.origin = origin
        """Where the segment came from, and its position."""
        self.spans = spans
        """The entries of the rows, as ranges ``start <= entry < end``."""
        self.attempt = attempt

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} rows, shard {self.shard}, entries {self.spans}>"

    @property
    def shard(self) -> int:
        return self.origin.shard

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

    def messages(self) -> list[Message]:
        """The rows as messages."""
        rows = self._rows
        count = rows.num_rows
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        nothing: list[Any] = [None] * count
        values = python_values(columns["value"]) if "value" in columns else nothing
        keys, ids, headers = (
            columns[name].to_pylist() if name in columns else nothing for name in ("key", "id", "headers")
        )
        attempt, origin = self.attempt, self.origin
        return [
            Message(value, key, own_id, entry, attempt, origin, sent_at_us, items)
            for value, key, own_id, entry, sent_at_us, items in zip(
                values, keys, ids, self._entry_list(), _micros(columns["sent_at"]), headers, strict=True
            )
        ]

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

    def _entry_list(self) -> list[int]:
        if len(self.spans) == 1:
            return list(range(*self.spans[0]))
        return [entry for start, end in self.spans for entry in range(start, end)]


def read_record(
    frame: Frame,
    deliver: Deliver,
    topic: str,
    node: str,
    schemas: SchemaVersions | None = None,
    life: int = 0,
) -> Batch | None:
    """The rows of a delivered record that are meant; None if there are none. Faults are ``HeadpondError``s.

    ``schemas`` are those of a typed topic; its rows come in the newest one.
    """
    header = decode_record_header(frame.body)
    spans = _overlap(deliver.spans, header.first_entry, header.end_entry)
    if not spans:
        return None
    rows = stored_rows(frame.body[RECORD_HEADER_BYTES:], schemas, header.stored_at_us)
    if rows.num_rows != header.count:
        raise BadSegment(f"a record of {header.count} rows holds {rows.num_rows}")
    stored_at_us, count = header.stored_at_us, header.count
    origin = Origin(
        topic, deliver.shard, header.first_entry, header.block, frame.segment, stored_at_us, node, count, life
    )
    rows = _rows_of(rows, [(start - header.first_entry, end - header.first_entry) for start, end in spans])
    if schemas is None:
        return Batch(rows, origin, spans, deliver.attempt)
    rows = fit_messages(rows, schemas.newest)
    return Batch(rows, origin, spans, deliver.attempt, schemas.messages(schemas.version))


def meant_spans(frame: Frame, deliver: Deliver) -> list[Span]:
    """The entries of a delivery in one record; all of the delivery's if its header cannot be read."""
    try:
        header = decode_record_header(frame.body)
        return _overlap(deliver.spans, header.first_entry, header.end_entry)
    except BadFrame:
        return deliver.spans


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
        for start, end in _overlap(spans, first, last) if many is None else many.overlap(first, last):
            entries.append((start, end))
            rows.append((row + start - first, row + end - first))
        row += last - first
    if not entries:
        return None
    attempt = batch.attempt if attempt is None else attempt
    return Batch(_rows_of(batch._rows, rows), batch.origin, entries, attempt, batch._schema)


def last_of(batch: Batch, count: int) -> Batch | None:
    """Its last rows; None for no rows."""
    rows = len(batch)
    return only(batch, batch.select(range(rows - count, rows))) if count else None


def _overlap(spans: list[Span], first: int, end: int) -> list[Span]:
    """The parts of the spans between two entries."""
    return [(max(a, first), min(b, end)) for a, b in spans if a < end and b > first]


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


def runs(entries: list[int]) -> list[Span]:
    """Ascending entries as ranges."""
    runs: list[Span] = []
    for entry in entries:
        if runs and runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], entry + 1)
        else:
            runs.append((entry, entry + 1))
    return runs
