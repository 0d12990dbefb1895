"""The log of administration: who did what, when, with which outcome. The node keeps the latest records.

A record is on the disk before its operation is answered. Nobody pushes out what others did: when the log is
full, the oldest record goes of the token that has the most of them. Refusals are limited besides: past so many
a minute they are counted, and the next record says how many were left out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from headpond.broker.session import Session, shown
from headpond.broker.steps import Wait
from headpond.model.errors import HeadpondError
from headpond.model.grant import redacted, without_secret
from headpond.storage.journal import JournalTable, TableState
from headpond.wire.control.access import AdminRecord, TokenCreated
from headpond.wire.control.operation import Control

logger = logging.getLogger("headpond.admin")

REFUSALS_MAX = 60
WINDOW_US = 60_000_000
WHAT_LENGTH_MAX = 600
DETAIL_LENGTH_MAX = 300
NAMES = ("level", "place", "topic", "subscription", "producer", "token", "name", "peer", "url")
"""The fields that say what an operation is about."""
DETAILS = (
    "shards",
    "rights",
    "scopes",
    "settings",
    "set",
    "unset",
    "to",
    "shard",
    "paused",
    "recursive",
    "access",
    "topics",
    "direction",
)
"""The fields that say how; none of them can hold a secret."""


class AdminLog(TableState):
    """The state: the latest records."""

    decoder = msgspec.msgpack.Decoder(AdminRecord)

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._records: dict[int, AdminRecord] = {}
        self._of_token: dict[str, deque[int]] = {}
        self._number = 0

    @property
    def records(self) -> list[AdminRecord]:
        """In order."""
        return list(self._records.values())

    def apply(self, record: AdminRecord) -> None:
        self._number += 1
        self._records[self._number] = record
        self._of_token.setdefault(record.token, deque()).append(self._number)
        while len(self._records) > self._records_max:
            most = max(self._of_token, key=lambda token: len(self._of_token[token]))
            del self._records[self._of_token[most].popleft()]
            if not self._of_token[most]:
                del self._of_token[most]

    def snapshot(self) -> list[AdminRecord]:
        return self.records


class AdminLogger:
    """Writes the log."""

    def __init__(self, journal: JournalTable, now_us: Callable[[], int]) -> None:
        self._journal = journal
        self._now_us = now_us
        self._window_us = 0
        self._refusals = 0
        self._left_out = 0

    def write(
        self, session: Session, operation: Control, error: HeadpondError | None, result: Any = None
    ) -> Wait[None]:
        """Records the outcome of an operation; the wait is over once that is on the disk, or cannot be."""
        wait: Wait[None] = Wait()
        now_us = self._now_us()
        if error is not None and not self._room(now_us):
            self._left_out += 1
            wait.done(None)
            return wait
        detail = _detail(operation, result) if error is None else error.message
        if self._left_out:
            detail = f"{self._left_out} refusals before this were left out; {detail}"
            self._left_out = 0
        record = AdminRecord(
            now_us,
            session.token,
            session.token_name,
            session.client,
            str(operation.__struct_config__.tag),
            _what(operation),
            "done" if error is None else error.code,
            shown(redacted(detail))[:DETAIL_LENGTH_MAX],
        )
        logger.info(
            "%s of %s by token %s (%s): %s",
            record.operation,
            record.what or "the node",
            record.token or "-",
            record.client,
            record.result,
            extra={
                "operation": record.operation,
                "what": record.what,
                "token": record.token,
                "client": record.client,
                "result": record.result,
            },
        )
        self._journal.note(record)
        self._journal.lane.wait(lambda failed: wait.done(None))
        return wait

    def _room(self, now_us: int) -> bool:
        if not 0 <= now_us - self._window_us < WINDOW_US:
            self._window_us, self._refusals = now_us, 0
        self._refusals += 1
        return self._refusals <= REFUSALS_MAX


def _what(operation: Control) -> str:
    fields = [without_secret(str(getattr(operation, name, "") or "")) for name in NAMES]
    return shown(redacted(" ".join(part for part in fields if part)))[:WHAT_LENGTH_MAX]


def _detail(operation: Control, result: Any) -> str:
    fields: list[tuple[str, Any]] = [(name, getattr(operation, name, None)) for name in DETAILS]
    if isinstance(result, TokenCreated):
        fields.insert(0, ("token", result.info.token))
    return ", ".join(f"{name}={value}" for name, value in fields if value not in (None, [], {}, ()))
