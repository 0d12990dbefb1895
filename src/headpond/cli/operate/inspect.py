"""``headpond inspect FILE``: the contents of a frame file, and its damage.

It only reads, so it can look at the files of a running node; a write in progress shows as a torn tail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from headpond.broker.staging.stage_file import CHUNK_HEADER
from headpond.broker.staging.stage_file import SUFFIX as STAGES_SUFFIX
from headpond.cli.command import command
from headpond.cli.data.refill_files import damage_object
from headpond.cli.options import argument, option
from headpond.cli.output import Output, iso_time, print_fields, print_table
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadData, BadFrame, BadRequest, BadSegment, SchemaMismatch
from headpond.node.data_folder import NODE_FILE
from headpond.producer.refill.form import SUFFIX, Rejections, decode_body, read_note, rows_of
from headpond.producer.refill.form import Status as RefillStatus
from headpond.producer.refill.scan import Damage, RefillImage, scan_refill
from headpond.storage.append import decode_status
from headpond.storage.disk import DiskFile, SalvagedFile
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
from headpond.storage.log.read import salvaged
from headpond.storage.os_disk import OsDisk
from headpond.storage.seal import SealedFile, decode_sealed, read_seal
from headpond.wire.frame import Frame, FrameType
from headpond.wire.plain.packed import facts_of, is_packed
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader, decode_record_header, is_stub
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
    output.show(findings.as_object(), partial(_print, findings), ok=not findings.damage)


def _look(path: Path, records_max: int) -> Findings:
    if not path.is_file():
        kind = "is a folder; give a file in it" if path.is_dir() else "does not exist or is not a file"
        raise BadRequest(
            f"{path} {kind}", hint="Logs are in DATA/…/*.log, journals in *.journal, refills in *.refill."
        )
    disk = OsDisk(path.parent)
    try:
        file = disk.open(path.name)
        sealed = _sealed(path)
    except OSError as error:
        hint = "Run as the user that runs the node."
        raise BadRequest(f"cannot read {path}: {error.strerror}", hint=hint) from error
    findings: Findings
    try:
        if is_refill(file, path.name):
            findings = RefillFindings(path, file, records_max, read_note(disk, path.name))
        else:
            findings = LogFindings(path, file, records_max, sealed)
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


def _print(findings: Findings) -> None:
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
        print(f"\nDAMAGED: bytes {bad.offset:,}–{bad.end - 1:,}, {bad.text}")
    if not findings.damage:
        print("\nno damage: every checksum is correct")


def _print_records(findings: Findings) -> None:
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
    if value is None:
        return "-"
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
    readable: int = 0
    """How many of the entries a node reads all the same: segments of a packed record that are whole."""

    @property
    def text(self) -> str:
        if self.entry_first is None and self.entry_end is None:
            return "holding no known entries"
        if self.entry_first == self.entry_end:
            return "holding no entries"
        if self.entry_first is None:
            return f"holding entries before {self.entry_end:,}, if any"
        if self.entry_end is None:
            return f"holding what followed entry {self.entry_first - 1:,}"
        whole = f", of which {self.readable:,} can be read" if self.readable else ""
        return f"holding entries {self.entry_first:,}–{self.entry_end - 1:,}{whole}"

    def as_object(self) -> Record:
        known = self.entry_first is not None and self.entry_end is not None
        entries = [self.entry_first, self.entry_end] if known else None
        return {"offset": self.offset, "end": self.end, "entries": entries}


@dataclass
class RefillRange:
    """Bytes of a refill that are no frame; without ``damage``, a write that was cut short."""

    offset: int
    end: int
    damage: Damage | None = None

    @property
    def text(self) -> str:
        return "" if self.damage is None else f"{self.damage.why}; lost: {self.damage.lost}"

    def as_object(self) -> Record:
        return {"offset": self.offset, "end": self.end} if self.damage is None else damage_object(self.damage)


class Findings:
    """What a file contains: facts, frames by name, the first records, and bytes that are no frame."""

    columns: tuple[str, ...]
    """What a record shows besides its offset, size and kind."""

    def __init__(self, path: Path, file: DiskFile, records_max: int) -> None:
        self.path = str(path)
        self.bytes = file.size()
        self.facts: Record = {}
        self.frames: Counter[str] = Counter()
        self.records: list[Record] = []
        self.records_total = 0
        self.damage: list[Any] = []
        self.torn: list[Any] = []
        self.end = 0
        """Of the last frame or bad range."""
        self.records_max = records_max

    @property
    def reserved_bytes(self) -> int:
        """Zeros behind everything: room reserved ahead of writing, or left by a power cut."""
        return max(0, self.bytes - self.end)

    def as_object(self) -> Record:
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

    def list_record(self, item: Found, kind: str, **values: object) -> None:
        self.records_total += 1
        if len(self.records) < self.records_max:
            place = {"offset": item.offset, "size": item.size, "kind": kind}
            self.records.append(place | dict.fromkeys(self.columns) | values)


class LogFindings(Findings):
    """Of a log, journal or index file, or a seal.

    Bytes that are no frame are a torn tail or damage. A log file that another one follows was closed, so
    nothing in it can be a write cut short. ``sealed`` is how a clean stop left the file.
    """

    columns = ("first_entry", "count", "block", "segment", "stored_at", "detail", "schema_version")

    def __init__(self, path: Path, file: DiskFile, records_max: int, sealed: SealedFile | None) -> None:
        super().__init__(path, file, records_max)
        if sealed is not None:
            self.facts["sealed"] = {"bytes": sealed.bytes, "end": sealed.next}
        self._entry: int | None = None
        self._open: list[BadRange] = []
        """Bad ranges that no frame with an entry number has followed yet."""
        item: Bad | Found | None = None
        for item in scan(file):
            self.end = item.end
            if isinstance(item, Bad):
                self._take_bad(item.offset, item.end, looks_torn=looks_torn(file, item))
                shard = self.facts.get("title", {}).get("shard", 0)
                whole = salvaged(file, item.offset, item.end, shard)
                self.damage[-1].readable = sum(each.header.count for each in whole)
            else:
                self._take(item)
        entry_limit = _next_file_entry(path)
        if entry_limit is not None:
            self._pass_entries(entry_limit, entry_limit)
            return
        if isinstance(item, Bad) and looks_torn(file, item, last=True):
            self.damage[-1].looks_torn = True
        if sealed is not None:
            self._take_seal(sealed)
        # As in recovery, bytes that were recorded as synced are not torn.
        self.torn = [bad for bad in self.damage if not bad.proven and bad.looks_torn]
        self.damage = [bad for bad in self.damage if bad not in self.torn]

    def _take_bad(self, offset: int, end: int, *, looks_torn: bool = False, proven: bool = False) -> None:
        bad = BadRange(offset, end, self._entry, looks_torn=looks_torn, proven=proven)
        self.damage.append(bad)
        self._open.append(bad)

    def _take_seal(self, sealed: SealedFile) -> None:
        """A clean stop made everything durable, so bytes that are missing or unreadable are damage."""
        for bad in self.damage:
            bad.proven |= bad.offset < sealed.bytes
        if self.end < sealed.bytes:
            self._take_bad(self.end, sealed.bytes, proven=True)
        if "marks" in self.facts and (self._entry or 0) < sealed.next:
            self._pass_entries(sealed.next, sealed.next)

    # --- frames -------------------------------------------------------------------------------------

    def _take(self, item: Found) -> None:
        name = FrameType(item.frame.type).name
        self.frames[name] += 1
        try:
            self._take_frame(item, name)
        except (BadFrame, BadSegment, SchemaMismatch) as error:
            self.list_record(item, name, detail=f"unreadable: {error}")

    def _take_frame(self, item: Found, name: str) -> None:
        frame = item.frame
        if frame.type == FrameType.TITLE:
            self._take_title(frame)
        elif frame.type == FrameType.MARKS:
            self._take_marks(frame.body)
        elif frame.type == FrameType.SEGMENT:
            self._take_segment(item)
        elif frame.type == FrameType.STATUS:
            self._take_status(frame.body)
        elif frame.type == FrameType.INDEX:
            index = decode_index(frame.body)
            points = len(index.points)
            self.facts["index"] = {"first": index.first, "end": index.end_entry, "points": points}
        elif (sealed := decode_sealed(frame)) is not None:
            detail = f"{sealed.path}: {sealed.bytes:,} bytes, next {sealed.next:,}"
            self.list_record(item, "SEALED", detail=detail)
        else:
            self._take_event(item, name)

    def _take_title(self, frame: Frame) -> None:
        _, power, title = decode_title(frame.body)
        uuid = title.topic_uuid.hex()
        self.facts["title"] = {"topic": title.topic, "uuid": uuid, "shard": frame.shard, "shards": 2**power}
        if title.schema is not None:
            columns = shown_schema(decode_schema(title.schema))
            self.facts["schema"] = {"version": len(title.schemas), "columns": columns}

    def _take_marks(self, body: bytes) -> None:
        head, damaged, incarnations, marks = decode_marks_body(body)
        self.facts["marks"] = {
            "incarnation": incarnations.at(head.first),
            "first": head.first,
            "kept": head.kept,
            "blocks": len(Marks.decode(marks)),
            "damaged_before": len(damaged),
        }
        self._pass_entries(head.first, head.first)

    def _take_segment(self, item: Found) -> None:
        frame = item.frame
        if self.path.endswith(STAGES_SUFFIX) and len(frame.body) > CHUNK_HEADER.size:
            stage, rows, _ = CHUNK_HEADER.unpack_from(frame.body)
            detail = f"stage {stage.hex()}, chunk {frame.segment}, shard {frame.shard}, {rows} rows"
            self.list_record(item, "SEGMENT", detail=detail)
            return
        header = decode_record_header(frame.body)
        self._pass_entries(header.first_entry, header.end_entry)
        segment = frame.body[RECORD_HEADER_BYTES:]
        version = None
        if header.count and is_typed_record(segment):
            version = version_of(segment)
            typed = self.facts.setdefault("typed", {"rows": 0, "versions": []})
            typed["rows"] += header.count
            typed["versions"] = sorted({*typed["versions"], version})
        self.list_record(
            item,
            "SEGMENT",
            first_entry=header.first_entry,
            count=header.count,
            block=header.block.hex(),
            segment=frame.segment,
            stored_at=iso_time(header.stored_at_us),
            schema_version=version,
            detail=_detail_of(header, segment),
        )

    def _take_status(self, body: bytes) -> None:
        status = decode_status(body)
        if status is None:
            raise BadFrame(f"a STATUS of {len(body)} bytes")
        for bad in self.damage:
            bad.proven |= status.synced_bytes > bad.offset
        self.facts["synced"] = {"bytes": status.synced_bytes, "end": status.end_entry}
        if "marks" in self.facts:  # a journal has no entries
            self._pass_entries(status.end_entry, status.end_entry)

    def _take_event(self, item: Found, name: str) -> None:
        """A RECORD is a small event in a log; in a journal its meaning is up to the owner."""
        body = item.frame.body
        event = decode_event(body) if "marks" in self.facts else None
        if event is None:
            self.list_record(item, name, detail=f"{len(body):,} bytes")
            return
        self._pass_entries(event.entry, event.entry)
        if isinstance(event, BlockEnded | BlockTallied):
            kind = "END" if isinstance(event, BlockEnded) else "TALLY"
            self.list_record(item, kind, first_entry=event.entry, block=event.block.hex())
        elif isinstance(event, Compacted):
            gone = len(EntrySet.decode(event.bitmap))
            self.facts["compacted"] = {"entries": gone, "end": event.end}
            self.list_record(item, "COMPACTED", first_entry=event.entry, detail=f"{gone:,} entries taken out")
        elif isinstance(event, Began):
            self.list_record(item, "BEGAN", first_entry=event.first, detail=f"incarnation {event.name}")
        else:
            self.list_record(item, "DROP", first_entry=event.entry, detail=f"kept from {event.kept:,}")

    def _pass_entries(self, first: int, end: int) -> None:
        """Entries before ``first`` that no record holds were in the bad ranges before it."""
        for bad in self._open:
            bad.entry_end = first
        self._open.clear()
        self._entry = end


def _detail_of(header: RecordHeader, segment: bytes) -> str | None:
    """What a record is that does not hold one segment."""
    if is_stub(segment):
        return "stub: all rows were compacted away"
    if header.count and is_packed(segment):
        facts = facts_of(segment)
        return f"packed: {len(facts.counts):,} segments of {len(facts.blocks):,} blocks"
    return None


def _next_file_entry(path: Path) -> int | None:
    """The first entry of the log file that follows this one; None for the last, or for another kind of file."""
    mine = parse_name(path.name)
    if mine is None:
        return None
    firsts = (parse_name(each.name) for each in path.parent.iterdir())
    return min((first for first in firsts if first is not None and first > mine), default=None)


# --- refills ----------------------------------------------------------------------------------------

_ONLY_REFILLS = frozenset({FrameType.DESTINATIONS, FrameType.SNAPSHOT, FrameType.REJECT})
_NO_REFILLS = frozenset({FrameType.MARKS, FrameType.RECORD, FrameType.INDEX})
_FRAMES_TRIED = 8
"""The second frame shows what kind a file is; if it is damaged, one of the next frames does."""


def is_refill(file: DiskFile, name: str) -> bool:
    """By its frames; by its name only if these do not decide."""
    for item in islice(scan(file), _FRAMES_TRIED):
        if not isinstance(item, Bad) and item.frame.type in _ONLY_REFILLS | _NO_REFILLS:
            return item.frame.type in _ONLY_REFILLS
    return name.endswith(SUFFIX)


class RefillFindings(Findings):
    columns = ("shard", "segment", "rows", "detail")

    def __init__(self, path: Path, file: DiskFile, records_max: int, note: RefillStatus | None) -> None:
        """``note`` is the status in the file beside it."""
        super().__init__(path, file, records_max)
        self._first: int | None = None
        try:
            self._take_image(scan_refill(SalvagedFile(file), self._take, note=note))
        except BadData as error:
            self.facts["fault"] = error.message
            damage = Damage(0, self._first or self.bytes, "its beginning cannot be read", unnamed=0)
            self.damage = [RefillRange(0, damage.end, damage)]

    def _take_image(self, image: RefillImage) -> None:
        title = image.title
        self.facts["title"] = {
            "topic": title.topic,
            "uuid": title.topic_uuid.hex(),
            "producer": title.producer,
            "block": image.block.hex(),
            "shards": None if image.shard_power is None else 1 << image.shard_power,
        }
        self.facts["destinations"] = list(image.claims.destinations)
        self.facts["refill"] = {
            "segments": image.index.count,
            "rows": image.index.rows,
            "refused": sum(each.end - each.first for each in image.claims.refusals),
            "kept_bytes": image.proven_bytes,
        }
        if image.closed is not None:
            self.facts["closed"] = {str(shard): number for shard, number in image.closed.items()}
        self.damage = [RefillRange(each.offset, each.end, each) for each in image.damage]
        self.end = image.end + image.torn_bytes
        if image.torn_bytes:
            self.torn = [RefillRange(image.end, self.end)]

    def _take(self, item: Found) -> None:
        frame = item.frame
        self._first = item.offset if self._first is None else self._first
        known = frame.type in FrameType.__members__.values()
        name = FrameType(frame.type).name if known else f"TYPE {frame.type}"
        self.end = item.end
        self.frames[name] += 1
        if len(self.records) >= self.records_max:
            self.records_total += 1  # without a look into it
            return
        bulky = frame.type in (FrameType.SEGMENT, FrameType.SNAPSHOT)
        self.list_record(
            item,
            name,
            shard=frame.shard if bulky else None,
            segment=frame.segment if bulky else None,
            rows=rows_of(frame.body) if frame.type == FrameType.SEGMENT else None,
            detail=_detail(frame.type, frame.body),
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
