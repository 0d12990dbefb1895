"""Messages about tokens, rights, and the audit log of administration."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from headpond.model.bounds import Name, TopicText, Word
from headpond.model.grant import SCOPES_MAX
from headpond.wire.control.operation import ADMIN, ANYBODY, OperationOf, Rule, whole_node

LASTS_S_MAX = 100 * 365 * 86_400.0
ADMIN_RECORDS_MAX = 10_000
"""Records of administration in one answer."""

# --- tokens -----------------------------------------------------------------------------------------


class TokenCreated(msgspec.Struct, frozen=True):
    secret: str
    """The token's whole text."""
    info: TokenInfo

    def __repr__(self) -> str:
        return f"TokenCreated(secret='…', info={self.info!r})"


class CreateToken(OperationOf[TokenCreated], frozen=True, tag="create_token"):
    """Makes a token; the answer is ``TokenCreated``, the only message that contains its text."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, logged=True)

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
    """How long it is valid; None: until it is revoked."""


class TokenInfo(msgspec.Struct, frozen=True):
    token: str
    """Its id. The node stores only a hash of the secret."""
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
    """Connections that use it now."""
    used_at_us: int = 0
    """When a connection last opened with it, since the node started; 0: never."""


class ListTokens(OperationOf[list[TokenInfo]], frozen=True, tag="list_tokens"):
    """Lists the tokens within the scope of the caller's token."""

    rule: ClassVar[Rule] = Rule(ADMIN)


class ShowToken(OperationOf[TokenInfo], frozen=True, tag="show_token"):
    rule: ClassVar[Rule] = Rule(ADMIN)

    token: Name
    """Its id, or its name if no other token has that name."""


class RevokeToken(OperationOf[Any], frozen=True, tag="revoke_token"):
    """Revokes a token and closes every connection that uses it."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, logged=True)

    token: Name


# --- own rights -------------------------------------------------------------------------------------


class AccessInfo(msgspec.Struct, frozen=True):
    guarded: bool
    """Whether the node requires tokens."""
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
    """Free space on the node's disk, for an admin of everything."""
    free_bytes_min: int | None = None
    """Below this the node refuses sends."""
    disk_full: bool | None = None
    """Whether the node refuses sends for lack of space, for an admin of everything."""
    last_stop: str = ""
    """How the previous run ended, for an admin of everything: ``clean``, ``cut_short``; empty: no run."""
    recovered: list[str] = []
    """What recovery found damaged, missing or torn at the start; for an admin of everything."""


class ShowAccess(OperationOf[AccessInfo], frozen=True, tag="show_access"):
    """Asks what this connection may do; needs no right."""

    rule: ClassVar[Rule] = Rule(ANYBODY)


# --- the log of administration ----------------------------------------------------------------------


class AdminRecord(msgspec.Struct, array_like=True, frozen=True):
    at_us: int
    token: str
    """The id of the token; empty at a node without tokens."""
    name: str
    """The name of the token."""
    client: str
    """The name that the client gave in HELLO."""
    operation: str
    what: str
    """The object of the operation."""
    result: str
    """``done``, or the code of the error."""
    detail: str = ""


class ListAdminLog(OperationOf[list[AdminRecord]], frozen=True, tag="list_admin_log"):
    """Lists the latest ``count`` administrative operations, oldest first."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)

    count: Annotated[int, msgspec.Meta(ge=0, le=ADMIN_RECORDS_MAX)] = 100


AccessOperation = CreateToken | ListTokens | ShowToken | RevokeToken | ShowAccess | ListAdminLog
