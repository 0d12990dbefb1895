"""Which refill files a person means: a path, a slot, a file's name, or the beginning of a block."""

from __future__ import annotations

from pathlib import Path

from headpond.model.errors import BadRequest
from headpond.producer.refill.folder import FileName, files, slots
from headpond.storage.folder_lock import REFILL_FOLDER, refill_root
from headpond.storage.os_disk import OsDisk

BLOCK_DIGITS_MIN = 4


def root_of(state: Path | None) -> Path | None:
    """The folder of all slots; None where nothing was ever spilled. One that was named must exist."""
    if state is not None and not state.is_dir():
        raise BadRequest(
            f"there is no state folder {state}",
            hint="Name the folder that HEADPOND_STATE names for the producer, or leave --state out.",
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
    """The files of a slot, or the one file that is meant; ``BadRequest`` says what was looked for."""
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
    hint = f"`headpond refill list` shows what there is{'' if state is None else f' in {state}'}."
    if found:
        raise BadRequest(
            f"{len(found)} refill files begin with block {target}", hint="Write more of its digits."
        )
    raise BadRequest(f"there is no refill file, slot or block {target}", hint=hint)


def _files_of(folder: Path) -> list[Path]:
    found = [folder / name for name in files(OsDisk(folder), "")]
    if not found:
        inside = (
            " Name the slot in it." if folder.name == REFILL_FOLDER or (folder / REFILL_FOLDER).is_dir() else ""
        )
        raise BadRequest(
            f"there are no refill files in {folder}", hint=f"All of it is delivered, or none was.{inside}"
        )
    return found


def _is_meant(path: Path, target: str) -> bool:
    name = FileName.parse(path.name)
    begins = (
        len(target) >= BLOCK_DIGITS_MIN and name is not None and name.block.hex().startswith(target.lower())
    )
    return path.name == target or begins
