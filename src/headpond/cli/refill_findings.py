"""What ``headpond inspect`` finds in a refill file; the same surface as ``Findings``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from headpond.cli.refill_report import damage_object
from headpond.files.disk import DiskFile
from headpond.files.frame_file import Bad, Found, scan
from headpond.files.salvage import SalvagedFile
from headpond.model.errors import BadData, BadFrame
from headpond.transport.refill_damage import Damage
from headpond.transport.refill_form import SUFFIX, Rejections, Status, decode_body, rows_of
from headpond.transport.refill_scan import RefillImage, scan_refill
from headpond.wire.frame import FrameType

_ONLY_REFILLS = frozenset({FrameType.DESTINATIONS, FrameType.SNAPSHOT, FrameType.REJECT})
_NO_REFILLS = frozenset({FrameType.MARKS, FrameType.RECORD, FrameType.INDEX})
_LOOKED_AT = 8
"""The second frame tells what a file is; where it is damaged, one soon behind it may."""


def is_refill(file: DiskFile, name: str) -> bool:
    """By its frames; by its name only where these do not tell."""
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
    def __init__(self, path: str, file: DiskFile, records_max: int, note: Status | None = None) -> None:
        """``note`` is what stands beside the file."""
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
            "shards": 1 << image.shard_power,
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
            return _status_text(decode_body(body, Status))
        if type_ == FrameType.REJECT:
            return "; ".join(
                f"{each.destination} shard {each.shard} segments {each.first}–{each.end - 1}: "
                f"{each.code or 'to be sent again'}"
                for each in decode_body(body, Rejections).entries
            )
    except BadFrame as error:
        return f"unreadable: {error}"
    return None


def _status_text(status: Status) -> str:
    told = [f"kept {status.kept_bytes:,} bytes"]
    for name, floors in (status.confirmed or {}).items():
        shards = ", ".join(f"{shard}: {floor}" for shard, floor in floors.items())
        told.append(f"{name} confirmed before {shards}" if shards else f"{name} confirmed nothing")
    if status.closed is not None:
        told.append("CLOSED, next " + ", ".join(f"{shard}: {n}" for shard, n in status.closed.items()))
    return "; ".join(told)
