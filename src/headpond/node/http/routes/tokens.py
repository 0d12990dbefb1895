"""``/v1/tokens``, ``/v1/access``, ``/v1/log``: who may do what, what the caller may, what was administered."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from headpond.model.bounds import Name, TopicText, Word
from headpond.model.grant import SCOPES_MAX, without_secret
from headpond.node.http.asking import Called
from headpond.shapes.convert import iso_time
from headpond.shapes.resources import (
    AdministeredShape,
    RevokedShape,
    TokenShape,
    administered_object,
    token_object,
)
from headpond.wire.control.access import LASTS_S_MAX


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    rights: Annotated[list[Word], msgspec.Meta(max_length=8)]
    """Of produce, consume and admin."""
    scopes: Annotated[list[TopicText], msgspec.Meta(max_length=SCOPES_MAX)]
    """From the tenant down: acme/shop; * is everything."""
    producer: Name = ""
    subscription: Name = ""
    lasts: Annotated[float, msgspec.Meta(ge=1, le=LASTS_S_MAX)] | None = None
    """Seconds that it is good for; null: until it is revoked."""


class AccessShape(msgspec.Struct):
    """What the caller may do."""

    guarded: bool
    token: str | None
    name: str | None
    rights: list[str]
    scopes: list[str]
    producer: str | None
    subscription: str | None
    expires_at: str | None
    now: str
    """The node's time of day."""
    free_bytes: int | None
    """On the node's disk, for an admin of everything."""


@get("/tokens", tags=["tokens"])
async def list_tokens(caller: Called) -> list[TokenShape]:
    """List the tokens within the scope of the caller's, revoked ones too."""
    return [token_object(info) for info in await caller.client.admin.list_tokens()]


@post("/tokens", tags=["tokens"])
async def create_token(caller: Called, data: JSONBody[TokenBody]) -> TokenShape:
    """Make a token. Its `secret` is told here and never again."""
    made = await caller.client.admin.create_token(
        data.name,
        rights=data.rights,
        scopes=data.scopes,
        producer=data.producer,
        subscription=data.subscription,
        lasts=data.lasts,
    )
    return {**token_object(made.info), "secret": made.secret}


@get("/tokens/{token:str}", tags=["tokens"])
async def show_token(caller: Called, token: FromPath[str]) -> TokenShape:
    """Show a token, by its id or its name."""
    return token_object(await caller.client.admin.show_token(token))


@delete("/tokens/{token:str}", status_code=200, tags=["tokens"])
async def revoke_token(caller: Called, token: FromPath[str]) -> RevokedShape:
    """Revoke a token: nobody comes in with it any more, and whoever is in goes at once."""
    await caller.client.admin.revoke_token(token)
    return {"token": without_secret(token), "revoked": True}


@get("/access", tags=["tokens"])
async def show_access(caller: Called) -> AccessShape:
    """What the caller may do, and the node's clock."""
    info = await caller.client.admin.show_access()
    return AccessShape(
        info.guarded,
        info.token or None,
        info.name or None,
        info.rights,
        info.scopes,
        info.producer or None,
        info.subscription or None,
        None if info.expires_at_us is None else iso_time(info.expires_at_us),
        iso_time(info.now_us),
        info.free_bytes,
    )


@get("/log", tags=["tokens"])
async def admin_log(
    caller: Called, count: Annotated[int, QueryParameter(ge=1, le=10_000)] = 100
) -> list[AdministeredShape]:
    """What was administered, the latest, oldest first."""
    return [administered_object(each) for each in await caller.client.admin.list_admin_log(count)]


ROUTES: list[Any] = [list_tokens, create_token, show_token, revoke_token, show_access, admin_log]
