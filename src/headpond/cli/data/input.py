"""What ``produce`` reads: lines, JSON messages or CSV records, as Arrow batches for one topic.

A record that cannot be read is rejected with the number of its line; the others are sent.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import DecimalException
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.csv as pc

from headpond.cli.options import InputFormat
from headpond.cli.stdio import LINE_BYTES_MAX
from headpond.client.produce.values import TypedValues
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadRequest, HeadpondError
from headpond.shapes.values import WITH_DIGITS, Base64, from_json, text_bytes, utc_micros
from headpond.wire.plain.columns import TYPES, rows_to_batch

Rows: TypeAlias = "pa.Table | pa.RecordBatch"
Reject = Callable[[str], None]
"""Counts a record that cannot be read; gets the reason."""
Numbered = tuple[int, bytes]
"""A line and its number, from 1."""

_BESIDE = {"key": pa.binary(), "id": pa.string(), "headers": TYPES[3]}
"""Columns beside the value; among the columns of a typed topic they begin with @."""
_PLAIN_COLUMNS = {"value": pa.binary(), "key": pa.binary(), "id": pa.string()}


class Given(NamedTuple):
    """What the command line gives to every message; a message that has its own keeps it."""

    key: bytes | None = None
    id: str | None = None
    headers: dict[str, str] | None = None


class InputReader(Protocol):
    def read(self, lines: Sequence[Numbered]) -> Rows | None:
        """The messages that these lines complete; None if there are none."""

    def finish(self) -> Rows | None:
        """The messages of what is left at the end of the input."""


# --- lines ------------------------------------------------------------------------------------------


class PlainLines:
    """Each line is a value, or a key and a value."""

    def __init__(self, given: Given, separator: bytes | None, *, empty_deletes: bool) -> None:
        self._given = given
        self._separator = separator
        self._empty_deletes = empty_deletes

    def read(self, lines: Sequence[Numbered]) -> Rows | None:
        if not lines:
            return None
        if self._separator is None:
            return _with_given({"value": pa.array([line for _, line in lines], pa.binary())}, self._given)
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for _, line in lines:
            key, found, value = line.partition(self._separator)
            keys.append(key if found else None)
            values.append((None if self._empty_deletes and not value else value) if found else line)
        columns = {"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())}
        return _with_given(columns, self._given)

    def finish(self) -> Rows | None:
        return None


def _with_given(columns: dict[str, pa.Array], given: Given, mark: str = "") -> pa.Table:
    """A table of these columns and of what the command line gives beside them."""
    table = pa.table(columns)
    pairs = None if given.headers is None else list(given.headers.items())
    for (name, kind), value in zip(_BESIDE.items(), (given.key, given.id, pairs), strict=True):
        if value is not None and mark + name not in columns:
            table = table.append_column(mark + name, pa.array([value] * table.num_rows, kind))
    return table


# --- JSON -------------------------------------------------------------------------------------------


class JsonMessage(msgspec.Struct):
    """A message as ``consume --json`` prints it, without the fields that the node sets."""

    value: msgspec.Raw
    key: str | Base64 | None = None
    id: str | None = None
    headers: dict[str, str] | None = None
    sent_at: datetime | None = None


class JsonLines:
    """Each line is a message, or, with ``rows``, a row of a typed topic."""

    def __init__(self, schema: pa.Schema | None, given: Given, reject: Reject, *, rows: bool = False) -> None:
        self._typed = None if schema is None else TypedValues(schema)
        self._kind = None if schema is None else pa.struct(list(schema))
        self._given = given
        self._reject = reject
        self._rows = rows

    def read(self, lines: Sequence[Numbered]) -> Rows | None:
        now_us = time.time_ns() // 1000
        messages: list[JsonMessage] = []
        values: list[Any] = []
        for number, line in lines:
            if not line.strip():
                continue
            try:
                message = self._message(line)
                values.append(self._value(message.value))
                messages.append(message)
            except (*UNDECODABLE, DecimalException) as error:
                self._reject(f"line {number:,}: {error}")
            except HeadpondError as error:
                self._reject(f"line {number:,}: {error.message}")
        if not messages:
            return None
        key, id_, headers = self._given
        keys = [key if each.key is None else text_bytes(each.key) for each in messages]
        ids = [id_ if each.id is None else each.id for each in messages]
        all_headers: list[Mapping[str, str] | None] = [each.headers or headers for each in messages]
        times = [now_us if each.sent_at is None else utc_micros(each.sent_at) for each in messages]
        some_keys = keys if any(each is not None for each in keys) else None
        some_ids = ids if any(each is not None for each in ids) else None
        make = rows_to_batch if self._typed is None else self._typed.to_batch
        return make(values, some_keys, some_ids, all_headers if any(all_headers) else None, times)

    def finish(self) -> Rows | None:
        return None

    def _message(self, line: bytes) -> JsonMessage:
        if self._rows:
            return JsonMessage(msgspec.Raw(line))
        return msgspec.json.decode(line, type=JsonMessage)

    def _value(self, raw: msgspec.Raw) -> Any:
        if self._typed is None:
            return text_bytes(msgspec.json.decode(raw, type=str | Base64 | None))
        value = WITH_DIGITS.decode(raw)
        return None if value is None else self._typed.check(from_json(value, self._kind))[0]


# --- CSV --------------------------------------------------------------------------------------------


class CsvRecords:
    """Records of RFC 4180. The first names columns: those of the topic, @key and @id; or value, key and id."""

    def __init__(self, schema: pa.Schema | None, given: Given, reject: Reject) -> None:
        self._schema = schema
        self._given = given
        self._reject = reject
        self._kinds = _PLAIN_COLUMNS
        self._needed = ["value"]
        if schema is not None:
            beside = {f"@{name}": _BESIDE[name] for name in ("key", "id")}
            self._kinds = {each.name: each.type for each in schema} | beside
            self._needed = [each.name for each in schema if not each.nullable]
        self._names: list[str] = []
        self._open: list[bytes] = []
        """The lines of a record with a line break in quotes, so far."""
        self._open_at = 0

    def read(self, lines: Sequence[Numbered]) -> Rows | None:
        records = self._complete(lines)
        if records and not self._names:
            self._name_columns(records.pop(0)[1])
        if not records:
            return None
        try:
            return self._table([record for _, record in records])
        except pa.ArrowNotImplementedError as error:
            raise BadRequest(f"CSV cannot hold a column: {error}", hint="Use --format json.") from None
        except (pa.ArrowException, BadRequest):  # find the record at fault
            return self._each(records)

    def finish(self) -> Rows | None:
        if self._open:
            self._reject(f"line {self._open_at:,}: a quoted field does not end")
        return None

    def _complete(self, lines: Sequence[Numbered]) -> list[Numbered]:
        """The records that these lines complete: a record has an even number of quotes."""
        found: list[Numbered] = []
        for number, line in lines:
            if not self._open:
                self._open_at = number
            odd = line.count(b'"') % 2 == 1
            if odd == bool(self._open):
                record = b"\n".join([*self._open, line]).removesuffix(b"\r")
                self._open = []
                if record:
                    found.append((self._open_at, record))
            else:
                self._open.append(line)
                if sum(map(len, self._open)) > LINE_BYTES_MAX:
                    raise BadRequest(
                        f"the record at line {self._open_at:,} is longer than {LINE_BYTES_MAX:,} bytes",
                        hint="Perhaps a quote is missing.",
                    )
        return found

    def _name_columns(self, header: bytes) -> None:
        try:
            (self._names,) = csv.reader([header.decode("utf-8-sig")])
        except UnicodeDecodeError as error:
            raise BadRequest(f"the first line of the CSV is not UTF-8: {error}") from None
        if unknown := [name for name in self._names if name not in self._kinds]:
            raise BadRequest(
                f"the CSV has a column {unknown[0]!r}, and the topic has none of that name",
                hint=f"The first line names columns: {', '.join(self._kinds)}.",
            )
        if missing := [name for name in self._needed if name not in self._names]:
            hint = "The first line names the columns."
            raise BadRequest(f"the CSV lacks the column {missing[0]!r}", hint=hint)

    def _table(self, records: list[bytes]) -> pa.Table:
        data = b"\n".join(records)
        table = pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1),
            pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            pc.ConvertOptions(column_types=self._kinds, null_values=[""], strings_can_be_null=False),
        )
        for name in self._needed:
            if table.column(name).null_count:
                raise BadRequest(f"column {name!r} takes no nulls")
        columns = dict(zip(self._names, table.columns, strict=True))
        return _with_given(columns, self._given, "" if self._schema is None else "@")

    def _each(self, records: list[Numbered]) -> Rows | None:
        """The records that can be read; rejects the others."""
        found: list[pa.Table] = []
        for number, record in records:
            try:
                found.append(self._table([record]))
            except (pa.ArrowException, BadRequest) as error:
                self._reject(f"line {number:,}: {error}")
        return pa.concat_tables(found) if found else None


def make_reader(
    format_: InputFormat,
    schema: pa.Schema | None,
    given: Given,
    reject: Reject,
    *,
    separator: bytes | None,
    empty_deletes: bool,
) -> InputReader:
    """The reader of a format for a topic; ``schema`` is that of a typed topic."""
    if format_ is InputFormat.json:
        return JsonLines(schema, given, reject)
    if format_ is InputFormat.csv:
        return CsvRecords(schema, given, reject)
    if schema is not None:
        return JsonLines(schema, given, reject, rows=True)
    return PlainLines(given, separator, empty_deletes=empty_deletes)
