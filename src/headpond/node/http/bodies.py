"""Messages in the body of a request: JSON, one JSON message per line, an Arrow stream, or one raw value."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from decimal import DecimalException
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from headpond.client.produce.values import TypedValues
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadRequest, BadSegment, WrongMediaType
from headpond.shapes.values import WITH_DIGITS, Base64, from_json, text_bytes, utc_micros
from headpond.wire.expiry import TTL_S_MAX, with_ttl
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.ipc import unfolded_bytes
from headpond.wire.typed.schema import texts_of

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
RAW: Final = "application/octet-stream"
MESSAGES_MAX: Final = 10_000
UNFOLDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The size of an Arrow stream without compression."""
PARTS_MAX: Final = 200_000
"""Commas and brackets in one JSON value, and headers in one request: each may become an object, and all other
requests wait while they are made."""
HEADERS_BYTES_MAX: Final = 256 * 1024
"""One message's headers, as JSON."""
HEADER_PREFIX: Final = "headpond-header-"
TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TRACESTATE_LENGTH_MAX: Final = 512
NULL: Final = msgspec.Raw(b"null")
ABSENT: Final = msgspec.Raw(b"")


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """One message. In a typed topic ``value`` is an object of its columns.

    A value is decoded once its topic is known: in a plain topic it can only be bytes, so a large body of other
    JSON is refused before it becomes a million objects. Headers are decoded once they are known to be short.
    """

    value: msgspec.Raw = NULL
    key: str | Base64 | None = None
    id: str | None = None
    headers: msgspec.Raw = NULL
    sent_at: datetime | None = None
    ttl: Annotated[float, msgspec.Meta(ge=0, le=TTL_S_MAX)] | None = None


class JsonBody(MessageBody):
    """One message, or a list of them."""

    messages: msgspec.Raw = ABSENT


@dataclass(slots=True)
class Rows:
    """Messages as lists, one per column."""

    values: list[msgspec.Raw | bytes] = field(default_factory=list)
    """JSON, or the bytes themselves."""
    keys: list[bytes | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)
    sent_at: list[int | None] = field(default_factory=list)
    size: int = 0
    """Bytes of the request's body."""
    headers_count: int = 0
    """Of all messages."""
    timed: bool = False
    """Whether a message says when it was sent."""

    def __len__(self) -> int:
        return len(self.values)

    def add(
        self, message: MessageBody, value: bytes | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Adds a message; ``value`` and ``headers`` replace its own."""
        if len(self.values) >= MESSAGES_MAX:
            raise BadRequest(f"more than {MESSAGES_MAX:,} messages in one request")
        if not headers and message.headers is not NULL:
            headers = _headers(message.headers)
        if message.ttl is not None:
            headers = with_ttl(headers, message.ttl)
        self.headers_count += len(headers or ())
        if self.headers_count > PARTS_MAX:
            raise BadRequest(f"more than {PARTS_MAX:,} headers in one request")
        self.values.append(message.value if value is None else value)
        self.keys.append(text_bytes(message.key))
        self.ids.append(message.id)
        self.headers.append(headers or None)
        self.sent_at.append(None if message.sent_at is None else utc_micros(message.sent_at))
        self.timed = self.timed or message.sent_at is not None

    def continue_trace(self, trace: Mapping[str, str]) -> None:
        """Adds the trace of the request to messages that name none."""
        self.headers = [
            own if own is not None and "traceparent" in own else {**(own or {}), **trace}
            for own in self.headers
        ]

    def to_batch(self, schema: pa.Schema | None, sent_at_us: int) -> pa.RecordBatch:
        """The messages as columns; an error names the message."""
        count = len(self.values)
        times = [sent_at_us] * count
        if self.timed:
            times = [sent_at_us if each is None else each for each in self.sent_at]
        keys = self.keys if self.keys.count(None) < count else None
        ids = self.ids if self.ids.count(None) < count else None
        headers = self.headers if any(self.headers) else None
        if schema is None:
            values = [_plain(value, number) for number, value in enumerate(self.values)]
            return rows_to_batch(values, keys, ids, headers, times)
        typed = TypedValues(schema)
        kind = pa.struct(list(schema))
        given = [_object(each, number) for number, each in enumerate(self.values)]
        rows = [None if each is None else typed.check(from_json(each, kind))[0] for each in given]
        return typed.to_batch(rows, keys, ids, headers, times)


def _plain(value: msgspec.Raw | bytes, number: int) -> bytes | None:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return text_bytes(msgspec.json.decode(value, type=str | Base64 | None))
    except UNDECODABLE as error:
        raise BadRequest(
            f"message {number}: a value is text or {{'base64': …}}: {error}",
            hint="Send JSON as a text, or create a typed topic.",
        ) from None


def _object(value: msgspec.Raw | bytes, number: int) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    text = bytes(value)
    if _parts(text) > PARTS_MAX:
        raise BadRequest(
            f"message {number} has more than {PARTS_MAX:,} parts",
            hint=f"Send it as an {ARROW} body.",
        )
    try:
        return WITH_DIGITS.decode(text)
    except (*UNDECODABLE, DecimalException) as error:
        raise BadRequest(f"message {number} is invalid: {error}") from None


def _parts(text: bytes) -> int:
    """The most objects that a JSON text can become."""
    return sum(map(text.count, (b",", b"[", b"{")))


def _headers(given: msgspec.Raw) -> dict[str, str] | None:
    if len(given) > HEADERS_BYTES_MAX:
        raise BadRequest(f"headers of more than {HEADERS_BYTES_MAX:,} bytes")
    return msgspec.json.decode(given, type=dict[str, str] | None)


class RawMessage(NamedTuple):
    """What the query says of a message whose body is its value."""

    key: str | None = None
    id: str | None = None
    ttl: float | None = None


def trace_of(traceparent: str | None, tracestate: str | None) -> dict[str, str]:
    """The headers by which the trace of a request continues in its messages; none if they are not valid."""
    if traceparent is None or not TRACEPARENT.fullmatch(traceparent):
        return {}
    if not tracestate or len(tracestate) > TRACESTATE_LENGTH_MAX:
        return {"traceparent": traceparent}
    return {"traceparent": traceparent, "tracestate": tracestate}


def read_body(
    media: str,
    body: bytes,
    raw: RawMessage,
    headers: Mapping[str, str],
    trace: Mapping[str, str] | None = None,
) -> Rows | pa.Table:
    """The messages of a body of this content type, in the trace of their request."""
    if media != RAW and raw != RawMessage():
        raise BadRequest(
            f"key, id and ttl in the query are for a body of {RAW}, and this is {media[:80]!r}",
            hint="Put them into the body, with each message.",
        )
    if media == ARROW:
        return _read_arrow(body)
    rows = Rows(size=len(body))
    try:
        if media == RAW:
            rows.add(MessageBody(key=raw.key, id=raw.id, ttl=raw.ttl), body, _own_headers(headers))
        elif media == NDJSON:
            if body.count(b"\n") > 2 * MESSAGES_MAX:  # there may be blank lines
                raise BadRequest(f"more than {2 * MESSAGES_MAX:,} lines in one request")
            for line in body.split(b"\n"):
                if line.strip():
                    rows.add(msgspec.json.decode(line, type=MessageBody))
        elif media == JSON:
            _read_json(body, rows)
        else:
            raise WrongMediaType(
                f"a body of {media[:80]!r} is not accepted here; send {JSON}, {NDJSON}, {ARROW} or {RAW}"
            )
    except (*UNDECODABLE, OverflowError) as error:
        raise BadRequest(f"the body is invalid: {error}") from None
    if not rows.values:
        raise BadRequest("the body contains no message")
    if trace:
        rows.continue_trace(trace)
    return rows


def _read_json(body: bytes, rows: Rows) -> None:
    given = msgspec.json.decode(body, type=JsonBody)
    if given.messages == ABSENT:
        rows.add(given)
        return
    if given != JsonBody(messages=given.messages):
        raise BadRequest("the body has other fields beside `messages`; many messages have only that one")
    many = bytes(given.messages)
    if many.count(b"{") > PARTS_MAX:  # each may be a message
        raise BadRequest(
            f"a list of more than {PARTS_MAX:,} objects, those in values and texts included",
            hint=f"Send fewer messages at a time, or one message per line ({NDJSON}).",
        )
    for message in msgspec.json.decode(many, type=list[MessageBody]):
        rows.add(message)


def _own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message among those of its request."""
    return {
        name.removeprefix(HEADER_PREFIX): text
        for name, text in headers.items()
        if name.startswith(HEADER_PREFIX)
    }


def _read_arrow(body: bytes) -> pa.Table:
    """An Arrow IPC stream; its claims are checked before it is decompressed."""
    try:
        unfolded = 0
        for message in pa.MessageReader.open_stream(body):
            if message.type == "record batch":
                unfolded += unfolded_bytes(message)
            elif message.type == "dictionary":
                raise BadSegment("dictionaries are not accepted here; send plain columns")
            if unfolded > UNFOLDED_BYTES_MAX:
                raise BadSegment(f"the stream has more than {UNFOLDED_BYTES_MAX:,} bytes without compression")
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
        list(texts_of(table.schema))
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise BadSegment(f"the body is not an Arrow stream: {error}") from None
    if not table.num_rows:
        raise BadRequest("the stream contains no rows")
    if table.num_rows > MESSAGES_MAX:  # each has a receipt in the answer
        raise BadRequest(f"more than {MESSAGES_MAX:,} rows in one request")
    return table


# --- large bodies -----------------------------------------------------------------------------------
# One thread beside the node's loop decodes them, so that the node's clients do not wait, and so that only one
# body at a time becomes objects.

Result = TypeVar("Result")

SMALL_BYTES = 64 * 1024
"""A body up to this size is decoded at once: a thread would cost more."""
_thread = ThreadPoolExecutor(1, "http-bodies")


async def aside(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """The result of ``work`` on a body of ``size`` bytes."""
    if size <= SMALL_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_thread, work, *arguments)
