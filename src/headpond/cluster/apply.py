"""Applies the records of the stream to a member's folder.

The folder of every member, active or not, is a prefix of the stream, or becomes one by replaying records from
its last *checkpoint*: a position up to which everything is synced. There is one way to recover, after a kill
and after a power cut, whatever part of the later operations the disk has kept. It works because replaying
operations in their order gives the same files:

- CREATE makes an empty file, WRITE and TRUNCATE set bytes, REMOVE leaves no file. Each gives the same result
  if parts of it, or of later operations, are on the disk already. One that finds no file is of a file that a
  later operation removed or renamed.
- RENAME is the exception: after it, earlier writes to the new name would hit the renamed file. If the file was
  created since the checkpoint, replaying creates it again, and the RENAME puts it in place again. For any
  other file a checkpoint precedes the RENAME and another one follows it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

import msgspec

from headpond.cluster.records import ActiveMember, Kind, Op, OpKind, Record, decode_record, extend_chain
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadData, BadFrame
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, DiskFile, read_whole
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode

POSITION_FILE = "cluster/POSITION"
FILES_OPEN_MAX = 512
VOID_MAX = 100
"""Fewer can be in flight at a takeover or behind a lost record; more mean that the stream is another one."""


class Diverged(Exception):
    """The stream and this folder do not fit together: an operator decides which one counts."""


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Up to where a folder is."""

    seq: int = 0
    """The last record that is applied whole."""
    done: int = 0
    """Operations of the next record that are applied too."""
    epoch: int = 0
    number: int = 0
    """All operations applied, those of ``done`` not counted."""
    chain: int = 0
    active: ActiveMember | None = None
    """Whose epoch it is; None before the first one, and in the folders of older versions."""
    released: bool = False
    """Whether that member has let go: nobody is active."""


def load_position(disk: Disk) -> Position | None:
    """The last checkpoint of a folder; None if it never was a member's, or its copy was not finished."""
    if not disk.exists(POSITION_FILE):
        return None
    try:
        frame = decode_at(read_whole(disk, POSITION_FILE), 0, CONTROL_BYTES_MAX)
        if frame is None or frame.type != FrameType.RECORD:
            raise BadFrame("the file ends too early")
        return msgspec.msgpack.decode(frame.body, type=Position)
    except (BadFrame, *UNDECODABLE) as error:
        raise BadData(f"{POSITION_FILE} cannot be read: {error}") from error


def save_position(disk: Disk, position: Position) -> None:
    body = msgspec.msgpack.encode(position)
    write_whole(disk, POSITION_FILE, encode(FrameType.RECORD, body), sync=True)


class Applier:
    """One thread at a time uses it."""

    def __init__(self, disk: Disk, position: Position) -> None:
        self.disk = disk
        self.position = position
        self.checkpointed = position
        """The last checkpoint."""
        self.applied = 0
        """Records that changed the folder, or only its position, in this run."""
        self.void = 0
        """Records of replaced members that it passed over."""
        self.bytes = 0
        """Written since the checkpoint."""
        self._touched: set[str] = set()
        self._folders: set[str] = set()
        self._created: set[str] = set()
        """Files that were created since the checkpoint."""
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._index = 0
        self._voids = 0
        """Void records in a row."""

    def begin(self, seq: int, raw: bytes) -> Record | None:
        """Checks that a record is the next one; None if it is void. ``BadFrame`` if its bytes were altered."""
        at = self.position
        record = decode_record(raw)
        if seq != at.seq + 1:
            raise Diverged(f"record {seq} came when record {at.seq + 1} was due")
        fits = record.chain == at.chain and record.number == at.number
        void = record.epoch < at.epoch or (record.epoch == at.epoch and not fits)
        if void and self._voids < VOID_MAX:
            self._voids += 1
            self.pass_over()
            return None
        if not fits:
            raise Diverged(
                f"record {seq} follows operation {record.number} of chain {record.chain:08x}, "
                f"and this folder is at operation {at.number} of chain {at.chain:08x}"
            )
        if record.epoch != at.epoch + (record.kind == Kind.EPOCH):
            raise Diverged(f"record {seq} is of epoch {record.epoch}, and this folder is in epoch {at.epoch}")
        self._index = self._voids = 0
        return record

    def pass_over(self) -> None:
        """The next record is void."""
        self.void += 1
        self.position = msgspec.structs.replace(self.position, seq=self.position.seq + 1)

    def skip(self, count: int) -> None:
        """The first operations of the record are done: an earlier try failed behind them."""
        self._index = count

    def do(self, op: Op) -> None:
        """The next operation of the record."""
        self._index += 1
        if self._index <= self.position.done:
            return
        folder = op.path.rpartition("/")[0]
        if op.kind == OpKind.WRITE:
            if (file := self._file(op.path)) is not None:
                file.write_at(op.offset, [op.data])  # type: ignore[list-item]  # any buffer will do
                self._touched.add(op.path)
                self.bytes += len(op.data)
        elif op.kind == OpKind.CREATE:
            self._forget(op.path)
            if self.disk.exists(op.path):
                self.disk.remove(op.path)
            self._files[op.path] = self.disk.create(op.path)
            self._touched.add(op.path)
            self._created.add(op.path)
            self._folders.add(folder)
        elif op.kind == OpKind.TRUNCATE:
            if (file := self._file(op.path)) is not None:
                file.truncate(op.offset)
                self._touched.add(op.path)
        elif op.kind == OpKind.RENAME:
            self._rename(op.path, op.new_path)
        elif op.kind == OpKind.REMOVE:
            self._forget(op.path)
            self._drop(op.path)
            with suppress(FileNotFoundError):
                self.disk.remove(op.path)
            self._folders.add(folder)
        else:
            below = f"{op.path}/"
            for path in [path for path in self._files if path.startswith(below)]:
                self._forget(path)
            for path in [path for path in self._touched | self._created if path.startswith(below)]:
                self._drop(path)
            self._folders = {each for each in self._folders if not f"{each}/".startswith(below)} | {folder}
            self.disk.remove_tree(op.path)

    def _rename(self, path: str, new_path: str) -> None:
        if not self.disk.exists(path):
            return  # it was renamed before a crash
        fresh = path in self._created
        if not fresh:
            self._checkpoint(self._index - 1)
        self._forget(path)
        self._forget(new_path)
        self.disk.rename(path, new_path)
        self._drop(new_path)
        for paths in (self._touched, self._created):
            if path in paths:
                paths.remove(path)
                paths.add(new_path)
        self._folders |= {path.rpartition("/")[0], new_path.rpartition("/")[0]}
        if not fresh:
            self._checkpoint(self._index)

    def end(self, seq: int, record: Record, raw: bytes) -> None:
        """All operations of the record are done."""
        self.applied += 1
        self.position = Position(
            seq,
            0,
            record.epoch,
            self.position.number + self._index,
            extend_chain(record.chain, raw),
            record.active() if record.kind == Kind.EPOCH else self.position.active,
            record.kind == Kind.RELEASE,
        )

    def apply(self, seq: int, raw: bytes) -> Record | None:
        """One record whole; None if it is void."""
        record = self.begin(seq, raw)
        if record is not None:
            if record.kind == Kind.OPS:
                for op in record.ops():
                    self.do(op)
            self.end(seq, record, raw)
        return record

    # --- checkpoints --------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Makes everything applied durable. Does IO; between two records."""
        self._checkpoint(0)

    def _checkpoint(self, done: int) -> None:
        for path in sorted(self._touched):
            if (file := self._file(path)) is not None:
                file.sync()
        for folder in sorted(self._folders):
            with suppress(FileNotFoundError):  # the last file in it is gone, and it with a folder above
                self.disk.sync_folder(folder)
        self.checkpointed = self.position = msgspec.structs.replace(self.position, done=done)
        save_position(self.disk, self.checkpointed)
        self._touched, self._folders, self._created, self.bytes = set(), set(), set(), 0

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    # --- files --------------------------------------------------------------------------------------

    def _file(self, path: str) -> DiskFile | None:
        file = self._files.get(path)
        if file is None:
            try:
                file = self._files[path] = self.disk.open(path, writable=True)
            except FileNotFoundError:
                return None
            if len(self._files) > FILES_OPEN_MAX:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(path)
        return file

    def _forget(self, path: str) -> None:
        """Closes a file whose name changes."""
        if (file := self._files.pop(path, None)) is not None:
            file.close()

    def _drop(self, path: str) -> None:
        self._touched.discard(path)
        self._created.discard(path)
