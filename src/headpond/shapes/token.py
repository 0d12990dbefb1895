"""A token, without its secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.control.access import AdminRecord, TokenInfo


class TokenListed(TypedDict):
    token: str
    name: str
    rights: list[str]
    scopes: list[str]
    producer: str | None
    subscription: str | None
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None
    connections: int


class TokenShape(TokenListed, total=False):
    secret: str
    """Where it was made just now, and never again."""


class RevokedShape(TypedDict):
    token: str
    revoked: bool


def token_object(info: TokenInfo) -> TokenShape:
    return {
        "token": info.token,
        "name": info.name,
        "rights": info.rights,
        "scopes": info.scopes,
        "producer": info.producer or None,
        "subscription": info.subscription or None,
        "created_at": iso_time(info.created_at_us),
        "created_by": info.created_by or None,
        "expires_at": None if info.expires_at_us is None else iso_time(info.expires_at_us),
        "revoked_at": None if info.revoked_at_us is None else iso_time(info.revoked_at_us),
        "used_at": iso_time(info.used_at_us) if info.used_at_us else None,
        "connections": info.connections,
    }


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
