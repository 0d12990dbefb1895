"""Runs of the node, numbered: which one this is, and which was the last that did not end in good order.

Some counts of the ledger reach the disk a moment after what they count. They are exact unless a run was cut
short since they began, and then they are lower bounds. A journal of its own, a record a change::

    (number, crashed, ended)     crashed: the last run that was cut short; ended: whether this one closed well

Data of a version without runs has number 0, and counts as cut short.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from penstock.files.disk import Disk
from penstock.files.journal import FileJournal
from penstock.model.errors import PenstockError

FOLDER = "runs"
COMPACT_BYTES = 16 * 1024


class _Run(msgspec.Struct, array_like=True, frozen=True):
    number: int
    crashed: int
    ended: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Run)


class Runs:
    """Opening begins a run, and does IO."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._journal = FileJournal.open(disk, FOLDER)
        last = _Run(0, 0, True)
        for body in self._journal.records:
            with suppress(msgspec.DecodeError, msgspec.ValidationError):
                last = _decoder.decode(body)
        cut_short = not last.ended or bool(self._journal.report.damaged)
        self.number = last.number + 1
        self.crashed = last.number if cut_short else last.crashed
        """What was counted in this run or an earlier one may be short of what happened."""
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
        except PenstockError:  # an earlier note failed
            return
        if write is None:
            return
        try:
            write.run(self._disk)
            self._journal.committed(write)
        except OSError as error:  # a full disk must not keep a node from starting: then nothing is claimed
            self._journal.failed(write, error)
            self.crashed = self.number

    def close(self) -> None:
        """The run ends in good order. Does IO."""
        if self.crashed != self.number:
            self._note(ended=True)
        self._journal.close()
