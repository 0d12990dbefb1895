"""The data folder: its owner, and the version that wrote it.

::

    NODE            the node's id: one RECORD frame, written once
    LOCK            locked by the running node
    SEAL            how long each file was at the last clean stop (storage/seal.py)
    catalog/        which topics exist (a journal)
    settlements/    which subscriptions exist, and the settlements of their entries (a journal)
    tokens/         the tokens (a journal)
    admin_log/      the log of administration (a journal)
    peers/          links to other nodes (a journal)
    writers/        staged writes and their commits (a journal)
    stages/         rows that are staged and not in a topic yet
    runs/           the number of this run, and whether the last one ended cleanly (a journal)
    commits/        writes of many logs that one sync made durable
    topics/UUID/SHARD/   the logs
    backup/         links to the files of a backup that is under way (backup.py)
    cluster/        how far the folder of a cluster's member is; a folder that is being copied has no NODE yet
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadData, BadFrame, DiskFull, HeadpondError
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, is_disk_full, read_whole
from headpond.storage.os_disk import OsDisk
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode

FORMAT = 1
NODE_FILE = "NODE"
CLUSTER_FOLDER = "cluster"
_HARMLESS = ("LOCK", f"{NODE_FILE}.new", "lost+found")


class NodeIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    format: int
    node: str
    created_at_us: int


def open_error(folder: Path, error: OSError) -> HeadpondError:
    """The error of a data folder that cannot be used: which file, how much room there is, what to do."""
    file = f": {error.filename}" if error.filename and Path(error.filename) != folder else ""
    why = error.strerror or error if folder.is_dir() or not folder.exists() else "it is not a folder"
    reason = f"cannot use the data folder {folder}{file}: {why}"
    if not is_disk_full(error):
        return BadData(reason)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    room = os.statvfs(there)
    free = f"{room.f_bavail * room.f_frsize:,} bytes and {room.f_favail:,} files are free there"
    hint = f"Free some room (`df {there}`), or move the folder to a larger disk and name it with --data."
    return DiskFull(f"{reason}; {free}", hint=hint)


class NodeDisk(OsDisk):
    """The disk of a node: a ``MeasuredDisk``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._free_bytes: int | None = None
        self._measured_s = 0.0
        self.measure()

    def free_bytes(self) -> int:
        if self._free_bytes is None:
            raise OSError("the free room of the disk is unknown")
        return self._free_bytes

    def measure(self, after_s: float = 0.0) -> None:
        """Measures the free room, unless the last measurement is younger than ``after_s``."""
        now_s = time.monotonic()
        if now_s - self._measured_s >= after_s:
            self._measured_s = now_s
            try:
                self._free_bytes = super().free_bytes()
            except OSError:
                self._free_bytes = None

    def when_durable(self, then: Callable[[OSError | None], None]) -> None:
        """A sync returns when it is done."""
        then(None)


def lock_folder(folder: Path) -> NodeDisk:
    """Opens and locks a data folder. Nothing is written, not even a lock, to a folder of other files."""
    try:
        disk = NodeDisk(folder)
        names = disk.list("")
        empty = CLUSTER_FOLDER in names or all(name in _HARMLESS for name in names)
        if not disk.exists(NODE_FILE) and not empty:
            raise BadData(f"the data folder {folder} is not empty and has no NODE file, so it is not a node's")
        disk.lock()
    except OSError as error:
        raise open_error(folder, error) from error
    return disk


def check_no_member(disk: NodeDisk, hint: str) -> None:
    if CLUSTER_FOLDER in disk.list(""):
        raise BadData(
            f"{disk.root} is the folder of a cluster's member, which changes only with the group's stream",
            hint=hint,
        )


def open_identity(disk: Disk, *, node: str, now_us: int) -> NodeIdentity:
    """Reads the node's identity; an empty folder becomes that of ``node``."""
    if disk.exists(NODE_FILE):
        disk.sync_folder("")  # a first start may have been killed before it had synced the name
        return read_identity(disk)
    identity = NodeIdentity(FORMAT, node, now_us)
    write_whole(disk, NODE_FILE, encode(FrameType.RECORD, msgspec.msgpack.encode(identity)), sync=True)
    return identity


def read_identity(disk: Disk) -> NodeIdentity:
    """The identity of the node that owns the folder."""
    try:
        frame = decode_at(read_whole(disk, NODE_FILE), 0, CONTROL_BYTES_MAX)
        if frame is None or frame.type != FrameType.RECORD:
            raise BadFrame("the file ends too early")
        identity = msgspec.msgpack.decode(frame.body, type=NodeIdentity)
    except (BadFrame, *UNDECODABLE) as error:
        raise BadData(f"the data folder's NODE file cannot be read: {error}") from error
    if identity.format != FORMAT:
        raise BadData(f"the data folder has format {identity.format}; this version reads format {FORMAT}")
    return identity
