"""A producer's place in the refill: a folder that its process holds, and the notes beside it.

A process adopts the sibling folders of the same topic and name whose processes died. Two notes in the folder
``topics`` belong to all of them: the topic's settings from a node's last answer, so that a producer can start
while the node is away, and the epochs of its lease (registration.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path

import msgspec

from headpond.client.options import DEFAULT_REFILL
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame, RefillInUse, StorageFailed
from headpond.producer.refill.folder import files, remove_unfinished, slot_name, slot_names, slots_of
from headpond.storage.append import write_whole
from headpond.storage.disk import Lock, LockableDisk, read_whole
from headpond.storage.folder_lock import LOCK_NAME, refill_root
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.frame import RESPONSE_BYTES_MAX, FrameType, decode_at, encode

log = logging.getLogger("headpond.client")

TOPICS_FOLDER = "topics"
NUMBERS_FILE = "numbers"


class Slot:
    def __init__(self, disk: LockableDisk, folder: str, lock: Lock) -> None:
        self.disk = disk
        self.folder = folder
        self.lease_file = lease_file_of(folder)
        """The note of the epochs that were held from here."""
        self.adopted: list[str] = []
        """Folders of processes that died."""
        self._topic_file = f"{TOPICS_FOLDER}/{folder.partition('~')[0]}"
        self._locks = {folder: lock}

    @classmethod
    def take(cls, root: str | PathLike[str], topic: str, producer: str, *, alone: bool = False) -> Slot | None:
        """Takes a folder for this process. None, with a warning, where the default place cannot be written.

        ``alone``: a second process is refused (``RefillInUse``) instead of getting another folder.
        """
        place = refill_root() if root == DEFAULT_REFILL else Path(root).expanduser()
        name = slot_name(topic, producer)
        try:
            disk: LockableDisk = OsDisk(place)
            folder, lock = _take_first(disk, [name] if alone else slot_names(name))
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
        slot = cls(disk, folder, lock)
        slot._adopt(name)
        remove_unfinished(disk, folder)
        return slot

    def _adopt(self, name: str) -> None:
        for folder in slots_of(self.disk, name):
            if folder not in self._locks and files(self.disk, folder):
                with suppress(RefillInUse, OSError):
                    self._locks[folder] = self.disk.lock_folder(folder)
                    remove_unfinished(self.disk, folder)
                    self.adopted.append(folder)

    def release(self) -> None:
        """Releases the folders and removes the empty ones.

        They are removed while they are held: a process that waits for a lock sees that, and makes a new folder.
        """
        for folder, lock in self._locks.items():
            with suppress(OSError):
                if self.disk.list(folder) == [LOCK_NAME]:
                    self.disk.remove_tree(folder)
            lock.release()
        self._locks.clear()

    # --- the topic's settings ---------------------------------------------------------------------------

    def cached_topic(self) -> TopicInfo | None:
        """The topic by a node's last answer; None if there was none, or the note cannot be read."""
        try:
            frame = decode_at(read_whole(self.disk, self._topic_file), 0, RESPONSE_BYTES_MAX)
            return None if frame is None else msgspec.msgpack.decode(frame.body, type=TopicInfo)
        except (OSError, BadFrame, *UNDECODABLE):
            return None

    def cache_topic(self, info: TopicInfo) -> None:
        note = msgspec.msgpack.encode(msgspec.structs.replace(info, shard_list=[]))
        with suppress(OSError):  # it only helps a start with the node away
            write_whole(self.disk, self._topic_file, encode(FrameType.RECORD, note))


def _take_first(disk: LockableDisk, names: Iterable[str]) -> tuple[str, Lock]:
    """Locks the first folder that no live process uses; ``RefillInUse`` if all are in use."""
    refused: RefillInUse | None = None
    for name in names:
        try:
            return name, disk.lock_folder(name)
        except RefillInUse as error:
            refused = error
    assert refused is not None, "there are names"
    raise refused


def lease_file_of(folder: str) -> str:
    """The note of the epochs that a slot's producer held from here."""
    return f"{TOPICS_FOLDER}/{folder.partition('~')[0]}.lease"
