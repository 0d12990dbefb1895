"""The batcher gathers rows until their segment is cut; messages are never encoded one by one.

There is one open ``RowParcel`` per shard. The row that fills it seals it; the others are sealed when the
producer has room to send. Rows are checked as they come, so that no single row can make the encoding of a
segment fail. While the number of shards is not known, all rows share one parcel without a shard.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import TypeVar

from headpond.client.produce.promise import Parcel, Promise
from headpond.client.produce.values import TypedValues
from headpond.model.errors import BadRequest, HeadpondError, KeyMissing, SegmentTooLarge, ValueMissing
from headpond.producer.encoder import NoSharder, Sharder
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.few_rows import encode_few

ROW_BYTES = 48
"""The most that a row costs in a segment besides its text: offsets, time, a share of the headers' offsets."""
HEADER_BYTES = 16
SEGMENT_SPARE_BYTES = 4096
"""Room in a segment for its own header and metadata."""

VALUE_HINT = "Encode it first: text.encode(), msgspec.json.encode(...), or open the producer with value=TYPE."

Value = bytes | bytearray | memoryview | Mapping[str, Any] | None
"""A message's value: bytes, or in a typed topic a mapping of its columns. None deletes a state topic's key."""

SentT = TypeVar("SentT", default=Value, contravariant=True)
"""What a producer sends: these, or values of the type that the program named."""

_now_ns = time.time_ns


class RowParcel(Parcel):
    """Rows as they were posted. The rarer columns are sparse, so that plain rows do not pay for them."""

    __slots__ = ("headers", "ids", "keys", "sent_at_us", "values")

    def __init__(self, topic: str, shard: int | None) -> None:
        super().__init__(topic, shard)
        self.values: list[Any] = []
        self.sent_at_us: list[int] = []
        self.keys: dict[int, bytes] = {}
        self.ids: dict[int, str] = {}
        self.headers: dict[int, Mapping[str, str]] = {}

    def encode(self, typed: TypedValues | None) -> pa.RecordBatch | bytes:
        """The rows as columns, or a few of them as a segment; the parcel drops them, also those at fault."""
        rows = self.rows
        values, sent_at_us, self.values, self.sent_at_us = self.values, self.sent_at_us, [], []
        keys, ids, headers, self.keys, self.ids, self.headers = self.keys, self.ids, self.headers, {}, {}, {}
        columns = (_column(keys, rows), _column(ids, rows)) if keys or ids else (None, None)
        if typed is None and not headers and (segment := encode_few(values, *columns, sent_at_us)) is not None:
            return segment
        make = rows_to_batch if typed is None else typed.to_batch
        return make(values, *columns, _column(headers, rows), sent_at_us)


class Batcher:
    promise: ClassVar[type[Promise]] = Promise

    def __init__(self, rows_max: int) -> None:
        """It takes rows after ``begin``."""
        self.rows = 0
        """Rows ever added."""
        self.bytes = 0
        """Bytes ever added, as memory counts them."""
        self.sealed: deque[RowParcel] = deque()
        self.typed: TypedValues | None = None
        self._state: bool | None = None
        self._topic = ""
        self._sharder: Sharder | NoSharder = NoSharder()
        self._rows_max = rows_max
        self._bytes_max = 0
        self._row_bytes_max = 0
        self._open: dict[int | None, RowParcel] = {}
        self._plain: RowParcel | None = None
        """The open parcel that a row without key, id and headers joins, if its value is just bytes."""
        self._plain_max = 0
        """How large that parcel may be before such a row, without the bytes of its value."""
        self._make_promise = self.promise  # of the instance, which is faster to read than of the class

    def begin(
        self,
        topic: str,
        sharder: Sharder | NoSharder,
        *,
        bytes_max: int,
        row_bytes_max: int,
        typed: TypedValues | None = None,
        state: bool | None = None,
    ) -> None:
        """``sharder`` is None while the number of shards is not known. ``state`` is whether every row has a key
        and
        may have no value; None while that is not known."""
        self.typed = typed
        self._topic = topic
        self._sharder = sharder
        self._state = state
        self._bytes_max = bytes_max
        self._row_bytes_max = row_bytes_max
        self._plain, self._plain_max = None, min(bytes_max, row_bytes_max) - ROW_BYTES

    def add(self, value: Any, key: Any, id: str | None, headers: Mapping[str, str] | None) -> Promise:
        """Puts one row behind the others of its shard."""
        bare = key is None and id is None and headers is None
        parcel = self._plain
        if bare and parcel is not None and type(value) is bytes and parcel.size + len(value) <= self._plain_max:
            size = ROW_BYTES + len(value)
        else:
            if value is None:
                size = ROW_BYTES
            elif self.typed is not None:
                value, size = self.typed.check(value)
                size += ROW_BYTES
            else:
                if type(value) is not bytes:
                    value = _as_bytes(value, "value is bytes", VALUE_HINT)
                size = ROW_BYTES + len(value)
            if value is None or self._state:
                self._check_state(value, key)
            shard = self._sharder.turn
            if not bare:
                if key is not None:
                    key = _as_key(key)
                    shard = self._sharder.of_key(key)
                if headers is not None:
                    headers = _as_headers(headers)
                size += _extra_bytes(key, id, headers)
            if size > self._row_bytes_max:
                raise SegmentTooLarge(
                    f"the message takes {size:,} bytes, all counted; "
                    f"at most {self._row_bytes_max:,} are allowed"
                )
            parcel = self._open.get(shard)
            if parcel is None or parcel.size + size > self._bytes_max:
                if parcel is not None:
                    self._seal(shard)
                parcel = self._open[shard] = RowParcel(self._topic, shard)
            if bare and self.typed is None and not self._state and shard == self._sharder.turn:
                self._plain = parcel
        row = parcel.rows
        parcel.values.append(value)
        parcel.sent_at_us.append(_now_ns() // 1000)
        if not bare:
            if key is not None:
                parcel.keys[row] = key
            if id is not None:
                parcel.ids[row] = id
            if headers:
                parcel.headers[row] = headers
        parcel.rows = row + 1
        parcel.size += size
        self.rows += 1
        self.bytes += size
        if row + 1 >= self._rows_max:
            self._seal(parcel.shard)
        return self._make_promise(parcel, row)

    def _check_state(self, value: Any, key: bytes | str | None) -> None:
        """The node requires the same: rows of a state topic have keys, and only they may have no value."""
        if self._state and key is None:
            raise KeyMissing(f"topic {self._topic} is a state topic, and this message has no key")
        if value is None and self._state is False:
            raise ValueMissing(f"topic {self._topic} is no state topic, and this message has no value")

    def learn(self, sharder: Sharder, state: bool | None) -> None:
        """The topic has other shards than was known: the rows so far get theirs when they are sent."""
        self.seal_all()
        for parcel in self.sealed:
            parcel.shard = None
        self._sharder, self._state = sharder, state

    def seal_all(self) -> None:
        """Ends every open parcel."""
        for shard in list(self._open):
            self._seal(shard)

    def end(self, error: HeadpondError) -> None:
        """Ends every open parcel for good; a caller checks first whether the producer was closed."""
        self.seal_all()

    def _seal(self, shard: int | None) -> None:
        self.sealed.append(self._open.pop(shard))
        self._plain = None
        if shard == self._sharder.turn:
            self._sharder.next_turn()


def _column(sparse: dict[int, Any], rows: int) -> list[Any] | None:
    if not sparse:
        return None
    return list(sparse.values()) if len(sparse) == rows else [sparse.get(row) for row in range(rows)]


def _as_bytes(value: object, rule: str, hint: str) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadRequest(f"a message's {rule}, not {type(value).__name__}", hint=hint)


def _as_key(key: object) -> bytes:
    if not isinstance(key, str):
        return _as_bytes(key, "key is bytes or text", "Give one of these: key=str(number), for example.")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"key {key!r} cannot be written as UTF-8") from None


def _as_headers(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise BadRequest(f"headers are a mapping of text to text, not {type(headers).__name__}")
    return dict(headers)


def _extra_bytes(key: bytes | None, id: str | None, headers: Mapping[str, str] | None) -> int:
    """The bytes of the columns besides the value; raises if one cannot be encoded."""
    size = 0 if key is None else len(key)
    if id is not None:
        size += _text_bytes(id, "id")
    for name, text in (headers or {}).items():
        size += _text_bytes(name, "a header's name") + _text_bytes(text, f"header {name!r}") + HEADER_BYTES
    return size


def _text_bytes(text: object, what: str) -> int:
    if not isinstance(text, str):
        raise BadRequest(f"{what} is text, not {type(text).__name__}")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"{what} {text!r} cannot be written as UTF-8") from None
