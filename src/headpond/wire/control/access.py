"""The part of the conversation that is about tokens, rights, and the log of administration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import Name, TopicText, Word
from headpond.model.grant import SCOPES_MAX
from headpond.wire.control.greeting import Control

LASTS_S_MAX = 100 * 365 * 86_400.0
ADMIN_RECORDS_MAX = 10_000
"""Records of administration in one answer."""

# --- tokens -----------------------------------------------------------------------------------------


class CreateToken(Control, frozen=True, tag="create_token"):
    """Makes a token; ``TokenCreated`` is the answer, and the only time that its text is shown."""

    name: Name
    """For people: who or what uses it."""
    rights: Annotated[list[Word], msgspec.Meta(max_length=8)]
    """``produce``, ``consume``, ``admin``"""
    scopes: Annotated[list[TopicText], msgspec.Meta(max_length=SCOPES_MAX)]
    producer: Name = ""
    """The only name that it may produce under; empty for any."""
    subscription: Name = ""
    """The only subscription that it may consume; empty for any."""
    lasts_s: Annotated[float, msgspec.Meta(gt=0.0, le=LASTS_S_MAX)] | None = None
    """How long it is good for; None: until it is revoked."""


class ListTokens(Control, frozen=True, tag="list_tokens"):
    """The tokens within the scope of the one that asks."""


class ShowToken(Control, frozen=True, tag="show_token"):
    token: Name
    """Its id, or its name if that is no other's."""


class RevokeToken(Control, frozen=True, tag="revoke_token"):
    """Ends a token, and at once every connection that was opened with it."""

    token: Name


class TokenInfo(msgspec.Struct, frozen=True):
    token: str
    """Its id. Nothing of the secret is kept but a hash."""
    name: str
    rights: list[str]
    scopes: list[str]
    producer: str
    subscription: str
    created_at_us: int
    created_by: str
    """The id of the token that made it; empty at a node without tokens, ``bootstrap`` for a first one."""
    expires_at_us: int | None = None
    revoked_at_us: int | None = None
    connections: int = 0
    """Open with it now."""
    used_at_us: int = 0
    """When a connection was last opened with it, since the node was started; 0 for never."""


class TokenCreated(msgspec.Struct, frozen=True):
    secret: str
    """The token's whole text."""
    info: TokenInfo

    def __repr__(self) -> str:
        return f"TokenCreated(secret='…', info={self.info!r})"


# --- who am I ---------------------------------------------------------------------------------------


class ShowAccess(Control, frozen=True, tag="show_access"):
    """What this connection may do; anybody may ask."""


class AccessInfo(msgspec.Struct, frozen=True):
    """The answer to ``show_access``."""

    guarded: bool
    """Whether the node asks for tokens."""
    token: str
    name: str
    rights: list[str]
    scopes: list[str]
    producer: str = ""
    subscription: str = ""
    expires_at_us: int | None = None
    now_us: int = 0
    """The node's time of day."""
    free_bytes: int | None = None
    """Room on the node's disk, for an admin of everything."""
    free_bytes_min: int | None = None
    """Below this the node refuses sends."""
    disk_full: bool | None = None
    """Whether sends are refused for lack of room, for an admin of everything."""
    last_stop: str = ""
    """How the run before this one ended, for an admin of everything: ``clean``, ``cut_short``; empty: none."""
    recovered: list[str] = []
    """What the node found damaged, missing or torn when it started; for an admin of everything."""


# --- the log of administration ----------------------------------------------------------------------


class ListAdminLog(Control, frozen=True, tag="list_admin_log"):
    """What was administered, the latest ``count``, oldest first."""

    count: Annotated[int, msgspec.Meta(ge=0, le=ADMIN_RECORDS_MAX)] = 100


class AdminRecord(msgspec.Struct, array_like=True, frozen=True):
    at_us: int
    token: str
    """The id of the token; empty at a node without tokens."""
    name: str
    """The token's."""
    client: str
    """What the client called itself."""
    operation: str
    what: str
    """What it was done to."""
    result: str
    """``done``, or the code of the error."""
    detail: str = ""


AccessOperation = CreateToken | ListTokens | ShowToken | RevokeToken | ShowAccess | ListAdminLog
