"""Runs of the node, numbered: which one this is, and which was the last that did not end in good order.

Some counts of the ledger reach the disk a moment after what they count. They are exact unless a run was cut
short since they began, and then they are lower bounds. Their journal has a record for each change::

    (number, crashed, ended)     crashed: the last run that was cut short; ended: whether this one closed well
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import HeadpondError
from headpond.storage.disk import Disk
from headpond.storage.journal import FileJournal
from headpond.storage.seal import Seal, SealedFile

FOLDER = "runs"
COMPACT_BYTES = 16 * 1024
LOST_MAX = 1_000_000
"""Rotted records may have noted this many runs, whose numbers are not used again."""


class _Run(msgspec.Struct, array_like=True, frozen=True):
    number: int
    crashed: int
    ended: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Run)


class Runs:
    """``begin`` comes when all else is opened."""

    def __init__(self, disk: Disk, seal: Seal | None = None) -> None:
        self._disk = disk
        self._journal = FileJournal.open(disk, FOLDER, seal)
        self.recovered = [f"{FOLDER}: {line}" for line in self._journal.report.lines()]
        last = _Run(0, 0, True)
        for body in self._journal.records:
            with suppress(*UNDECODABLE):
                last = _decoder.decode(body)
        self.number = last.number + 1
        if self._journal.report.lost:
            self.number += LOST_MAX
        cut_short = not last.ended or bool(self._journal.report.damaged)
        self.crashed = self.number - 1 if cut_short else last.crashed
        """A count of this run or an earlier one may be too low."""

    def begin(self) -> None:
        """Notes that a run began, which a clean end will have to follow. Does IO."""
        self._note(ended=False)

    def exact(self, run: int) -> bool:
        """Whether nothing was cut short since ``run``."""
        return run > self.crashed

    def _note(self, *, ended: bool) -> None:
        body = _encoder.encode(_Run(self.number, self.crashed, ended))
        try:
            if self._journal.size_bytes > COMPACT_BYTES:
                self._journal.compact([body])
            else:
                self._journal.append(body)
            write = self._journal.take()
        except HeadpondError:  # an earlier note failed
            return
        if write is None:
            return
        try:
            write.run(self._disk)
            self._journal.committed(write)
        except OSError:  # a full disk must not keep a node from starting: then nothing is claimed
            self._journal.failed(write)
            self.crashed = self.number

    def close(self) -> SealedFile | None:
        """The run ends in good order; returns how the file is left. Does IO."""
        if self.crashed != self.number:
            self._note(ended=True)
        return self._journal.close()
