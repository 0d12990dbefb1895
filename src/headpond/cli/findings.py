"""What a scan of a frame file found: facts, counts, records, a torn tail, damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headpond.cli.output import iso_time
from headpond.files.frame_file import Bad, Found
from headpond.files.frame_write import Status, decode_status
from headpond.files.seal import SealedFile, decode_sealed
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame, BadSegment, SchemaMismatch
from headpond.node.core.log_file import Began, BlockEnded, Compacted, Tallied, decode_event, decode_marks_body
from headpond.node.core.log_index import decode_index
from headpond.node.core.marks import Marks
from headpond.node.core.stage_file import CHUNK_HEADER
from headpond.node.core.stage_file import SUFFIX as STAGES_SUFFIX
from headpond.wire.frame import Frame, FrameType
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from headpond.wire.schema import decode_schema, shown_schema
from headpond.wire.stub import is_stub
from headpond.wire.title import decode_title
from headpond.wire.typed_record import is_typed_record, version_of

Record = dict[str, Any]


@dataclass
class BadRange:
    """Bytes that are no frame, and the entries that stood there as far as the frames around them tell."""

    offset: int
    end: int
    entry_first: int | None = None
    entry_end: int | None = None
    looks_torn: bool = False
    """Whether the bytes look like a write that was cut short, rather than like rot."""
    proven: bool = False
    """Whether a STATUS behind them says that they had been synced."""

    @property
    def entries_text(self) -> str:
        if self.entry_first is None and self.entry_end is None:
            return "holding no known entries"
        if self.entry_first == self.entry_end:
            return "holding no entries"
        if self.entry_first is None:
            return f"holding entries before {self.entry_end:,}, if any"
        if self.entry_end is None:
            return f"holding what followed entry {self.entry_first - 1:,}"
        return f"holding entries {self.entry_first:,}–{self.entry_end - 1:,}"

    def as_object(self) -> dict[str, Any]:
        known = self.entry_first is not None and self.entry_end is not None
        entries = [self.entry_first, self.entry_end] if known else None
        return {"offset": self.offset, "end": self.end, "entries": entries}


class Findings:
    """Takes what ``scan`` yields, in order; then ``finish`` tells a torn tail from damage.

    ``entry_limit`` is the first entry of the next file of the same log: a file that has one was closed, so
    nothing in it can be a write cut short. ``sealed`` is how a clean stop left the file.
    """

    def __init__(
        self,
        path: str,
        size: int,
        records_max: int,
        entry_limit: int | None = None,
        sealed: SealedFile | None = None,
    ) -> None:
        self.path = path
        self.bytes = size
        self.facts: dict[str, Any] = {}
        self.frames: dict[str, int] = {}
        self.records: list[Record] = []
        self.records_total = 0
        self.status: Status | None = None
        self.damage: list[BadRange] = []
        self.torn: list[BadRange] = []
        self._records_max = records_max
        self._entry_limit = entry_limit
        self._sealed = sealed
        if sealed is not None:
            self.facts["sealed"] = {"bytes": sealed.bytes, "end": sealed.next}
        self._end = 0
        self._entry: int | None = None
        self._open: list[BadRange] = []
        """Bad ranges that no frame telling an entry has followed yet."""

    @property
    def reserved_bytes(self) -> int:
        """Zeros behind everything: room reserved ahead of writing."""
        return max(0, self.bytes - self._end)

    def take_bad(self, item: Bad, *, looks_torn: bool) -> None:
        self._end = item.end
        bad = BadRange(item.offset, item.end, self._entry, looks_torn=looks_torn)
        self.damage.append(bad)
        self._open.append(bad)

    def take(self, item: Found) -> None:
        self._end = item.end
        name = FrameType(item.frame.type).name
        self.frames[name] = self.frames.get(name, 0) + 1
        try:
            self._take_frame(item.offset, item.size, item.frame)
        except (BadFrame, BadSegment, SchemaMismatch) as error:
            self._list(item.offset, item.size, name, detail=f"unreadable: {error}")

    def finish(self, *, tail_looks_torn: bool) -> None:
        """As recovery does: what was recorded as synced, or stands in a closed file, is not torn."""
        if self._entry_limit is not None:
            self._saw(self._entry_limit, self._entry_limit)
            return
        if tail_looks_torn:
            self.damage[-1].looks_torn = True
        if self._sealed is not None:
            self._take_seal(self._sealed)
        self.torn = [bad for bad in self.damage if not bad.proven and bad.looks_torn]
        self.damage = [bad for bad in self.damage if bad not in self.torn]

    def _take_seal(self, sealed: SealedFile) -> None:
        """All that a clean stop left was durable: what is not there, or cannot be read, is damage."""
        for bad in self.damage:
            bad.proven |= bad.offset < sealed.bytes
        if self._end < sealed.bytes:
            missing = BadRange(self._end, sealed.bytes, self._entry, proven=True)
            self.damage.append(missing)
            self._open.append(missing)
        if "marks" in self.facts and (self._entry or 0) < sealed.next:
            self._saw(sealed.next, sealed.next)

    def as_object(self) -> dict[str, Any]:
        return {
            "file": self.path,
            "bytes": self.bytes,
            **self.facts,
            "frames": self.frames,
            "records_total": self.records_total,
            "records": self.records,
            "reserved_bytes": self.reserved_bytes,
            "torn": [bad.as_object() for bad in self.torn],
            "damage": [bad.as_object() for bad in self.damage],
        }

    # --- frames -------------------------------------------------------------------------------------

    def _take_frame(self, offset: int, size: int, frame: Frame) -> None:
        body = frame.body
        if frame.type == FrameType.TITLE:
            _, power, title = decode_title(body)
            self.facts["title"] = {
                "topic": title.topic,
                "uuid": title.topic_uuid.hex(),
                "shard": frame.shard,
                "shards": 2**power,
            }
            if title.schema is not None:
                self.facts["schema"] = {
                    "version": len(title.schemas),
                    "columns": shown_schema(decode_schema(title.schema)),
                }
        elif frame.type == FrameType.MARKS:
            self._take_marks(body)
        elif frame.type == FrameType.SEGMENT:
            self._take_segment(offset, size, frame)
        elif frame.type == FrameType.STATUS:
            self._take_status(body)
        elif frame.type == FrameType.INDEX:
            index = decode_index(body)
            points = len(index.points)
            self.facts["index"] = {"first": index.first, "end": index.end_entry, "points": points}
        elif (sealed := decode_sealed(frame)) is not None:
            detail = f"{sealed.path}: {sealed.bytes:,} bytes, next {sealed.next:,}"
            self._list(offset, size, "SEALED", detail=detail)
        else:
            self._take_event(offset, size, FrameType(frame.type).name, body)

    def _take_marks(self, body: bytes) -> None:
        head, damaged, incarnations, marks = decode_marks_body(body)
        blocks = Marks.decode(marks)
        self.facts["marks"] = {
            "incarnation": incarnations.at(head.first),
            "first": head.first,
            "kept": head.kept,
            "blocks": len(blocks),
            "damaged_before": len(damaged),
        }
        self._saw(head.first, head.first)

    def _take_chunk(self, offset: int, size: int, frame: Frame) -> None:
        stage, rows, _ = CHUNK_HEADER.unpack_from(frame.body)
        detail = f"stage {stage.hex()}, chunk {frame.segment}, shard {frame.shard}, {rows} rows"
        self._list(offset, size, "SEGMENT", detail=detail)

    def _take_segment(self, offset: int, size: int, frame: Frame) -> None:
        if self.path.endswith(STAGES_SUFFIX) and len(frame.body) > CHUNK_HEADER.size:
            self._take_chunk(offset, size, frame)
            return
        header = decode_record_header(frame.body)
        self._saw(header.first_entry, header.end_entry)
        version = None
        if header.count and is_typed_record(segment := frame.body[RECORD_HEADER_BYTES:]):
            version = version_of(segment)
            typed = self.facts.setdefault("typed", {"rows": 0, "versions": []})
            typed["rows"] += header.count
            typed["versions"] = sorted({*typed["versions"], version})
        self._list(
            offset,
            size,
            "SEGMENT",
            first_entry=header.first_entry,
            count=header.count,
            block=header.block.hex(),
            segment=frame.segment,
            stored_at=iso_time(header.stored_at_us),
            schema_version=version,
            detail="stub: all rows were compacted away" if is_stub(frame.body[RECORD_HEADER_BYTES:]) else None,
        )

    def _take_status(self, body: bytes) -> None:
        status = decode_status(body)
        if status is None:
            raise BadFrame(f"a STATUS of {len(body)} bytes")
        self.status = status
        for bad in self.damage:
            bad.proven |= status.synced_bytes > bad.offset
        self.facts["synced"] = {"bytes": status.synced_bytes, "end": status.end_entry}
        if "marks" in self.facts:  # a journal has no entries
            self._saw(status.end_entry, status.end_entry)

    def _take_event(self, offset: int, size: int, name: str, body: bytes) -> None:
        """A RECORD is a small event in a log, or whatever a journal's owner wrote."""
        event = decode_event(body) if "marks" in self.facts else None
        if event is None:
            self._list(offset, size, name, detail=f"{len(body):,} bytes")
            return
        self._saw(event.entry, event.entry)
        if isinstance(event, BlockEnded):
            self._list(offset, size, "END", first_entry=event.entry, block=event.block.hex())
        elif isinstance(event, Tallied):
            self._list(offset, size, "TALLY", first_entry=event.entry, block=event.block.hex())
        elif isinstance(event, Compacted):
            gone = len(EntrySet.decode(event.bitmap))
            self.facts["compacted"] = {"entries": gone, "end": event.end}
            self._list(offset, size, "COMPACTED", first_entry=event.entry, detail=f"{gone:,} entries taken out")
        elif isinstance(event, Began):
            self._list(offset, size, "BEGAN", first_entry=event.first, detail=f"incarnation {event.name}")
        else:
            self._list(offset, size, "DROP", first_entry=event.entry, detail=f"kept from {event.kept:,}")

    def _saw(self, first: int, end: int) -> None:
        """Entries before ``first`` that no record held stood in the bad ranges in front of it."""
        for bad in self._open:
            bad.entry_end = first
        self._open.clear()
        self._entry = end

    def _list(
        self,
        offset: int,
        size: int,
        kind: str,
        *,
        first_entry: int | None = None,
        count: int | None = None,
        block: str | None = None,
        segment: int | None = None,
        stored_at: str | None = None,
        detail: str | None = None,
        schema_version: int | None = None,
    ) -> None:
        self.records_total += 1
        if len(self.records) < self._records_max:
            self.records.append(
                {
                    "offset": offset,
                    "size": size,
                    "kind": kind,
                    "first_entry": first_entry,
                    "count": count,
                    "block": block,
                    "segment": segment,
                    "stored_at": stored_at,
                    "detail": detail,
                    "schema_version": schema_version,
                }
            )
