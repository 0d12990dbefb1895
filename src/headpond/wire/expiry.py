"""The time to live of a message: the reserved header ``headpond-ttl``, in seconds since it was stored.

``stored_at`` is the node's clock, so a wrong clock of a producer does not make messages vanish. A text that is
not a number of seconds sets no limit. Most segments have no headers, as their second byte shows; the others are
decoded only if they contain the name.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadRequest, BadSegment
from headpond.model.ranges import runs
from headpond.wire.plain.columns import NAMES
from headpond.wire.plain.segment import FORM_FOLDED
from headpond.wire.typed.record import HEADER_BYTES, is_typed_record, stored_rows, version_of
from headpond.wire.typed.versions import SchemaVersions

TTL_HEADER = "headpond-ttl"
TTL_S_MAX = 100 * 366 * 86400.0
_NAME = TTL_HEADER.encode()
_HEADERS = 1 << NAMES.index("headers")


def with_ttl(headers: Mapping[str, str] | None, seconds: float) -> dict[str, str]:
    """Headers with a time to live of ``seconds`` after the message is stored."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= TTL_S_MAX:
        raise BadRequest(f"a time to live of {seconds!r} s is not between 0 and {TTL_S_MAX:.0f}")
    return {**(headers or {}), TTL_HEADER: f"{seconds:.6f}".rstrip("0").rstrip(".")}


def may_expire(segment: bytes, schemas: SchemaVersions | None) -> bool:
    """Whether a stored segment may have a message with a time to live; cheap, and never wrongly False."""
    if len(segment) < HEADER_BYTES:
        return False
    if schemas is None:
        return bool(segment[1] & _HEADERS) and (segment[0] == FORM_FOLDED or _NAME in segment)
    if not is_typed_record(segment):
        return False
    try:  # its buffers may be compressed, which hides the name
        place = schemas.messages(version_of(segment)).get_field_index("headers")
    except BadSegment:
        return False
    return bool(segment[1] >> place & 1)


def expiries_us(segment: bytes, schemas: SchemaVersions | None, stored_at_us: int) -> list[int | None] | None:
    """When each row expires (None: never); None if no row does."""
    if not may_expire(segment, schemas):
        return None
    try:
        rows = stored_rows(segment, schemas)
    except BadSegment:
        return None
    place = rows.schema.get_field_index("headers")
    if place < 0:
        return None
    ttls = _ttls(rows.column(place))
    if not ttls:
        return None
    return [
        None if (ttl := ttls.get(row)) is None else stored_at_us + round(ttl * 1e6)
        for row in range(rows.num_rows)
    ]


def _ttls(headers: pa.MapArray) -> dict[int, float]:
    """The seconds in its header, by row."""
    found: dict[int, float] = {}
    if not len(headers.keys):
        return found
    places = pc.indices_nonzero(pc.equal(headers.keys, TTL_HEADER))
    if not len(places):
        return found
    offsets = headers.offsets.to_pylist()
    texts = headers.items.take(places).to_pylist()
    base = 0 if headers.offset == 0 else offsets[0]
    for place, text in zip(places.to_pylist(), texts, strict=True):
        row = bisect_right(offsets, place + base) - 1
        seconds = _seconds(text)
        if 0 <= row < len(headers) and seconds is not None:
            found[row] = seconds
    return found


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= TTL_S_MAX and math.isfinite(seconds) else None


def last_us(segment: bytes, schemas: SchemaVersions | None, stored_at_us: int) -> int | None:
    """When all rows of a segment have expired; None if some never do."""
    expiries = expiries_us(segment, schemas, stored_at_us)
    if expiries is None:
        return None
    times = [time for time in expiries if time is not None]
    return max(times) if len(times) == len(expiries) else None


def expired_spans(expiries: list[int | None], first_entry: int, now_us: int) -> list[tuple[int, int]]:
    """The entries that have expired."""
    return runs(first_entry + row for row, time in enumerate(expiries) if time is not None and time <= now_us)
