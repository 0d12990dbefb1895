"""A producer's place in the refill: a folder that its process holds, and the notes beside it.

A process adopts the sibling folders of the same topic and name whose processes died. A file beside the slots
holds the topic's settings from a node's last answer, so that a producer can start while the node is away.
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
        """The note of the epochs that were held from here."""
        self.adopted: list[str] = []
        """Folders of processes that died."""
        self._locks = {folder: lock}

    @classmethod
    def take(cls, root: str | PathLike[str], topic: str, producer: str, *, alone: bool = False) -> Slot | None:
        """Takes a folder for this process. None, with a warning, where the default place cannot be written.

        ``alone``: a second process is refused (``RefillInUse``) instead of getting another folder.
        """
        place = refill_root() if root == DEFAULT_REFILL else Path(root).expanduser()
        name = slot_name(topic, producer)
        try:
            disk = OsDisk(place)
            folder, lock = take_first(place, [name] if alone else slot_names(name))
        except OSError as error:
            if root == DEFAULT_REFILL and not alone:
                log.warning(
                    "%s cannot be written (%s): nothing is spilled to disk, and messages that a node does not "
                    "take wait in memory; pass refill=FOLDER or set HEADPOND_STATE",
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
        for folder in slots_of(self.disk, name):
            if folder not in self._locks and files(self.disk, folder):
                with suppress(RefillInUse, OSError):
                    self._locks[folder] = FolderLock.take(self.disk.root / folder)
                    remove_unfinished(self.disk, folder)
                    self.adopted.append(folder)

    def release(self) -> None:
        """Releases the folders and removes the empty ones."""
        for folder, lock in self._locks.items():
            self._remove_if_empty(self.disk.root / folder)
            lock.release()
        self._locks.clear()

    def _remove_if_empty(self, folder: Path) -> None:
        """Removed while it is held: a process that waits for the lock sees that, and makes a new folder."""
        with suppress(OSError):
            if os.listdir(folder) == [LOCK_NAME]:
                (folder / LOCK_NAME).unlink()
                folder.rmdir()

    # --- the topic's settings ---------------------------------------------------------------------------

    def cached_topic(self) -> TopicInfo | None:
        """The topic by a node's last answer; None if there was none, or the note cannot be read."""
        try:
            frame = decode_at(self._topic_file.read_bytes(), 0, RESPONSE_BYTES_MAX)
            return None if frame is None else msgspec.msgpack.decode(frame.body, type=TopicInfo)
        except (OSError, BadFrame, msgspec.MsgspecError):
            return None

    def cache_topic(self, info: TopicInfo) -> None:
        """Notes the topic, which helps a start with the node away."""
        note = msgspec.msgpack.encode(msgspec.structs.replace(info, shard_list=[]))
        replace_note(self._topic_file, encode(FrameType.RECORD, note))


def replace_note(path: Path, data: bytes) -> None:
    """Replaces a file that only helps, in one step: a disk that takes nothing is no error."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        new.write_bytes(data)
        new.replace(path)


def _notes_of(root: Path, slot: str) -> Path:
    """The folder of a slot's notes: beside the refill folder of a state folder, else in the refill folder."""
    beside = root.parent / TOPICS_FOLDER
    if root == refill_root() or _topic_file(beside, slot).exists():
        return beside
    return root / TOPICS_FOLDER


def _topic_file(notes: Path, slot: str) -> Path:
    return notes / slot.partition("~")[0]


def _lease_file(notes: Path, slot: str) -> Path:
    return notes / f"{slot.partition('~')[0]}.lease"


def lease_file_of(slot: Path) -> Path:
    """The note of the epochs that a slot's producer held from here."""
    return _lease_file(_notes_of(slot.parent, slot.name), slot.name)
