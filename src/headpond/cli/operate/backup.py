"""``headpond backup DIR`` and ``headpond restore BACKUP``: the data folder of a running node, copied.

``DIR`` gets one folder per backup, named by its time. A file that is the same as in the backup before is linked
to it. A folder without the suffix ``.partial`` is complete and synced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from headpond.cli.command import Node, command
from headpond.cli.operate.node import DATA_HELP, default_data_folder
from headpond.cli.options import argument, option
from headpond.cli.output import Output, progress_line, size
from headpond.cli.stdio import beside
from headpond.model.errors import BadData, BadRequest
from headpond.storage.os_disk import OsDisk

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.node.backup import CutFile

PARTIAL_SUFFIX = ".partial"
PART_BYTES = 1024 * 1024
DIR_HELP = "The folder of the backups. On another disk than the node's, it survives that disk."
BACKUP_HELP = "One backup, or the folder of the backups: then the newest."


class Copied(NamedTuple):
    backup: Path
    files: int
    bytes: int
    bytes_copied: int

    def as_object(self) -> dict[str, str | int]:
        return {**self._asdict(), "backup": str(self.backup)}


@command()
def backup(node: Node, folder: Annotated[Path, argument("DIR", DIR_HELP)]) -> None:
    """Copy the data of a running node to a new folder in DIR; files of the last backup are linked, not copied.

    The backup has everything that the node acknowledged before the command began. Run it on the node's machine,
    as the node's user. The node pauses writes while it links its files.
    """

    async def copy(admin: Admin) -> Copied:
        begun = await admin.begin_backup()
        cut = Path(begun.folder)
        if not os.access(cut, os.R_OK | os.X_OK):
            raise BadRequest(
                f"cannot read {cut}", hint="Run the command on the machine of the node, as the node's user."
            )
        if folder.resolve().is_relative_to(data := cut.parent.parent.resolve()):
            raise BadRequest(
                f"{folder} is in the data folder of the node, {data}: each backup would hold those before it",
                hint="Give a folder elsewhere, best on another disk.",
            )
        copied = await beside(lambda: _copy_cut(cut, folder))
        await admin.end_backup()
        return copied

    copied = node.ask(copy)
    text = f"backup in {copied.backup}: {copied.files:,} files, {size(copied.bytes)}"
    node.show(copied.as_object(), f"{text}; {size(copied.bytes_copied)} were new")


@command()
def restore(
    output: Output,
    source: Annotated[Path, argument("BACKUP", BACKUP_HELP)],
    data: Annotated[Path | None, option("--data", "DIR", DATA_HELP)] = None,
) -> None:
    """Copy a backup to an empty data folder. Then start a node with that folder."""
    from headpond.node.backup import FILES_NAME, read_cut
    from headpond.node.data_folder import NODE_FILE

    target = data or default_data_folder()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadRequest(f"{target} is not an empty folder", hint="Give a new folder with --data.")
    found = source if (source / FILES_NAME).exists() else _newest(source)
    if found is None:
        raise BadData(f"there is no backup in {source}", hint="`headpond backup` makes one.")
    files = read_cut(found)
    for each in files:
        if not (found / each.path).is_file() or (found / each.path).stat().st_size != each.bytes:
            raise BadData(f"{found / each.path} is missing or has another length", hint="Use another backup.")
    # A folder without NODE is no node's: the file comes last.
    with _progress(files) as count:
        for each in sorted(files, key=lambda file: file.path == NODE_FILE):
            _copy(found / each.path, target / each.path, each.bytes)
            count(each)
    _sync_folders(target, files)
    total = sum(each.bytes for each in files)
    result = {"backup": str(found), "data": str(target), "files": len(files), "bytes": total}
    output.show(result, f"restored {found} to {target}: {len(files):,} files, {size(total)}")


def _copy_cut(cut: Path, folder: Path) -> Copied:
    """Copies the files that the newest backup does not have, and links the others."""
    from headpond.node.backup import FILES_NAME, read_cut

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    last = _newest(folder)
    known = {each.path: each for each in read_cut(last)} if last is not None else {}
    name = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")
    partial = folder / f"{name}{PARTIAL_SUFFIX}"
    files = read_cut(cut)
    bytes_copied = 0
    with _progress(files) as count:
        for number, each in enumerate(files):
            if last is None or known.get(each.path) != each or not _link(last / each.path, partial / each.path):
                _copy(cut / str(number), partial / each.path, each.bytes)
                bytes_copied += each.bytes
            count(each)
    _copy(cut / FILES_NAME, partial / FILES_NAME, (cut / FILES_NAME).stat().st_size)
    _sync_folders(partial, files)
    done = folder / name
    partial.rename(done)
    OsDisk(folder).sync_folder("")
    for left in folder.glob(f"*{PARTIAL_SUFFIX}"):  # of a command that did not end
        shutil.rmtree(left)
    return Copied(done, len(files), sum(each.bytes for each in files), bytes_copied)


@contextmanager
def _progress(files: Sequence[CutFile]) -> Iterator[Callable[[CutFile], None]]:
    """A function that counts a file, and shows on a terminal how much there is."""
    total, done = sum(each.bytes for each in files), 0
    with progress_line(f"0 B of {size(total)}") as show:

        def count(file: CutFile) -> None:
            nonlocal done
            done += file.bytes
            if show is not None:
                show(f"{size(done)} of {size(total)}")

        yield count


def _newest(folder: Path) -> Path | None:
    """The last complete backup in a folder."""
    from headpond.node.backup import FILES_NAME

    found = [each for each in folder.glob(f"*/{FILES_NAME}") if not each.parent.name.endswith(PARTIAL_SUFFIX)]
    return max(found).parent if found else None


def _link(source: Path, target: Path) -> bool:
    """Whether the file system has links."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(source, target)
        return True
    return False


def _copy(source: Path, target: Path, length: int) -> None:
    """The first bytes of a file, synced."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with source.open("rb", buffering=0) as reader, os.fdopen(handle, "wb", buffering=0) as writer:
        left = length
        while left:
            part = reader.read(min(left, PART_BYTES))
            if not part:
                raise BadData(f"{source} has fewer than {length:,} bytes")
            writer.write(part)
            left -= len(part)
        os.fsync(writer.fileno())


def _sync_folders(root: Path, files: Iterable[CutFile]) -> None:
    """Makes the names of the files durable."""
    folders = {root, root.parent}
    for each in files:
        folders.update(root / above for above in Path(each.path).parents)
    for folder in folders:
        OsDisk(folder).sync_folder("")
