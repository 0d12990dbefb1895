"""The bytes of a typed topic's segments and snapshots; codec.py explains the dictionaries.

Little endian. A segment's body::

    form u8 = 3 | rows varint | of each column: form u8, then its content in that form

The column's form (see leaves) is the low four bits; bit 4 says that a validity bitmap, ceil(rows / 8) bytes,
comes next::

    0 absent   nothing: every row is null
    1 fixed    the values as Arrow has them, ceil(rows * bits / 8) bytes
    2 ints     ints[rows]
    3 texts    ints[rows], the lengths, of a null 0 | the bytes of all, end to end
    4 coded    gain | ints[rows], indices into the dictionary
    5 labels   ints[rows], how many labels each map has | the names | the texts: each as a column of form 3 or 4
    6 sets     gain of the names | gain of the texts | gain of the sets | ints[rows], indices into the sets
    7 ipc      size varint | an Arrow IPC record batch message of this one column, not compressed

    gain       length of the dictionary before this segment, varint | count varint | as texts of count rows
    ints       width u8, one of 0 1 2 4 8 | least value, zigzag varint | differences to it, width bytes each

A value of the dictionary of sets is, for each label in its order, a name's index u16 and a text's index u16
(2**16 - 1: a null text). A column whose values are all equal has width 0 and costs three bytes or so.
A snapshot's body::

    form u8 = 5 | size of the schema u32 | the Arrow IPC schema message | of each leaf: 1 u8 if it is plain;
    else 0 u8 and its gain

No buffer is aligned; a reader copies those that must be. The bytes may come from anyone: every fault is a
``BadSegment``, which ``BodyReader`` finds before it allocates memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment
from headpond.model.identity import SegmentKey
from headpond.wire.typed.leaves import STORED

LEAF_VALUES_MAX: Final = 64 * 1024 - 1
"""The most values in a dictionary; the last 16-bit index means a null text in a set."""
LEAF_BYTES_MAX: Final = 1024 * 1024
STATE_BYTES_MAX: Final = 6 * 1024 * 1024
DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest decoded rows of a segment: an index of two bytes may stand for a text of 1 MiB."""

FORM_TYPED: Final = 3
FORM_SNAPSHOT: Final = 5
NULLS: Final = 0x10
"""In a form's byte: a bitmap follows."""
PLAIN: Final = -1
"""Instead of a dictionary's length: the leaf has no dictionary, its texts travel as they are."""

OFFSET_BYTES: Final = 4
FEW: Final = 256
"""Up to this many values, a loop in Python is faster than starting an Arrow kernel."""
ARROW_FAULTS: Final = (
    pa.ArrowException,
    ValueError,
    OverflowError,
    OSError,
    EOFError,
    IndexError,
    struct.error,
)

_INT64: Final = pa.int64()
_WIDTHS: Final = ((1, "B", pa.uint8()), (2, "H", pa.uint16()), (4, "I", pa.uint32()))
_CODES: Final = {width: code for width, code, _ in _WIDTHS}
_KINDS: Final = {width: kind for width, _, kind in _WIDTHS}


@dataclass(frozen=True, slots=True)
class TypedSegment:
    """Encoded rows; ``key`` goes into the frame's header."""

    key: SegmentKey
    body: bytes


@dataclass(frozen=True, slots=True)
class Redundant:
    """For a snapshot at a segment: the length of each leaf before it, or ``PLAIN``."""

    segment: int
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that a decoder needs to begin at ``segment``."""

    segment: int
    body: bytes


# --- writing -----------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; the top bit says that more follow."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def pack_ints(numbers: Sequence[int]) -> bytes:
    """A few integers as ``ints``."""
    if not numbers:
        return b"\0\0"
    least = min(numbers)
    span = max(numbers) - least
    if span == 0:
        return b"\0" + _zigzag(least)
    for width, code, _ in _WIDTHS:
        if span < 1 << 8 * width:
            differences = [number - least for number in numbers]
            return bytes((width,)) + _zigzag(least) + struct.pack(f"<{len(numbers)}{code}", *differences)
    return b"\x08\0" + struct.pack(f"<{len(numbers)}q", *numbers)


def ints_of(numbers: pa.Array) -> list[Any]:
    """Integers of any Arrow type as ``ints``; a null counts as the least of the others."""
    extent = pc.min_max(numbers).as_py()
    least = extent["min"] or 0
    span = (extent["max"] or 0) - least
    if span == 0:
        return [b"\0" + _zigzag(least)]
    numbers = numbers.cast(_INT64)
    if numbers.null_count:
        numbers = numbers.fill_null(least)
    for width, _, kind in _WIDTHS:
        if span < 1 << 8 * width:
            differences = pc.subtract(numbers, least).cast(kind)
            return [bytes((width,)) + _zigzag(least), values_buffer(differences, 8 * width)]
    return [b"\x08\0", values_buffer(numbers, 64)]


def values_buffer(array: pa.Array, bits: int) -> pa.Buffer:
    """The values of an array that has one buffer; values under a byte must begin at its first row."""
    begin = array.offset * bits // 8
    return array.buffers()[1].slice(begin, (len(array) * bits + 7) // 8)


def texts_of(texts: pa.Array) -> list[Any]:
    """Texts or bytes as ``texts``: lengths, then the bytes."""
    count = len(texts)
    if count == 0:
        return [b"\0\0"]
    if texts.null_count:  # a null may have bytes under it
        texts = texts.fill_null("" if texts.type == pa.string() else b"")
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("i")[texts.offset : texts.offset + count + 1]
    if count <= FEW:
        few = ends.tolist()
        lengths: list[Any] = [pack_ints([end - begin for begin, end in pairwise(few)])]
    else:
        lengths = ints_of(pc.binary_length(texts))
    return [*lengths, data.slice(ends[0], ends[count] - ends[0])] if ends[count] > ends[0] else lengths


# --- reading -----------------------------------------------------------------------------------------


class BodyReader:
    """Reads the parts of a body in order and limits what they unfold to."""

    __slots__ = ("_at", "_buffer", "_data", "_room")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._buffer = pa.py_buffer(data)
        self._at = 0
        self._room: float = DECODED_BYTES_MAX

    def spend(self, size: float) -> None:
        """Counts ``size`` bytes of decoded rows, before their allocation."""
        self._room -= size
        if self._room < 0:
            raise BadSegment(f"a segment that unfolds to more than the {DECODED_BYTES_MAX:,} bytes allowed")

    def check_end(self) -> None:
        if self._at != len(self._data):
            raise BadSegment(f"{len(self._data) - self._at:,} bytes behind the end")

    def byte(self) -> int:
        at = self._at
        self._at = at + 1
        return self._data[at]

    def varint(self) -> int:
        number = shift = 0
        while (byte := self.byte()) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise BadSegment("a number of more than 64 bits")
        return number | byte << shift

    def take(self, size: int) -> pa.Buffer:
        """The next ``size`` bytes, at any alignment."""
        at = self._at
        if size > len(self._data) - at:
            raise BadSegment(f"{len(self._data):,} bytes that speak of {at + size:,}")
        self._at = at + size
        return self._buffer.slice(at, size)

    def aligned(self, size: int) -> pa.Buffer:
        """The next ``size`` bytes, aligned for every type."""
        taken = self.take(size)
        return taken if taken.address % 8 == 0 else pa.py_buffer(taken.to_pybytes())

    def ints(self, count: int, code: str = "q") -> pa.Buffer:
        """``count`` integers in the struct code's type; the caller has counted them with ``spend``."""
        width, least = self._ints_head()
        if width == 8:
            numbers = self.aligned(8 * count)
            if code == "q":
                return numbers
            whole = pa.Array.from_buffers(_INT64, count, [None, numbers], 0)
            return whole.cast(STORED[code]).buffers()[1]
        if count <= FEW:
            found = self._few(count, width, least)
            return pa.py_buffer(struct.pack(f"<{count}{code}", *found))
        return self._many(count, width, least).cast(STORED[code]).buffers()[1]

    def offsets(self, count: int) -> tuple[pa.Buffer, int]:
        """``count`` lengths as offsets, and their sum; the caller has counted the offsets with ``spend``."""
        width, least = self._ints_head()
        if width == 8 or least < 0:
            raise BadSegment("lengths that are not small and above zero")
        if count <= FEW:
            ends = list(accumulate(self._few(count, width, least), initial=0))
            return pa.py_buffer(struct.pack(f"<{count + 1}i", *ends)), ends[-1]
        sums = pc.cumulative_sum_checked(self._many(count, width, least))
        last = sums[-1].as_py()
        found = sums.cast(STORED["i"]).buffers()[1].slice(0, OFFSET_BYTES * count)
        return pa.py_buffer(bytes(OFFSET_BYTES) + found.to_pybytes()), last

    def texts(self, kind: pa.DataType, count: int, bitmap: pa.Buffer | None = None) -> pa.Array:
        """``count`` texts or bytes, validated; the caller has counted their offsets with ``spend``."""
        offsets, size = self.offsets(count)
        nulls = 0 if bitmap is None else -1
        found = pa.Array.from_buffers(kind, count, [bitmap, offsets, self.take(size)], nulls)
        found.validate(full=True)
        return found

    def _ints_head(self) -> tuple[int, int]:
        width = self.byte()
        number = self.varint()
        least = -(number + 1 >> 1) if number & 1 else number >> 1
        if not (width in (0, 1, 2, 4) and -(2**63) <= least < 2**63) and not (width == 8 and least == 0):
            raise BadSegment(f"integers of {width} bytes from {least}")
        return width, least

    def _few(self, count: int, width: int, least: int) -> list[int]:
        if width == 0:
            return [least] * count
        return [least + n for n in struct.unpack(f"<{count}{_CODES[width]}", self.take(width * count))]

    def _many(self, count: int, width: int, least: int) -> pa.Array:
        if width == 0:
            return pa.repeat(pa.scalar(least, _INT64), count)
        numbers = pa.Array.from_buffers(_KINDS[width], count, [None, self.aligned(width * count)], 0)
        return pc.add_checked(numbers.cast(_INT64), least)
