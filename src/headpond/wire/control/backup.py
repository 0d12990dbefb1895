"""Messages about backups of a running node."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headpond.wire.control.operation import ADMIN, OperationOf, Rule, whole_node


class BackupBegun(msgspec.Struct, frozen=True):
    folder: str
    """On the node's machine: all files as they were at one moment, with a list of their lengths."""


class BeginBackup(OperationOf[BackupBegun], frozen=True, tag="begin_backup"):
    """Holds the files of this moment until ``EndBackup``, or until the connection ends."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node, logged=True)


class EndBackup(OperationOf[None], frozen=True, tag="end_backup"):
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)


BackupOperation = BeginBackup | EndBackup
