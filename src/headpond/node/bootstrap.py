"""The first admin token, written to the data folder: a user who may write there owns the node.

It works while the node does not run, so it also helps an admin who lost the last token.
"""

from __future__ import annotations

import logging
import time
import uuid
from pathlib import Path

import msgspec

from headpond.broker.access.admin_log import AdminLog
from headpond.broker.access.tokens import Tokens, make_token
from headpond.broker.settings import Limits
from headpond.model.grant import ALL
from headpond.node.data_folder import check_no_member, lock_folder, open_error, open_identity
from headpond.storage.journal import JournalTable, TableState
from headpond.storage.os_disk import OsDisk
from headpond.storage.seal import read_seal
from headpond.wire.control.access import AdminRecord

BY = "bootstrap"
logger = logging.getLogger("headpond.node")


def bootstrap(folder: Path, name: str) -> tuple[str, str]:
    """Creates a token for everything; returns its id and its text. ``DataLocked`` while the node runs."""
    disk = lock_folder(folder)
    try:
        check_no_member(
            disk,
            hint="Start the member with --listen 127.0.0.1:7411. While it is active and has no tokens, this "
            "command asks it for the first one.",
        )
        now_us = time.time_ns() // 1000
        open_identity(disk, node=uuid.uuid4().hex, now_us=now_us)
        text, made = make_token(ALL, name, lambda: uuid.uuid4().bytes, at_us=now_us, by=BY, expires_us=None)
        _append(disk, "tokens", Tokens(lambda: now_us), made)
        record = AdminRecord(now_us, BY, name, BY, "create_token", name, "done", f"token {made.id}")
        _append(disk, "admin_log", AdminLog(Limits().admin_records), record)
        return made.id, text
    except OSError as error:
        raise open_error(folder, error) from error
    finally:
        disk.unlock()


def _append(disk: OsDisk, folder: str, state: TableState, change: msgspec.Struct) -> None:
    """Adds a record as the node would: recovery of a damaged journal is the same."""
    table = JournalTable(disk, folder, state, {}, compact_bytes=0, seal=read_seal(disk))
    for line in table.recovered:
        logger.warning("%s", line)
    table.stage(change)
    table.journal.close()  # writes and syncs it
