"""What is told of a refill file: by ``headpond refill list`` and ``show``, as text or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headpond.cli.output import iso_time
from headpond.client.lease_note import LeaseNote
from headpond.client.slot import lease_file_of
from headpond.io.folder_lock import holder
from headpond.io.os_disk import OsDisk
from headpond.model.errors import HeadpondError
from headpond.model.topic import TopicName
from headpond.transport.refill import Refill
from headpond.transport.refill_damage import Damage
from headpond.transport.refill_folder import FileName

Object = dict[str, Any]


@dataclass
class Report:
    """One file, read through."""

    path: Path
    bytes: int
    refill: Refill | None
    """Released: what it knows can be asked, its segments cannot be read."""
    fault: HeadpondError | None
    """Why it cannot be read at all."""
    in_use_by: int | None
    late: bool = False
    """Kept by an instance that another one took over from: only ``refill send --late`` sends it."""

    @property
    def slot(self) -> str:
        return self.path.parent.name

    @property
    def created_at(self) -> str | None:
        name = FileName.parse(self.path.name)
        return None if name is None else iso_time(name.created_us)

    @property
    def damaged(self) -> bool:
        return self.refill is None or bool(self.refill.damage)

    @property
    def undelivered(self) -> int:
        """Segments that at least one destination has neither confirmed nor refused, readable or not."""
        return 0 if self.refill is None else self.refill.undelivered

    def as_object(self) -> Object:
        """What ``list --json`` prints; every key is there for every file."""
        refill = self.refill
        title = refill.title if refill is not None else None
        return {
            "file": str(self.path),
            "slot": self.slot,
            "topic": title.topic if title is not None else None,
            "producer": (title.producer or None) if title is not None else None,
            "block": refill.block.hex() if refill is not None else None,
            "created_at": self.created_at,
            "segments": refill.index.count if refill is not None else None,
            "rows": refill.index.rows if refill is not None else None,
            "bytes": self.bytes,
            "destinations": _destinations(refill) if refill is not None else [],
            "in_use_by": self.in_use_by,
            "continuable": refill.continuable if refill is not None else False,
            "torn_bytes": refill.torn_bytes if refill is not None else 0,
            "damage": [damage_object(each) for each in refill.damage] if refill is not None else [],
            "error": self.fault.message if self.fault is not None else None,
            "late": self.late,
        }

    def details(self) -> Object:
        """What ``show --json`` adds."""
        refill = self.refill
        if refill is None:
            return {}
        return {
            "typed": refill.typed,
            "shards": 1 << refill.shard_power,
            "why_not_continuable": refill.why_not_continuable or None,
            "closed": refill.closed is not None,
            "segments_next": {str(shard): number for shard, number in refill.segments_next.items()},
            "shard_list": [_shard(refill, shard) for shard in refill.index.shards],
            "refusals": [
                {
                    "destination": each.destination,
                    "shard": each.shard,
                    "segments": [each.first, each.end],
                    "code": each.code,
                    "message": each.message,
                }
                for each in refill.claims.refusals
            ],
        }


def read_report(path: Path) -> Report:
    """Reads a file that exists, whatever state it is in; it is not changed."""
    refill = fault = None
    try:
        refill = Refill.open(OsDisk(path.parent), path.name)
        refill.release()
    except HeadpondError as error:
        fault = error
    late = refill is not None and _is_late(path, refill)
    return Report(path, path.stat().st_size, refill, fault, holder(path.parent), late)


def _is_late(path: Path, refill: Refill) -> bool:
    """As far as is known on this machine; the next producer asks the node too."""
    note = LeaseNote(lease_file_of(path.parent))
    return note.is_late(refill.title.epoch, refill.block, note.last)


def short_topic(topic: str) -> str:
    try:
        return TopicName.parse(topic).short
    except HeadpondError:  # a name of another time
        return topic


def damage_object(damage: Damage) -> Object:
    segments = None if damage.shard is None else [damage.first, damage.segments_end]
    return {
        "offset": damage.offset,
        "end": damage.end,
        "why": damage.why,
        "shard": damage.shard,
        "segments": segments,
        "unnamed": damage.unnamed,
    }


def _destinations(refill: Refill) -> list[Object]:
    return [{"destination": name, **refill.tally(name)._asdict()} for name in refill.destinations]


def _shard(refill: Refill, shard: int) -> Object:
    held = list(refill.index.held(shard))
    rows, size = refill.index.totals(shard, 0, held[-1][1]) if held else (0, 0)
    return {
        "shard": shard,
        "segments": [list(run) for run in held],
        "snapshots": list(refill.index.snapshots(shard)),
        "rows": rows,
        "bytes": size,
    }
