"""Lists the segments of a log without their rows: block, number and checksum.

The list includes refusals, and segments of a state topic whose rows compaction has all removed: their numbers
are in use. Two nodes compare such lists before they send a message. Like a read, it runs in a worker thread
over one ``View`` and checks every checksum.
"""

from __future__ import annotations

from headpond.storage.disk import DiskFile
from headpond.storage.log.index import place_of
from headpond.storage.log.read import READ_BYTES_MIN, LogReader, Run, Span, View
from headpond.storage.log.walk import FramedRecord, WalkBounds, walk
from headpond.wire.control.links import COMPACTED_AWAY, HEADS_MAX, RecordHead
from headpond.wire.frame import HEADER_BYTES, OVERHEAD_BYTES, TRAILER
from headpond.wire.record import RECORD_HEADER_BYTES, is_stub, segments_of

SCAN_BYTES_MAX = 32 * 1024 * 1024
"""How many bytes one answer may read; the other node asks again for the rest."""
CHUNK_BYTES = 1024 * 1024
REFUSALS_MAX = 500
"""How many refusals an answer lists at one entry, so that it always reaches the next; others are holes."""
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES


def walk_heads(reader: LogReader, view: View, shard: int, entry: int, heads: list[RecordHead]) -> Run:
    """Adds the heads from the record that holds ``entry`` on; returns where to continue, and what is lost."""
    lost: list[Span] = []
    at = entry
    if at < view.entry_first:
        lost.append((at, view.entry_first))
        at = view.entry_first
    number = max(view.number_of(at), 0)
    room = SCAN_BYTES_MAX
    while number < len(view.files) and room > 0:
        at, room = _walk_file(reader, view, number, shard, at, room, heads, lost)
        if len(heads) >= HEADS_MAX:
            break
        number += 1
    return Run([], at, lost)


def _walk_file(
    reader: LogReader,
    view: View,
    number: int,
    shard: int,
    at: int,
    room: int,
    heads: list[RecordHead],
    lost: list[Span],
) -> tuple[int, int]:
    """The entry to continue from, and how many bytes may still be read."""
    try:
        file = reader.open_file(view.files[number])
    except FileNotFoundError:
        reader.check_replaced(view.files[number])
        lost.append((at, view.end_entry(number)))
        return view.end_entry(number), room
    known = len(heads)
    try:
        spans: list[Span] = []
        end = _walk_open(reader, view, number, file, shard, at, room, heads, spans)
        if spans and reader.index_was_wrong(view, number, file):
            del heads[known:]
            spans = []
            end = _walk_open(reader, view, number, file, shard, at, room, heads, spans)
    finally:
        file.close()
    lost += spans
    return end


def _walk_open(
    reader: LogReader,
    view: View,
    number: int,
    file: DiskFile,
    shard: int,
    at: int,
    room: int,
    heads: list[RecordHead],
    lost: list[Span],
) -> tuple[int, int]:
    limit = view.end_entry(number)
    points, end_offset = reader.points_of(view, number, file)
    point = place_of(points, at)
    bounds = WalkBounds(0, end_offset, view.files[number].first, limit)
    if point is not None:
        bounds = WalkBounds(point.offset, end_offset, point.entry, limit)
    expected, refusals = at, 0
    for item in walk(file, bounds, shard, max(CHUNK_BYTES, READ_BYTES_MIN)):
        header = item.header
        if header.end_entry <= at and (header.count or header.first_entry < at):
            continue
        if header.count:
            if len(heads) >= HEADS_MAX or room <= 0:
                return expected, 0
            if header.first_entry > expected:
                lost.append((expected, header.first_entry))
            expected, refusals = header.end_entry, 0
        elif (refusals := refusals + 1) > REFUSALS_MAX:
            continue
        room -= len(item.raw)
        body = item.raw[_LEAD_BYTES : -TRAILER.size]
        if not is_stub(body):
            heads.append(_head(item))
            continue
        for gone in segments_of(header, item.segment, body):
            if gone.first_entry < at:
                continue
            if len(heads) >= HEADS_MAX:
                return gone.first_entry, 0
            place = (gone.first_entry, 0, header.block, gone.segment)
            heads.append(RecordHead(*place, gone.origin_crc, RECORD_HEADER_BYTES, refusal=COMPACTED_AWAY))
    if expected < limit:
        lost.append((expected, limit))
    return max(expected, limit), room


def _head(item: FramedRecord) -> RecordHead:
    header, raw = item.header, item.raw
    refusal = raw[_LEAD_BYTES : -TRAILER.size] if not header.count else b""
    size = len(raw) - OVERHEAD_BYTES
    place = (header.first_entry, header.count, header.block, item.segment)
    return RecordHead(*place, header.origin_crc, size, header.stored_at_us, bytes(refusal))
