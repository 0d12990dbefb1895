"""A few rows in the bare form (segment.py), encoded and read without Arrow.

A message that is sent by itself is a segment of one row. Arrow makes an array for each of its columns, which
takes longer than everything else that a client or the node does with it. Here, rows without nulls and headers
are packed, checked and read by hand. Anything else, and anything that may be at fault, is left to
``segment.py``, which has the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import gt
from typing import Any, Final, NamedTuple

from headpond.wire.plain.columns import NAMES, SENT_AT_US_MAX, SENT_AT_US_MIN, SENT_AT_US_UNKNOWN

FORM_BARE: Final = 2
BARE_BYTES_MAX = 8 * 1024
"""Above this size IPC's metadata is under 8 %, and both forms take the same time."""
HEADER = struct.Struct("<BBBBI")
HEADER_BYTES = HEADER.size

ROWS_MAX = 32
_VALUE, _KEY, _ID, _SENT_AT = map(NAMES.index, ("value", "key", "id", "sent_at"))
_COLUMNS: Final = {
    1 << _SENT_AT | sum(1 << index for index in chosen): chosen
    for chosen in ((_VALUE,), (_KEY,), (_VALUE, _KEY), (_VALUE, _ID), (_VALUE, _KEY, _ID))
}
"""The columns with offsets, for each choice of columns that is handled here."""
_TIMES: Final = [struct.Struct(f"<{rows}q") for rows in range(ROWS_MAX + 1)]
_OFFSETS: Final = [struct.Struct(f"<{rows + 1}i") for rows in range(ROWS_MAX + 1)]


def encode_few(
    values: Sequence[bytes],
    keys: Sequence[bytes] | None,
    ids: Sequence[str] | None,
    sent_at_us: Sequence[int],
) -> bytes | None:
    """The segment of a few rows; None if they are too many or too large, or one of them lacks something."""
    rows = len(values)
    if rows > ROWS_MAX:
        return None
    mask = 1 << _SENT_AT | 1 << _VALUE
    columns: list[Sequence[bytes]] = [values]
    try:
        if keys is not None:
            mask |= 1 << _KEY
            columns.append(keys)
        if ids is not None:
            mask |= 1 << _ID
            columns.append([text.encode() for text in ids])
        parts = [HEADER.pack(FORM_BARE, mask, 0, 0, rows), _TIMES[rows].pack(*sent_at_us)]
        parts += [_OFFSETS[rows].pack(0, *accumulate(map(len, column))) for column in columns]
        for column in columns:
            parts += column
        segment = b"".join(parts)
    except (TypeError, AttributeError, ValueError, struct.error):
        return None
    return segment if len(segment) <= BARE_BYTES_MAX else None


class FewRows(NamedTuple):
    """Columns as Python values; None for a column that the segment does not have."""

    values: list[bytes] | None
    keys: list[bytes] | None
    ids: list[str] | None
    sent_at_us: Sequence[int]


def read_few(data: bytes, stored_at_us: int | None = None) -> FewRows | None:
    """The rows of a segment that certainly has no fault; None if only ``segment.py`` can tell.

    With ``stored_at_us`` their times are as readers see them; without, as the sender gave them.
    """
    if not HEADER_BYTES <= len(data) <= BARE_BYTES_MAX:
        return None
    form, mask, nulls, zero, rows = HEADER.unpack_from(data)
    columns = _COLUMNS.get(mask)
    if form != FORM_BARE or nulls or zero or columns is None or not 0 < rows <= ROWS_MAX:
        return None
    at = HEADER_BYTES + 8 * rows
    data_at = at + 4 * (rows + 1) * len(columns)
    if data_at > len(data):
        return None
    times: Sequence[int] = _TIMES[rows].unpack_from(data, HEADER_BYTES)
    if min(times) < SENT_AT_US_MIN or max(times) > SENT_AT_US_MAX:
        return None
    found: dict[int, Any] = {}
    for index in columns:
        offsets = _OFFSETS[rows].unpack_from(data, at)
        at += 4 * (rows + 1)
        if offsets[0] or any(map(gt, offsets, offsets[1:])) or data_at + offsets[-1] > len(data):
            return None
        column: list[Any] = [data[data_at + start : data_at + end] for start, end in pairwise(offsets)]
        if index == _ID:
            try:
                column = [text.decode() for text in column]
            except UnicodeDecodeError:
                return None
        found[index] = column
        data_at += offsets[-1]
    if data_at != len(data):
        return None
    if stored_at_us is not None and SENT_AT_US_UNKNOWN in times:
        times = [stored_at_us if each == SENT_AT_US_UNKNOWN else each for each in times]
    return FewRows(found.get(_VALUE), found.get(_KEY), found.get(_ID), times)


def count_few(data: bytes, *, state: bool, value_bytes_max: int | None) -> int:
    """The rows of a segment that ``read_few`` reads and that follow the rules of the topic; otherwise 0.

    Rows of a state topic have a key, those of others a value; no value is longer than ``value_bytes_max``.
    """
    rows = read_few(data)
    if rows is None or (rows.keys if state else rows.values) is None:
        return 0
    if value_bytes_max is not None and rows.values and max(map(len, rows.values)) > value_bytes_max:
        return 0
    return len(rows.sent_at_us)
