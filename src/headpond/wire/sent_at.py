"""When one message of a stored segment was sent, without decoding the others."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from headpond.model.errors import BadSegment
from headpond.wire.plain.columns import SCHEMAS, SENT_AT_US_UNKNOWN
from headpond.wire.plain.few_rows import FORM_BARE, HEADER_BYTES
from headpond.wire.plain.ipc import unfold
from headpond.wire.plain.packed import is_packed, time_of_row
from headpond.wire.plain.segment import BEGINNINGS, FAULTS
from headpond.wire.typed.record import version_of
from headpond.wire.typed.versions import SchemaVersions, chosen

_TIME: Final = struct.Struct("<q")


def sent_at_us(segment: bytes, row: int, schemas: SchemaVersions | None, stored_at_us: int) -> int | None:
    """The time of a row as readers see it; None if the segment is damaged. ``schemas``: of a typed topic."""
    try:
        at_us = _sent_at_us(segment, row, schemas)
    except (*FAULTS, BadSegment, IndexError, StopIteration):
        return None
    return stored_at_us if at_us == SENT_AT_US_UNKNOWN else at_us


def _sent_at_us(segment: bytes, row: int, schemas: SchemaVersions | None) -> int:
    if schemas is None and segment[0] == FORM_BARE:
        return int(_TIME.unpack_from(segment, HEADER_BYTES + _TIME.size * row)[0])
    if schemas is None and is_packed(segment):
        return time_of_row(segment, row)
    mask = segment[1]
    if schemas is None:
        beginning, names = BEGINNINGS[mask], SCHEMAS[mask].names
    else:
        version = version_of(segment)
        beginning, names = schemas.beginning(version, mask), chosen(schemas.messages(version), mask)
    message = pa.py_buffer(segment).slice(HEADER_BYTES)
    rows = unfold(beginning, message, column=names.index("sent_at"))
    return int(rows.column(0)[row].value)
