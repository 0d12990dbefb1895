"""``headpond inspect FILE``: the contents of a frame file, and its damage.

It only reads, so it can look at the files of a running node; a write in progress shows as a torn tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from headpond.broker.staging.stage_file import CHUNK_HEADER
from headpond.broker.staging.stage_file import SUFFIX as STAGES_SUFFIX
from headpond.cli.command import command
from headpond.cli.data.refill_files import damage_object
from headpond.cli.options import argument, option
from headpond.cli.output import EXIT_ERROR, Output, iso_time, print_fields, print_table
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadData, BadFrame, BadRequest, BadSegment, SchemaMismatch
from headpond.node.data_folder import NODE_FILE
from headpond.producer.refill.form import SUFFIX, Rejections, decode_body, read_note, rows_of
from headpond.producer.refill.form import Status as RefillStatus
from headpond.producer.refill.losses import Damage
from headpond.producer.refill.scan import RefillImage, scan_refill
from headpond.storage.append import SyncStatus, decode_status
from headpond.storage.disk import DiskFile
from headpond.storage.frame_file import Bad, Found, looks_torn, scan
from headpond.storage.log.format import (
    Began,
    BlockEnded,
    BlockTallied,
    Compacted,
    decode_event,
    decode_marks_body,
    parse_name,
)
from headpond.storage.log.index import decode_index
from headpond.storage.log.marks import Marks
from headpond.storage.os_disk import OsDisk
from headpond.storage.salvage import SalvagedFile
from headpond.storage.seal import SealedFile, decode_sealed, read_seal
from headpond.wire.frame import Frame, FrameType
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header, is_stub
from headpond.wire.title import decode_title
from headpond.wire.typed.record import is_typed_record, version_of
from headpond.wire.typed.schema import decode_schema, shown_schema


@command()
def inspect(
    output: Output,
    file: Annotated[Path, argument("FILE", "A log, journal, index or refill file, or SEAL.")],
    records: Annotated[int, option("--records", "N", "List the first N records.", min=0)] = 20,
) -> None:
    """Show the contents of a data file and verify every checksum. Exits with 1 if the file is damaged.

    It only reads. In a file of a running node, the record being written can show as a torn tail.
    """
    findings = _look(file, records)
    output.show(findings.as_object(), partial(_print, findings))
    if findings.damage:
        raise typer.Exit(EXIT_ERROR)


def _look(path: Path, records_max: int) -> Findings | RefillFindings:
    if not path.is_file():
        kind = "is a folder; give a file in it" if path.is_dir() else "does not exist or is not a file"
        raise BadRequest(
            f"{path} {kind}", hint="Logs are in DATA/…/*.log, journals in *.journal, refills in *.refill."
        )
    try:
        file = OsDisk(path.parent).open(path.name)
        sealed = _sealed(path)
    except OSError as error:
        hint = "Run as the user that runs the node."
        raise BadRequest(f"cannot read {path}: {error.strerror}", hint=hint) from error
    try:
        if is_refill(file, path.name):
            note = read_note(OsDisk(path.parent), path.name)
            findings: Findings | RefillFindings = RefillFindings(str(path), file, records_max, note)
        else:
            findings = _scan(path, file, records_max, sealed)
    finally:
        file.close()
    if not findings.frames and findings.bytes:
        raise BadFrame(
            f"no frame was found in the {findings.bytes:,} bytes of {path}",
            hint="It is not a log, journal, index or refill file, or all of it is damaged.",
        )
    return findings


def _sealed(path: Path) -> SealedFile | None:
    """The entry of the file in the seal of the last clean stop, if its data folder has one."""
    place = path.resolve()
    for folder in place.parents:
        if (folder / NODE_FILE).is_file():
            return read_seal(OsDisk(folder)).get(place.relative_to(folder).as_posix())
    return None


def _scan(path: Path, file: DiskFile, records_max: int, sealed: SealedFile | None) -> Findings:
    findings = Findings(str(path), file.size(), records_max, _next_file_entry(path), sealed)
    item: Bad | Found | None = None
    for item in scan(file):
        if isinstance(item, Bad):
            findings.take_bad(item, looks_torn=looks_torn(file, item))
        else:
            findings.take(item)
    torn = isinstance(item, Bad) and looks_torn(file, item, last=True)
    findings.finish(tail_looks_torn=torn)
    return findings


def _next_file_entry(path: Path) -> int | None:
    """The first entry of the log file that follows this one; None for the last, or for another kind of file."""
    mine = parse_name(path.name)
    if mine is None:
        return None
    firsts = (parse_name(each.name) for each in path.parent.iterdir())
    return min((first for first in firsts if first is not None and first > mine), default=None)


def _print(findings: Findings | RefillFindings) -> None:
    fields: list[tuple[str, object]] = [("file", findings.path), ("bytes", findings.bytes)]
    fields += [(name.replace("_", " "), _text(value)) for name, value in findings.facts.items()]
    fields.append(("frames", _text(findings.frames) or "none"))
    if findings.reserved_bytes:
        fields.append(("reserved", f"{findings.reserved_bytes:,} bytes of zeros at the end"))
    print_fields(fields)
    _print_records(findings)
    for bad in findings.torn:
        place = f"bytes {bad.offset:,}–{bad.end - 1:,}"
        print(
            f"\ntorn tail: {place} come after the last recorded sync: an unfinished write, or one in progress"
        )
    for bad in findings.damage:
        print(f"\nDAMAGED: bytes {bad.offset:,}–{bad.end - 1:,}, {bad.entries_text}")
    if not findings.damage:
        print("\nno damage: every checksum is correct")


def _print_records(findings: Findings | RefillFindings) -> None:
    if not findings.records:
        return
    print()
    # Columns that no record fills are left out: a journal has no entries.
    columns = [name for name in findings.records[0] if any(each[name] is not None for each in findings.records)]
    rows = [[_short(record[name]) for name in columns] for record in findings.records]
    print_table([name.replace("_", " ").upper() for name in columns], rows)
    left = findings.records_total - len(findings.records)
    if left:
        print(f"… and {left:,} more; --records {findings.records_total} lists all")


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_text(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else value


def _short(value: Any) -> Any:
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 32 else value


Record = dict[str, Any]


@dataclass
class BadRange:
    """Bytes that are no frame, and the entries that they held, as far as the frames around them show."""

    offset: int
    end: int
    entry_first: int | None = None
    entry_end: int | None = None
    looks_torn: bool = False
    """Whether the bytes look like a write that was cut short, rather than like rot."""
    proven: bool = False
    """Whether a later STATUS records that they were synced."""

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
    """Takes the items of ``scan`` in order; then ``finish`` distinguishes a torn tail from damage.

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
        self.status: SyncStatus | None = None
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
        """Bad ranges that no frame with an entry number has followed yet."""

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
        """As in recovery, bytes that were recorded as synced, or are in a closed file, are not torn."""
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
        """A clean stop made everything durable, so bytes that are missing or unreadable are damage."""
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
        """A RECORD is a small event in a log; in a journal its meaning is up to the owner."""
        event = decode_event(body) if "marks" in self.facts else None
        if event is None:
            self._list(offset, size, name, detail=f"{len(body):,} bytes")
            return
        self._saw(event.entry, event.entry)
        if isinstance(event, BlockEnded):
            self._list(offset, size, "END", first_entry=event.entry, block=event.block.hex())
        elif isinstance(event, BlockTallied):
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
        """Entries before ``first`` that no record holds were in the bad ranges before it."""
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


_ONLY_REFILLS = frozenset({FrameType.DESTINATIONS, FrameType.SNAPSHOT, FrameType.REJECT})
_NO_REFILLS = frozenset({FrameType.MARKS, FrameType.RECORD, FrameType.INDEX})
_LOOKED_AT = 8
"""The second frame shows what kind a file is; if it is damaged, one of the next frames does."""


def is_refill(file: DiskFile, name: str) -> bool:
    """By its frames; by its name only if these do not decide."""
    for item in islice(scan(file), _LOOKED_AT):
        if not isinstance(item, Bad) and item.frame.type in _ONLY_REFILLS | _NO_REFILLS:
            return item.frame.type in _ONLY_REFILLS
    return name.endswith(SUFFIX)


@dataclass
class BadPlace:
    offset: int
    end: int
    damage: Damage | None = None

    @property
    def entries_text(self) -> str:
        return "" if self.damage is None else f"{self.damage.why}; lost: {self.damage.lost}"

    def as_object(self) -> dict[str, Any]:
        return {"offset": self.offset, "end": self.end} if self.damage is None else damage_object(self.damage)


class RefillFindings:
    def __init__(self, path: str, file: DiskFile, records_max: int, note: RefillStatus | None = None) -> None:
        """``note`` is the status in the file beside it."""
        self.path = path
        self.bytes = file.size()
        self.facts: dict[str, Any] = {}
        self.frames: dict[str, int] = {}
        self.records: list[dict[str, Any]] = []
        self.records_total = 0
        self.damage: list[BadPlace] = []
        self.torn: list[BadPlace] = []
        self._records_max = records_max
        self._first: int | None = None
        self._end = 0
        try:
            self._take_image(scan_refill(SalvagedFile(file), self._take, note=note))
        except BadData as error:
            self.facts["fault"] = error.message
            damage = Damage(0, self._first or self.bytes, "its beginning cannot be read", unnamed=0)
            self.damage.append(BadPlace(0, damage.end, damage))

    @property
    def reserved_bytes(self) -> int:
        """Zeros behind everything, as a power cut may leave them."""
        return max(0, self.bytes - self._end)

    def as_object(self) -> dict[str, Any]:
        return {
            "file": self.path,
            "bytes": self.bytes,
            **self.facts,
            "frames": self.frames,
            "records_total": self.records_total,
            "records": self.records,
            "reserved_bytes": self.reserved_bytes,
            "torn": [each.as_object() for each in self.torn],
            "damage": [each.as_object() for each in self.damage],
        }

    def _take_image(self, image: RefillImage) -> None:
        title = image.title
        self.facts["title"] = {
            "topic": title.topic,
            "uuid": title.topic_uuid.hex(),
            "producer": title.producer,
            "block": image.block.hex(),
            "shards": None if image.shard_power is None else 1 << image.shard_power,
        }
        self.facts["destinations"] = list(image.destinations)
        self.facts["refill"] = {
            "segments": image.index.count,
            "rows": image.index.rows,
            "refused": sum(each.end - each.first for each in image.claims.refusals),
            "kept_bytes": image.proven_bytes,
        }
        if image.closed is not None:
            self.facts["closed"] = {str(shard): number for shard, number in image.closed.items()}
        self.damage = [BadPlace(each.offset, each.end, each) for each in image.damage]
        self._end = image.end + image.torn_bytes
        if image.torn_bytes:
            self.torn = [BadPlace(image.end, self._end)]

    def _take(self, item: Found) -> None:
        frame = item.frame
        self._first = item.offset if self._first is None else self._first
        self._end = item.end
        known = frame.type in FrameType.__members__.values()
        name = FrameType(frame.type).name if known else f"TYPE {frame.type}"
        self.frames[name] = self.frames.get(name, 0) + 1
        self.records_total += 1
        if len(self.records) >= self._records_max:
            return
        bulky = frame.type in (FrameType.SEGMENT, FrameType.SNAPSHOT)
        self.records.append(
            {
                "offset": item.offset,
                "size": item.size,
                "kind": name,
                "shard": frame.shard if bulky else None,
                "segment": frame.segment if bulky else None,
                "rows": rows_of(frame.body) if frame.type == FrameType.SEGMENT else None,
                "detail": _detail(frame.type, frame.body),
            }
        )


def _detail(type_: int, body: bytes) -> str | None:
    try:
        if type_ == FrameType.STATUS:
            return _status_text(decode_body(body, RefillStatus))
        if type_ == FrameType.REJECT:
            return "; ".join(
                f"{each.destination} shard {each.shard} segments {each.first}–{each.end - 1}: "
                f"{each.code or 'to be sent again'}"
                for each in decode_body(body, Rejections).entries
            )
    except BadFrame as error:
        return f"unreadable: {error}"
    return None


def _status_text(status: RefillStatus) -> str:
    parts = [f"kept {status.kept_bytes:,} bytes"]
    for name, floors in (status.confirmed or {}).items():
        shards = ", ".join(f"{shard}: {floor}" for shard, floor in floors.items())
        parts.append(f"{name} confirmed before {shards}" if shards else f"{name} confirmed nothing")
    if status.closed is not None:
        parts.append("CLOSED, next " + ", ".join(f"{shard}: {n}" for shard, n in status.closed.items()))
    return "; ".join(parts)
