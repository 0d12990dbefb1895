"""A producer's place in the refill: a folder that its process holds, and what is noted beside the files.

What processes that died left in sibling folders of the same topic and name is taken over. A file beside the
slots holds the topic's settings as a node last told them, so that a producer can start with the node away.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from os import PathLike
from pathlib import Path

import msgspec

from headpond.client.options import DEFAULT_REFILL
from headpond.model.errors import BadFrame, RefillInUse, StorageFailed
from headpond.producer.refill.folder import files, remove_unfinished, slot_name, slot_names, slots_of
from headpond.storage.folder_lock import LOCK_NAME, FolderLock, refill_root, take_first
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.frame import RESPONSE_BYTES_MAX, FrameType, decode_at, encode

log = logging.getLogger("headpond.client")

TOPICS_FOLDER = "topics"
NUMBERS_FILE = "numbers"


class Slot:
    def __init__(self, disk: OsDisk, folder: str, lock: FolderLock, notes: Path) -> None:
        self.disk = disk
        self.folder = folder
        self._topic_file = _topic_file(notes, folder)
        self.lease_file = _lease_file(notes, folder)
        """Notes which epochs were held from here."""
        self.adopted: list[str] = []
        """Folders that processes which died left behind."""
        self._locks = {folder: lock}

    @classmethod
    def take(cls, root: str | PathLike[str], topic: str, producer: str, *, alone: bool = False) -> Slot | None:
        """Takes a folder for this process. None, with a warning, where the default place cannot be written.

        ``alone``: a second process is refused instead of getting a folder of its own (``RefillInUse``).
        """
        place = refill_root() if root == DEFAULT_REFILL else Path(root).expanduser()
        name = slot_name(topic, producer)
        try:
            disk = OsDisk(place)
            folder, lock = take_first(place, [name] if alone else slot_names(name))
        except OSError as error:
            if root == DEFAULT_REFILL and not alone:
                log.warning(
                    "%s cannot be written (%s): nothing is spilled to disk, so what a node does not take waits "
                    "in memory; pass refill=FOLDER or set HEADPOND_STATE",
                    place,
                    error.strerror,
                )
                return None
            raise StorageFailed(
                f"the refill folder {place} cannot be used: {error.strerror}",
                hint="Pass another refill=FOLDER, or refill=None to keep nothing on disk.",
            ) from error
        slot = cls(disk, folder, lock, _notes_of(place, name))
        slot._adopt(name)
        remove_unfinished(disk, folder)
        return slot

    def _adopt(self, name: str) -> None:
        for folder in slots_of(self.disk, "", name):
            if folder not in self._locks and files(self.disk, folder):
                with suppress(RefillInUse, OSError):
                    self._locks[folder] = FolderLock.take(self.disk.root / folder)
                    remove_unfinished(self.disk, folder)
                    self.adopted.append(folder)

    def release(self) -> None:
        """Lets go of the folders; those with nothing in them go."""
        for folder, lock in self._locks.items():
            self._remove_if_empty(self.disk.root / folder)
            lock.release()
        self._locks.clear()

    def _remove_if_empty(self, folder: Path) -> None:
        """Removed while it is held: whoever waits for the lock sees that it is gone, and makes a new one."""
        with suppress(OSError):
            if os.listdir(folder) == [LOCK_NAME]:
                (folder / LOCK_NAME).unlink()
                folder.rmdir()

    # --- what is noted beside the files ---------------------------------------------------------------

    def cached_topic(self) -> TopicInfo | None:
        """The topic as a node last told it; None if no node ever did, or the note cannot be read."""
        try:
            frame = decode_at(self._topic_file.read_bytes(), 0, RESPONSE_BYTES_MAX)
            return None if frame is None else msgspec.msgpack.decode(frame.body, type=TopicInfo)
        except (OSError, BadFrame, msgspec.MsgspecError):
            return None

    def cache_topic(self, info: TopicInfo) -> None:
        new = self._topic_file.with_name(f"{self._topic_file.name}.{os.getpid()}.new")
        with suppress(OSError):  # it only helps a start with the node away
            self._topic_file.parent.mkdir(exist_ok=True)
            note = msgspec.msgpack.encode(msgspec.structs.replace(info, shard_list=[]))
            new.write_bytes(encode(FrameType.RECORD, note))
            new.replace(self._topic_file)


def _notes_of(root: Path, slot: str) -> Path:
    """Where a slot's notes stand: beside the refill folder of a state folder, else in the refill folder."""
    beside = root.parent / TOPICS_FOLDER
    if root == refill_root() or _topic_file(beside, slot).exists():
        return beside
    return root / TOPICS_FOLDER


def _topic_file(notes: Path, slot: str) -> Path:
    return notes / slot.partition("~")[0]


def _lease_file(notes: Path, slot: str) -> Path:
    return notes / f"{slot.partition('~')[0]}.lease"


def lease_file_of(slot: Path) -> Path:
    """Where it is noted which epochs a slot's producer held from here."""
    return _lease_file(_notes_of(slot.parent, slot.name), slot.name)


# What a producer with single access notes beside its refill: which epochs were held from here, unbroken.
#
# What was spilled under an epoch from ``first`` on is sent by whoever holds the lease next: nobody elsewhere
# sent anything in between. What is older, or was spilled by an instance that was taken over, is *late*: it is
# kept, told of, and sent by `headpond refill send --late` alone.

LATE_BLOCKS_MAX = 10_000


class Noted(msgspec.Struct, array_like=True):
    first: int = 0
    """The first of the epochs that were held from here without another's in between."""
    last: int = 0
    late: list[bytes] = msgspec.field(default_factory=list)
    """Blocks of instances that were told that they had been taken over."""


class LeaseNote:
    """``path`` None keeps it in memory: there is no refill, so there is nothing to judge."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._noted = Noted()
        if path is not None:
            with suppress(OSError, msgspec.MsgspecError):
                self._noted = msgspec.msgpack.decode(path.read_bytes(), type=Noted)

    @property
    def exists(self) -> bool:
        """Whether a lease was ever held from here."""
        return self._noted.last > 0

    @property
    def last(self) -> int:
        """The last epoch that was held from here; 0: none."""
        return self._noted.last

    def granted(self, epoch: int) -> None:
        """The lease is held with this epoch."""
        noted = self._noted
        if epoch == noted.last:
            return
        if not noted.last or epoch != noted.last + 1:
            noted.first = epoch
        noted.last = epoch
        self._write()

    def taken_over(self, epoch: int, blocks: list[bytes]) -> None:
        """An instance here that held ``epoch`` was taken over: what it had not delivered comes too late."""
        noted = self._noted
        noted.first = max(noted.first, epoch + 1)
        noted.late = [*noted.late, *(block for block in blocks if block not in noted.late)][-LATE_BLOCKS_MAX:]
        self._write()

    def is_late(self, epoch: int, block: bytes, held: int) -> bool:
        """Of a refill file's epoch and block, when ``held`` is the epoch held now (0: not known yet)."""
        if block in self._noted.late:
            return True
        return epoch > 0 and (not held or epoch < self._noted.first)

    def _write(self) -> None:
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with suppress(OSError):  # without it what is spilled now is late when it is found
            self._path.parent.mkdir(exist_ok=True)
            new.write_bytes(msgspec.msgpack.encode(self._noted))
            new.replace(self._path)
