"""Scans a file of frames, and finds the next frame behind bytes that are none.

A file consists of frames, one behind the other, and possibly zeros behind them (reserved room). ``scan`` yields
its contents:

1. A frame that is whole and passes its checksum is ``Found``.
2. Zeros up to the file's end are the clean end.
3. At anything else the scan looks for the next valid frame of this file, in this order:

   - where the bad frame ends if only its size rotted: with the right size it passes its checksum;
   - where its header claims that it ends: if its body rotted, its header is still right;
   - at every offset that could be a header: its type and shard fit, its size fits into the file. The scan
     checks candidates that another plausible header follows at once, and the others while a budget of
     checksummed bytes lasts, so that a file of garbage costs seconds.

   The skipped bytes are ``Bad``; behind the last valid frame they reach up to the last byte that is not zero.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from google_crc32c import extend
from google_crc32c import value as crc32c

from headpond.model.errors import BadFrame
from headpond.storage.disk import DiskFile
from headpond.wire.frame import (
    FILE_BODY_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    Frame,
    FrameType,
    decode_at,
)

CHUNK_BYTES = 1024 * 1024
PAGE_BYTES = 64 * 1024
PAGES_MAX = 128
SECTOR_BYTES = 512
CRC_RESIDUE = 0x48674BC7
"""The crc32c of any bytes that end with their own crc32c."""
FILE_TYPES = frozenset(range(FrameType.TITLE, FrameType.INDEX + 1))
"""The types that files hold; a search ignores the types of the wire protocol."""
_FILE_TYPES_AND_END = FILE_TYPES | {0}
_SIZE = struct.Struct("<I")
_ZEROS = bytes(PAGE_BYTES)

_CHECKED_BYTES_MAX = 256 * 1024 * 1024
_CHECKED_COUNT_MAX = 100_000


class Found(NamedTuple):
    """A valid frame."""

    offset: int
    frame: Frame
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class Bad(NamedTuple):
    """Bytes that are no frame."""

    offset: int
    end: int


Accept = Callable[[int, Frame, bool], bool]
"""Whether a frame behind bad bytes belongs to this file at this place (offset, frame, led).

``led``: the bad frame before it ends there, by its header or its checksum. If not, the frame may stand inside
of a payload, whose bytes a sender chose.
"""


def read_frame(file: DiskFile, offset: int, body_bytes_max: int = FILE_BODY_BYTES_MAX) -> Found:
    """The frame at ``offset``; ``BadFrame`` if there is none."""
    data = file.read_at(offset, 4096)
    frame = decode_at(data, 0, body_bytes_max)
    if frame is None and len(data) >= HEADER_BYTES:
        frame = decode_at(file.read_at(offset, _total(data, 0)), 0, body_bytes_max)
    if frame is None:
        raise BadFrame(f"{file.path} ends inside the frame at {offset}")
    return Found(offset, frame, OVERHEAD_BYTES + len(frame.body))


def scan(
    file: DiskFile,
    *,
    shard: int | None = None,
    accept: Accept | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Found | Bad]:
    """Every frame of a file, and the bad ranges between and behind them. It reads ``chunk_bytes`` at a time.

    ``shard`` and ``accept`` narrow what counts as a frame of this file when the scan has to search; a frame
    directly behind a valid one is not checked against them. The search behind a bad place runs when the
    caller asks for the next item, so ``accept`` may use what the caller learned from all items before.
    """
    end = file.size()
    last: int | None = None
    at = 0
    while at < end:
        for offset, raw in frames_from(file, at, end, chunk_bytes):
            type_, its_shard, segment, _ = HEADER.unpack_from(raw)
            crc = int.from_bytes(raw[-4:], "little")
            at = offset + len(raw)
            yield Found(offset, Frame(type_, its_shard, segment, raw[HEADER_BYTES:-4], crc), len(raw))
        last = _last_nonzero(file, end) if last is None else last
        if last <= at:
            return
        following = following_frame(file, at, end, shard=shard, accept=accept)
        if following is None:
            yield Bad(at, last)
            return
        yield Bad(at, following)
        at = following


def frames_from(
    file: DiskFile, offset: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, bytes]]:
    """The consecutive valid frames from ``offset`` on: the offset and all bytes of each."""
    data, start = b"", offset
    while end - offset >= OVERHEAD_BYTES:
        at = offset - start
        if len(data) - at < OVERHEAD_BYTES:
            data, start, at = file.read_at(offset, min(chunk_bytes, end - offset)), offset, 0
            if len(data) < OVERHEAD_BYTES:
                return
        total = OVERHEAD_BYTES + _SIZE.unpack_from(data, at + HEADER_BYTES - 4)[0]
        if data[at] == 0 or total > end - offset or total > FILE_BODY_BYTES_MAX + OVERHEAD_BYTES:
            return
        if total > len(data) - at:
            data, start, at = file.read_at(offset, min(max(total, chunk_bytes), end - offset)), offset, 0
        raw = data[at : at + total]
        if len(raw) < total or crc32c(raw) != CRC_RESIDUE:
            return
        yield offset, raw
        offset += total


def _last_nonzero(file: DiskFile, end: int) -> int:
    """One past the last byte before ``end`` that is not zero."""
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        data = file.read_at(start, end - start)
        for at in range((len(data) - 1) // PAGE_BYTES * PAGE_BYTES, -1, -PAGE_BYTES):
            page = data[at : at + PAGE_BYTES]
            if page != _ZEROS[: len(page)]:  # much faster than stripping all of them
                return start + at + len(page.rstrip(b"\0"))
        end = start
    return 0


class _Pages:
    """A cache of pages for the small reads all over a file that a search makes."""

    def __init__(self, file: DiskFile, end: int) -> None:
        self._file = file
        self._end = end
        self._pages: dict[int, bytes] = {}

    def plausible_at(self, offset: int, shard: int | None) -> bool:
        """Whether a header could stand at ``offset``, or the frames could end there."""
        number, at = divmod(offset, PAGE_BYTES)
        page = self._pages.get(number)
        if page is None:
            page = self._load(number)
        if at < len(page) and page[at] not in _FILE_TYPES_AND_END:
            return False
        header = page[at : at + HEADER_BYTES]
        if not any(header):
            return True
        if len(header) < HEADER_BYTES:
            return False
        return _is_plausible(header, shard)

    def _load(self, number: int) -> bytes:
        if len(self._pages) >= PAGES_MAX:
            self._pages.clear()
        start = number * PAGE_BYTES
        # A page reaches a header's length into the next, so no header is cut.
        page = self._file.read_at(start, max(0, min(PAGE_BYTES + HEADER_BYTES, self._end - start)))
        self._pages[number] = page
        return page


def _is_plausible(header: bytes, shard: int | None) -> bool:
    type_, its_shard, _, size = HEADER.unpack(header)
    return type_ in FILE_TYPES and size <= FILE_BODY_BYTES_MAX and shard in (None, its_shard)


def _total(data: bytes, at: int) -> int:
    return OVERHEAD_BYTES + int(HEADER.unpack_from(data, at)[3])


def following_frame(
    file: DiskFile, bad_at: int, end: int, *, shard: int | None = None, accept: Accept | None = None
) -> int | None:
    """The offset of the next valid frame of this file behind the bad bytes at ``bad_at``, or None."""

    def valid(offset: int, *, led: bool) -> bool:
        try:
            frame = read_frame(file, offset, min(FILE_BODY_BYTES_MAX, end - offset)).frame
        except BadFrame:
            return False
        if frame.type not in FILE_TYPES or shard not in (None, frame.shard):
            return False
        return accept is None or accept(offset, frame, led)

    head = file.read_at(bad_at, min(HEADER_BYTES, end - bad_at))
    claimed = bad_at + _total(head, 0) if len(head) == HEADER_BYTES else end
    claim_valid = claimed < end and valid(claimed, led=True)
    search_end = min(claimed if claim_valid else end, bad_at + OVERHEAD_BYTES + FILE_BODY_BYTES_MAX)
    real_end = _real_end(file, bad_at, search_end, end, shard)
    if real_end is not None and valid(real_end, led=True):
        return real_end
    if claim_valid:
        return claimed
    pages = _Pages(file, end)
    bytes_left, count_left = _CHECKED_BYTES_MAX, _CHECKED_COUNT_MAX
    for offset, total in _candidates(file, bad_at + 1, end, shard):
        if not pages.plausible_at(offset + total, shard):
            if bytes_left < total or count_left <= 0:
                continue
            bytes_left -= total
            count_left -= 1
        if valid(offset, led=False):
            return offset
    return None


def _real_end(file: DiskFile, bad_at: int, search_end: int, end: int, shard: int | None) -> int | None:
    """The end of a bad frame of which only the size rotted; None if more did.

    A candidate is the next frame if the bad frame passes its checksum with the size that leads there. For
    frames inside its body it does not: their sender did not know the header that the node put before them. The
    checks have a budget, like those of the search.
    """
    data = b""
    bytes_left = _CHECKED_BYTES_MAX
    for offset, _ in _candidates(file, bad_at + OVERHEAD_BYTES, end, shard):
        size = offset - bad_at
        bytes_left -= size
        if offset >= search_end or bytes_left < 0:
            break
        if len(data) < size:
            data = file.read_at(bad_at, min(2 * size, search_end - bad_at))
        header = data[: HEADER_BYTES - 4] + (size - OVERHEAD_BYTES).to_bytes(4, "little")
        if extend(crc32c(header), data[HEADER_BYTES:size]) == CRC_RESIDUE:
            return offset
    return None


def _candidates(file: DiskFile, start: int, end: int, shard: int | None) -> Iterator[tuple[int, int]]:
    """Offsets from ``start`` on that could be a header, each with the frame size that it claims."""
    types = b"[" + b"".join(re.escape(bytes((type_,))) for type_ in sorted(FILE_TYPES)) + b"]"
    shards = b".." if shard is None else re.escape(shard.to_bytes(2, "little"))
    top = re.escape(bytes((FILE_BODY_BYTES_MAX >> 24,)))
    # Looking ahead finds headers that overlap one another.
    pattern = re.compile(b"(?=" + types + shards + b".{7}[\\x00-" + top + b"])", re.DOTALL)
    at = start
    while at + OVERHEAD_BYTES <= end:
        data = file.read_at(at, min(CHUNK_BYTES, end - at))
        for match in pattern.finditer(data):
            found = match.start()
            total = OVERHEAD_BYTES + int.from_bytes(data[found + 7 : found + 11], "little")
            if total <= FILE_BODY_BYTES_MAX + OVERHEAD_BYTES and at + found + total <= end:
                yield at + found, total
        if len(data) < CHUNK_BYTES:
            return
        at += len(data) - HEADER_BYTES + 1


def looks_torn(file: DiskFile, bad: Bad, *, shard: int | None = None, last: bool = False) -> bool:
    """Whether bad bytes look like a write that a power cut tore, rather than like rot.

    The node writes each byte once, into room that reads as zeros, and a disk writes whole sectors. So a torn
    write leaves at least one sector of zeros from the bad place on, while rot flips bits and leaves none. The
    ``last`` bytes of a file look torn too if their own header claims more bytes than there are.
    """
    if last:
        claimed = claimed_end(file, bad.offset, shard)
        if bad.end - bad.offset < HEADER_BYTES or (claimed is not None and bad.end < claimed):
            return True
    start = bad.offset
    while start < bad.end:
        end = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
        if end > bad.end and start > bad.offset:
            break
        if not any(file.read_at(start, end - start)):
            return True
        start = end
    return False


def claimed_end(file: DiskFile, offset: int, shard: int | None) -> int | None:
    """The end that a header claims for its frame; None if it is no header of this file."""
    head = file.read_at(offset, HEADER_BYTES)
    if len(head) < HEADER_BYTES or not _is_plausible(head, shard):
        return None
    return offset + _total(head, 0)
