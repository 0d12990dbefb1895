"""The file that a log is appended to: where its next write goes, and what is known of its end.

It is open only for a while after a write, so that thousands of logs do not hold a file each.
"""

from __future__ import annotations

from headpond.files.disk import Disk, DiskFile
from headpond.files.frame_write import STATUS_BYTES, FrameWrite, Status, encode_status
from headpond.node.core.log_replay import Recovered


class Tail:
    def __init__(self, found: Recovered) -> None:
        there = found.file is not None
        self.file: DiskFile | None = None
        self.first = found.files[-1].first if found.files else -1
        """Its first entry; -1 where there is no file."""
        self.end: int | None = found.end_offset if there else None
        """Where the next write goes once the one under way is done; None where it begins a new file."""
        self.head_bytes = found.head_bytes
        """A long head must not make a file full by itself."""
        self.oldest_us: int | None = found.points[0].stored_at_us if there and found.points else None
        """When the first record in it was stored."""
        self.expires_us: int | None = found.expires_us if there else None
        """When all messages in it have expired: 0 where there are none, None where some never do."""
        self.reserved_bytes = 0
        self.status_owed: bytes | None = None
        self.sound = there
        """Whether it may be touched again."""
        self.proven = True
        """Whether it ends with a STATUS that says that all of it was synced."""
        if found.file is not None:
            self.reserved_bytes = found.file.size()
            found.file.close()

    def begin(self) -> int | None:
        """A new file begins; returns when all messages of the one before have expired, if that is known."""
        closed_us = self.expires_us or None
        self.oldest_us, self.expires_us = None, 0
        return closed_us

    def append(self, stored_at_us: int, expires_us: int | None) -> None:
        """A record goes there."""
        if self.oldest_us is None:
            self.oldest_us = stored_at_us
        if self.expires_us is not None:
            self.expires_us = None if expires_us is None else max(self.expires_us, expires_us)

    def planned(self, write: FrameWrite, head_bytes: int) -> None:
        """A write is on its way; ``head_bytes`` is 0 where it begins no file."""
        self.end = write.end + STATUS_BYTES
        if write.created:
            self.head_bytes = head_bytes
        self.status_owed = None

    def wrote(self, write: FrameWrite) -> None:
        """The write is durable: its file is the one that is appended to from now on."""
        if write.created:
            self.release()
            self.reserved_bytes = 0
            self.sound = True
        self.file = write.file
        self.reserved_bytes = max(self.reserved_bytes, write.reserve_to)
        self.proven = write.sync and write.status_owed is None
        self.status_owed = write.status_owed

    def failed(self, write: FrameWrite) -> None:
        """The write did not become durable: the file is not written again."""
        if write.file is not None and write.file is not self.file:
            write.file.close()
        self.leave()
        if not write.created:
            self.sound = False

    def leave(self) -> None:
        """The next append begins a new file."""
        self.release()
        self.end = None
        self.status_owed = None
        self.expires_us = None

    def release(self) -> None:
        """Closes the file; the next write opens it again. None may be under way."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def finish(self, disk: Disk, path: str, end: int, entry: int, shard: int) -> None:
        """Leaves the file synced and without reserved room. Does IO."""
        if self.end is None:
            return
        if self.file is None:
            if self.reserved_bytes <= end and self.proven:
                return  # nothing was written to it since it was left like this
            self.file = disk.open(path, writable=True)
        self.file.truncate(end)
        self.file.sync()
        if not self.proven:
            self.file.write_at(end, [encode_status(Status(end, entry), shard)])
            self.file.sync()
        self.leave()
