"""Messages out of a request's body: JSON, a message a line of it, an Arrow stream, or one value as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.api.json_values import as_bytes, from_json
from penstock.client.typed_values import TypedValues
from penstock.model.errors import BadRequest, BadSegment, WrongMediaType
from penstock.wire.columns import rows_to_batch
from penstock.wire.expiry import with_ttl
from penstock.wire.ipc_sizes import unfolded_bytes

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
RAW: Final = "application/octet-stream"
MESSAGES_MAX: Final = 10_000
UNFOLDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What an Arrow stream may take once it is unfolded."""
HEADER_PREFIX: Final = "penstock-header-"


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """One message. In a typed topic ``value`` is an object of its columns."""

    value: Any = None
    key: Any = None
    id: str | None = None
    headers: dict[str, str] | None = None
    sent_at: datetime | None = None
    ttl: float | None = None


@dataclass(slots=True)
class Rows:
    """Messages as lists, one a column, as they came."""

    values: list[Any] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)
    sent_at: list[int | None] = field(default_factory=list)

    def add(self, message: MessageBody) -> None:
        key = as_bytes(message.key)
        if key is not None and not isinstance(key, bytes):
            raise BadRequest(f"a key is text or {{'base64': …}}, not {type(key).__name__}")
        if len(self.values) >= MESSAGES_MAX:
            raise BadRequest(f"more than {MESSAGES_MAX:,} messages in one request")
        headers = message.headers if message.ttl is None else with_ttl(message.headers, message.ttl)
        self.values.append(message.value)
        self.keys.append(key)
        self.ids.append(message.id)
        self.headers.append(headers or None)
        self.sent_at.append(None if message.sent_at is None else _micros(message.sent_at))

    def to_batch(self, schema: pa.Schema | None, sent_at_us: int) -> pa.RecordBatch:
        """As columns; a fault names the message."""
        times = [sent_at_us if each is None else each for each in self.sent_at]
        keys = self.keys if any(each is not None for each in self.keys) else None
        ids = self.ids if any(each is not None for each in self.ids) else None
        headers = self.headers if any(self.headers) else None
        if schema is None:
            values = [_plain(value, number) for number, value in enumerate(self.values)]
            return rows_to_batch(values, keys, ids, headers, times)
        typed = TypedValues(schema)
        kind = pa.struct(list(schema))
        rows = [typed.check(from_json(value, kind))[0] for value in self.values]
        return typed.to_batch(rows, keys, ids, headers, times)


def _plain(value: Any, number: int) -> bytes | None:
    found = as_bytes(value)
    if found is not None and not isinstance(found, bytes):
        raise BadRequest(
            f"message {number}: a value is text or {{'base64': …}}, not {type(found).__name__}",
            hint="Send JSON as the text of it, or make the topic a typed one.",
        )
    return found


def _micros(at: datetime) -> int:
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1e6)


def read_body(media: str, body: bytes, query: Mapping[str, str], headers: Mapping[str, str]) -> Rows | pa.Table:
    """What a request of this content type holds."""
    if media == ARROW:
        return _read_arrow(body)
    rows = Rows()
    try:
        if media == RAW:
            rows.add(_raw(body, query, headers))
        elif media == NDJSON:
            for line in body.split(b"\n"):
                if line.strip():
                    rows.add(msgspec.json.decode(line, type=MessageBody))
        elif media == JSON:
            _read_json(body, rows)
        else:
            raise WrongMediaType(
                f"a body of {media[:80]!r} is not taken here: {JSON}, {NDJSON}, {ARROW} or {RAW} are"
            )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadRequest(f"the body cannot be read: {error}") from None
    if not rows.values:
        raise BadRequest("the body holds no message")
    return rows


def _read_json(body: bytes, rows: Rows) -> None:
    top = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    if set(top) != {"messages"}:
        rows.add(msgspec.json.decode(body, type=MessageBody))
        return
    for message in msgspec.json.decode(top["messages"], type=list[MessageBody]):
        rows.add(message)


def _raw(body: bytes, query: Mapping[str, str], headers: Mapping[str, str]) -> MessageBody:
    own = {
        name.removeprefix(HEADER_PREFIX): text
        for name, text in headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    ttl = query.get("ttl")
    try:
        seconds = None if ttl is None else float(ttl)
    except ValueError:
        raise BadRequest(f"ttl={ttl!r} is no number") from None
    import base64

    value = {"base64": base64.b64encode(body).decode()}
    return MessageBody(value=value, key=query.get("key"), id=query.get("id"), headers=own or None, ttl=seconds)


def _read_arrow(body: bytes) -> pa.Table:
    """An Arrow IPC stream, looked at before it is unfolded."""
    try:
        unfolded = 0
        for message in pa.MessageReader.open_stream(body):
            if message.type == "record batch":
                unfolded += unfolded_bytes(message)
            elif message.type == "dictionary":
                raise BadSegment("dictionaries are not taken here; send plain columns")
            if unfolded > UNFOLDED_BYTES_MAX:
                raise BadSegment(f"the stream unfolds to more than {UNFOLDED_BYTES_MAX:,} bytes")
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise BadSegment(f"the body is not an Arrow stream: {error}") from None
    if not table.num_rows:
        raise BadRequest("the stream holds no rows")
    if table.num_rows > MESSAGES_MAX * 100:
        raise BadRequest(f"more than {MESSAGES_MAX * 100:,} rows in one request")
    return table
