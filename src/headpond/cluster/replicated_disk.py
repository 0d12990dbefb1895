"""The disk of the active member: every change is an operation on the stream before it is one on the folder.

A change goes into the outbox. It reaches the folder, through the applier, when the stream has confirmed it.
Until then an overlay in memory shows it to readers: bytes by file, and names that are new, changed or gone. So
no caller waits in the middle of its work: operations become durable in the order in which they were made, and
``sync`` has nothing to do. Only the end of a job waits, in ``when_durable``.

``preallocate`` does nothing: the sync of the folder's own files is not on the way of an acknowledgement.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.cluster.apply import Applier
from headpond.cluster.outbox import DATA_BYTES_MAX, Confirmed, Outbox
from headpond.cluster.records import Kind, Op, OpKind
from headpond.storage.disk import DiskFile, MeasuredDisk

Names = list[str]
Then = Callable[[OSError | None], None]
QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""A worker thread that writes more than the stream takes waits for room."""


class Pending(NamedTuple):
    """A change of a file's bytes that the folder does not have yet."""

    offset: int
    data: bytes | None
    """None: the file was cut at ``offset``."""


@dataclass(eq=False)
class Node:
    """A file, whatever its name is."""

    path: str | None
    """Its name for the callers; None once it is removed."""
    base: DiskFile | None = None
    """Open for reading in the folder; None if the folder does not have it yet."""
    moves: int = 0
    """Changes of its name that the folder does not have yet."""
    pending: deque[Pending] = field(default_factory=deque)
    users: int = 0


class Change(NamedTuple):
    """An operation on its way."""

    node: Node | None
    """The file whose bytes or name it changes."""
    number: int


class ReplicatedDisk:
    """Any thread may use it. ``wake`` is called, in any thread, when there is something to send."""

    ordered = True

    def __init__(
        self, base: MeasuredDisk, applier: Applier, wake: Callable[[], None], *, waits: bool = True
    ) -> None:
        """``waits``: whether a worker thread that is far ahead of the stream waits for it."""
        self.base = base
        self.applier = applier
        self.outbox = Outbox(applier.position)
        self.lock = threading.Lock()
        self._wake = wake
        self._waits = waits
        self._thread = threading.get_ident()
        """The loop's, which sends and so never waits."""
        self._room = threading.Condition(self.lock)
        self._nodes: dict[str, Node] = {}
        """By name: files that are open or have changes on their way."""
        self._hidden: dict[str, int] = {}
        """Names in the folder that are removed or changed by an operation on its way, and its number."""
        self._changes: deque[Change] = deque()
        self._waiters: deque[tuple[int, Then]] = deque()
        self._durable_number = self.outbox.number
        self._failure: OSError | None = None
        self._put_bytes_max: int | None = None
        """What may be put into the outbox, in all, until the stream has no room; None: not known."""

    # --- the Disk protocol --------------------------------------------------------------------------

    def create(self, path: str) -> ReplicatedFile:
        with self.lock:
            if self._exists(path):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = self._nodes[path] = Node(path)
            self._put(OpKind.CREATE, node, path)
            return ReplicatedFile(self, node, path)

    def open(self, path: str, *, writable: bool = False) -> ReplicatedFile:
        with self.lock:
            node = self._nodes.get(path)
            if node is None:
                if self._is_hidden(path):
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                node = self._nodes[path] = Node(path, self.base.open(path))
            return ReplicatedFile(self, node, path)

    def list(self, folder: str) -> Names:
        folder = folder.strip("/")
        prefix = f"{folder}/" if folder else ""
        with self.lock:
            there = [] if folder and self._is_hidden(folder) else self.base.list(folder)
            names = {name for name in there if not self._is_hidden(prefix + name)}
            names |= {path[len(prefix) :].split("/", 1)[0] for path in self._nodes if path.startswith(prefix)}
        return sorted(names)

    def exists(self, path: str) -> bool:
        with self.lock:
            return self._exists(path)

    def rename(self, path: str, new_path: str) -> None:
        with self.lock:
            if not self._exists(path):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self._nodes.pop(path, None)
            if node is None:
                node = Node(path, self.base.open(path))
            self._detach(new_path)
            node.path = new_path
            self._nodes[new_path] = node
            self._hidden[path] = self._put(OpKind.RENAME, node, path, new_path)
            self._hidden.pop(new_path, None)

    def remove(self, path: str) -> None:
        with self.lock:
            if not self._exists(path):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._detach(path)
            self._hidden[path] = self._put(OpKind.REMOVE, None, path)

    def remove_tree(self, folder: str) -> None:
        assert folder.strip("/"), "the root itself is not removed"
        with self.lock:
            for path in [path for path in self._nodes if path.startswith(f"{folder}/")]:
                self._detach(path)
            self._hidden[folder] = self._put(OpKind.REMOVE_TREE, None, folder)

    def sync_folder(self, folder: str) -> None:
        """Durable in order, with everything else."""

    def free_bytes(self) -> int:
        free = self.base.free_bytes()
        if self._put_bytes_max is None:
            return free
        return min(free, max(0, self._put_bytes_max - self.outbox.put_bytes))

    def note_room(self, room_bytes: int) -> None:
        """The stream, with the records that it has confirmed, has room for so much."""
        with self.lock:
            on_their_way = self.outbox.queued_bytes + self.outbox.flight_bytes
            self._put_bytes_max = self.outbox.put_bytes - on_their_way + room_bytes

    def measure(self, after_s: float = 0.0) -> None:
        self.base.measure(after_s)

    def paths(self) -> Names:
        with self.lock:
            there = {path for path in self.base.paths() if not self._is_hidden(path)}
            return sorted(there | set(self._nodes))

    # --- durability ---------------------------------------------------------------------------------

    def when_durable(self, then: Then) -> None:
        """Calls ``then``, in some thread, when everything that this thread changed before is durable."""
        with self.lock:
            if self._failure is None and self._durable_number < self.outbox.number:
                self._waiters.append((self.outbox.number, then))
                waiting = True
            else:
                waiting = False
        if waiting:
            self._wake()
        else:
            then(self._failure)

    def durable(self, number: int) -> None:
        """Operations up to ``number`` are durable: their waiters are called."""
        ready: list[Then] = []
        with self.lock:
            self._durable_number = max(self._durable_number, number)
            while self._waiters and self._waiters[0][0] <= number:
                ready.append(self._waiters.popleft()[1])
        for then in ready:
            then(None)

    def fail(self, error: OSError) -> None:
        """No change is durable from now on: threads that wait for room get the error; waiters get nothing."""
        with self.lock:
            self._failure = error
            self._waiters.clear()  # an answer could be wrong: the next active member decides
            self._room.notify_all()

    def apply(self, confirmed: Confirmed) -> None:
        """Changes the folder as a confirmed record says."""
        record = self.applier.begin(confirmed.seq, confirmed.raw)
        assert record is not None, "its own record is not void"
        if record.kind == Kind.OPS:
            ops = list(record.ops())
            done = len(ops) - (confirmed.number - self.applied_number)  # by an earlier try, which failed
            self.applier.skip(done)
            for op in ops[done:]:
                self._apply(op)
        self.applier.end(confirmed.seq, record, confirmed.raw)
        with self.lock:
            self._room.notify_all()

    @property
    def applied_number(self) -> int:
        """Operations that the folder has."""
        with self.lock:
            return self.outbox.number - len(self._changes)

    def _apply(self, op: Op) -> None:
        if op.kind in (OpKind.WRITE, OpKind.TRUNCATE):
            self.applier.do(op)
            with self.lock:
                change = self._changes.popleft()
                assert change.node is not None
                change.node.pending.popleft()
                self._let_go(change.node)
        else:
            with self.lock:  # no reader looks for a name meanwhile
                self.applier.do(op)
                self._note_applied(self._changes.popleft(), op)

    def _note_applied(self, change: Change, op: Op) -> None:
        node = change.node
        for path in (op.path, op.new_path):
            if path and self._hidden.get(path) == change.number:
                del self._hidden[path]
        if node is not None:
            node.moves -= 1
            if node.base is None:
                node.base = self.base.open(op.new_path or op.path)
            self._let_go(node)

    # --- inside, under the lock ---------------------------------------------------------------------

    def _put(self, kind: int, node: Node | None, path: str, new_path: str = "") -> int:
        number = self.outbox.put(kind, path, new_path)
        self._changes.append(Change(node, number))
        if node is not None:
            node.moves += 1
        return number

    def write(self, node: Node, offset: int, parts: Sequence[bytes]) -> int:
        data = b"".join(parts)
        with self.lock:
            waits = self._waits and threading.get_ident() != self._thread
            while waits and self.outbox.queued_bytes > QUEUED_BYTES_MAX and self._failure is None:
                self._wake()
                self._room.wait()
            if self._failure is not None:
                raise self._failure
            if node.path is None:
                return len(data)  # it is removed: nobody opens it again
            for start in range(0, len(data), DATA_BYTES_MAX):
                piece = data[start : start + DATA_BYTES_MAX]
                number = self.outbox.put(OpKind.WRITE, node.path, "", offset + start, piece)
                self._changes.append(Change(node, number))
                node.pending.append(Pending(offset + start, piece))
        return len(data)

    def truncate(self, node: Node, size: int) -> None:
        with self.lock:
            if node.path is not None:
                number = self.outbox.put(OpKind.TRUNCATE, node.path, "", size)
                self._changes.append(Change(node, number))
                node.pending.append(Pending(size, None))

    def _exists(self, path: str) -> bool:
        return path in self._nodes or (not self._is_hidden(path) and self.base.exists(path))

    def _is_hidden(self, path: str) -> bool:
        """Whether the folder's file or folder of this name is gone for the callers."""
        if not self._hidden:
            return False
        if path in self._hidden:
            return True
        at = path.rfind("/")
        while at > 0:  # a folder above it was removed
            if path[:at] in self._hidden:
                return True
            at = path.rfind("/", 0, at)
        return False

    def _detach(self, path: str) -> None:
        """The file of this name is gone for everyone but those that have it open."""
        if (node := self._nodes.pop(path, None)) is not None:
            node.path = None

    def _let_go(self, node: Node) -> None:
        """Forgets a file that nobody has open and that is in the folder as it is here."""
        if node.users or node.pending or node.moves:
            return
        if node.path is not None:
            del self._nodes[node.path]
        if node.base is not None:
            node.base.close()
            node.base = None


class ReplicatedFile:
    """An open file: the folder's bytes with the changes on their way."""

    __slots__ = ("_disk", "_node", "_open", "path")

    def __init__(self, disk: ReplicatedDisk, node: Node, path: str) -> None:
        self._disk = disk
        self._node = node
        self._open = True
        self.path = path
        node.users += 1

    def size(self) -> int:
        base, pending = self._look()
        size = base.size() if base is not None else 0
        for offset, data in pending:
            size = offset if data is None else max(size, offset + len(data))
        return size

    def read_at(self, offset: int, size: int) -> bytes:
        base, pending = self._look()
        if not pending:
            return base.read_at(offset, size) if base is not None else b""
        # The folder may get some of these changes while it is read: putting them on top again is harmless.
        found = bytearray(base.read_at(offset, size) if base is not None else b"")
        for at, data in pending:
            start = at - offset
            if len(found) < min(start, size):  # a hole before the change
                found.extend(bytes(min(start, size) - len(found)))
            if data is None:
                del found[max(0, start) :]
            elif start < size and start + len(data) > 0:
                found[max(0, start) : start + len(data)] = data[max(0, -start) : size - start]
        return bytes(found)

    def _look(self) -> tuple[DiskFile | None, list[Pending]]:
        node = self._node
        with self._disk.lock:
            if not self._open:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
            return node.base, list(node.pending)

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        return self._disk.write(self._node, offset, parts)

    def preallocate(self, size: int) -> None:
        """Room is reserved by no one."""

    def truncate(self, size: int) -> None:
        self._disk.truncate(self._node, size)

    def sync(self) -> None:
        """Durable in order, with everything else."""

    def close(self) -> None:
        with self._disk.lock:
            if self._open:
                self._open = False
                self._node.users -= 1
                self._disk._let_go(self._node)
