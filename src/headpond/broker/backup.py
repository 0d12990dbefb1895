"""Backups: the files of one moment, held while a program copies them.

At the moment of a cut no write is under way, so the cut is what a crash would leave: everything acknowledged is
in it, and recovery opens it. Files are only appended to, so their names and lengths are enough: the shell links
the files into a folder, and a reader reads each up to its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from headpond.broker.context import Context
from headpond.broker.session import Session
from headpond.broker.steps import Steps, in_worker, run
from headpond.broker.stores import Stores
from headpond.model.errors import BadRequest, HeadpondError
from headpond.storage.disk import Disk
from headpond.wire.control.backup import BackupBegun, BeginBackup, EndBackup


class FolderCut(Protocol):
    """The shell's part: links to all files, in a folder that recovery ignores. Both methods do IO."""

    def hold(self, lengths: Mapping[str, int], disk: Disk) -> str:
        """Links the files that a restart needs, into a folder; ``lengths``: of files with reserved room."""

    def release(self, disk: Disk) -> None:
        """Removes the links."""


class BackupRequests:
    """One backup at a time. It ends with its connection."""

    def __init__(self, context: Context, stores: Stores, cut: FolderCut | None) -> None:
        self._context = context
        self._stores = stores
        self._cut = cut
        self._session: Session | None = None
        """Whose backup is under way."""
        self._held = False
        """Whether its files are linked."""

    def begin_backup(self, session: Session, ask: BeginBackup) -> Steps[BackupBegun]:
        if self._cut is None:
            hint = "In a cluster, stop a standby and copy its folder: docs/operations.md."
            raise BadRequest("this node cannot be backed up while it runs", hint=hint)
        if self._session is not None:
            raise BadRequest("another backup is under way", hint="Wait until it has ended.")
        self._session = session
        try:
            folder = yield from self._hold(self._cut)
        except HeadpondError:
            yield from self._release(self._cut)
            raise
        if session.gone:
            yield from self._release(self._cut)
        return BackupBegun(folder)

    def end_backup(self, session: Session, ask: EndBackup) -> Steps[None]:
        if self._session is session and self._held and self._cut is not None:
            yield from self._release(self._cut)

    def on_disconnect(self, session: Session) -> None:
        """The program that copied is gone. A cut that begins just now sees that the session is."""
        run(self.end_backup(session, EndBackup()), lambda _: None, lambda _: None)

    def _hold(self, cut: FolderCut) -> Steps[str]:
        yield self._stores.pause()
        try:
            hold = partial(cut.hold, self._stores.lengths())
            folder: str = yield in_worker(self._context, "the links of a backup", hold)
        finally:
            self._stores.resume()
        self._held = True
        return folder

    def _release(self, cut: FolderCut) -> Steps[None]:
        self._held = False
        try:
            yield in_worker(self._context, "the links of a backup", cut.release)
        finally:
            self._session = None
