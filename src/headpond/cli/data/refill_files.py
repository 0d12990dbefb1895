"""Refill files on this disk: which ones an argument means, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headpond.client.produce.registration import LeaseNote
from headpond.client.produce.slot import lease_file_of
from headpond.model.errors import BadRequest, HeadpondError
from headpond.producer.refill.folder import FileName, files, slots
from headpond.producer.refill.refill import Refill
from headpond.producer.refill.scan import Damage
from headpond.shapes.convert import iso_time
from headpond.storage.folder_lock import REFILL_FOLDER, holder, refill_root
from headpond.storage.os_disk import OsDisk

BLOCK_DIGITS_MIN = 4


def root_of(state: Path | None) -> Path | None:
    """The folder of all slots; None if it does not exist. A state folder that is given must exist."""
    if state is not None and not state.is_dir():
        raise BadRequest(
            f"there is no state folder {state}",
            hint="Give the folder that the producer has in HEADPOND_STATE, or leave --state out.",
        )
    root = refill_root(state)
    return root if root.is_dir() else None


def all_files(root: Path | None) -> list[Path]:
    """Every refill file, slot by slot, oldest first."""
    if root is None:
        return []
    disk = OsDisk(root)
    return [root / path for slot in slots(disk) for path in files(disk, slot)]


def find_files(target: str, state: Path | None) -> list[Path]:
    """The files of a slot, or the one file that the argument means."""
    path = Path(target)
    if path.is_file():
        return [path]
    root = root_of(state)
    for folder in (path, *([root / target] if root is not None and "/" not in target else [])):
        if folder.is_dir():
            return _files_of(folder)
    found = [each for each in all_files(root) if _is_meant(each, target)]
    if len(found) == 1:
        return found
    hint = f"`headpond refill list` lists the files{'' if state is None else f' in {state}'}."
    if found:
        raise BadRequest(
            f"{len(found)} refill files begin with block {target}", hint="Give more digits of the block."
        )
    raise BadRequest(f"there is no refill file, slot or block {target}", hint=hint)


def _files_of(folder: Path) -> list[Path]:
    found = [folder / name for name in files(OsDisk(folder), "")]
    if not found:
        inside = (
            " Give a slot in this folder."
            if folder.name == REFILL_FOLDER or (folder / REFILL_FOLDER).is_dir()
            else ""
        )
        raise BadRequest(
            f"there are no refill files in {folder}",
            hint=f"Everything was delivered, or nothing was spilled.{inside}",
        )
    return found


def _is_meant(path: Path, target: str) -> bool:
    name = FileName.parse(path.name)
    begins = (
        len(target) >= BLOCK_DIGITS_MIN and name is not None and name.block.hex().startswith(target.lower())
    )
    return path.name == target or begins


# --- the contents of a file -------------------------------------------------------------------------

Object = dict[str, Any]


@dataclass
class Report:
    """What one file holds."""

    path: Path
    bytes: int
    refill: Refill | None
    """Released: its counts can be read, its segments cannot."""
    fault: HeadpondError | None
    """Why the file cannot be read at all."""
    in_use_by: int | None
    late: bool = False
    """Written by a producer instance that another one replaced: only ``refill send --late`` sends it."""

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

    def as_object(self) -> Object:
        """What ``list --json`` prints; every file has every key."""
        refill = self.refill
        return {
            "file": str(self.path),
            "slot": self.slot,
            "topic": refill and refill.title.topic,
            "producer": refill and (refill.title.producer or None),
            "block": refill and refill.block.hex(),
            "created_at": self.created_at,
            "segments": refill and refill.index.count,
            "rows": refill and refill.index.rows,
            "bytes": self.bytes,
            "destinations": _destinations(refill) if refill is not None else [],
            "in_use_by": self.in_use_by,
            "continuable": refill is not None and refill.continuable,
            "torn_bytes": refill.torn_bytes if refill is not None else 0,
            "damage": [damage_object(each) for each in refill.damage] if refill is not None else [],
            "error": self.fault and self.fault.message,
            "late": self.late,
        }

    def details(self) -> Object:
        """What ``show --json`` adds."""
        refill = self.refill
        if refill is None:
            return {}
        return {
            "typed": refill.typed,
            "shards": None if refill.shard_power is None else 1 << refill.shard_power,
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
    """Reads a file in any state, without changing it."""
    refill = fault = None
    try:
        refill = Refill.open(OsDisk(path.parent), path.name)
        refill.release()
    except HeadpondError as error:
        fault = error
    late = refill is not None and _is_late(path, refill)
    return Report(path, path.stat().st_size, refill, fault, holder(path.parent), late)


def read_reports(paths: list[Path]) -> Iterator[Report]:
    """Reads these files, except those that were delivered and removed meanwhile."""
    for path in paths:
        try:
            yield read_report(path)
        except FileNotFoundError:
            continue


def _is_late(path: Path, refill: Refill) -> bool:
    """As far as this machine knows; the next producer asks the node too."""
    slot = path.parent
    note = LeaseNote(OsDisk(slot.parent), lease_file_of(slot.name))
    return note.is_late(refill.title.epoch, refill.block, note.last)


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
