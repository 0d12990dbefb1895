"""A record of the log of administration."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.access import AdminRecord


class AdministeredShape(TypedDict):
    at: str
    token: str | None
    name: str | None
    client: str
    operation: str
    what: str
    result: str
    detail: str


def administered_object(record: AdminRecord) -> AdministeredShape:
    return {
        "at": iso_time(record.at_us),
        "token": record.token or None,
        "name": record.name or None,
        "client": record.client,
        "operation": record.operation,
        "what": record.what,
        "result": record.result,
        "detail": record.detail,
    }
