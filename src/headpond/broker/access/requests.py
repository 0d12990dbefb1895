"""Tokens created, listed, shown and revoked; the rights of a client; reading the log of administration."""

from __future__ import annotations

import math
from typing import Any

from headpond.broker.access.guard import Guard
from headpond.broker.access.tokens import KnownToken, TokenChange, TokenEnded, make_token
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.session import Session
from headpond.broker.steps import Reply, Steps, journaled
from headpond.broker.stores import Stores
from headpond.model.errors import BadRequest, NotAllowed, TokenNotFound
from headpond.model.grant import ALL, Grant, without_secret
from headpond.storage.disk import Disk
from headpond.wire.control.access import (
    AccessInfo,
    AdminRecord,
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
    TokenInfo,
)

RECOVERED_MAX = 100


class TokenRequests:
    def __init__(
        self, context: Context, disk: Disk, stores: Stores, guard: Guard, watermark: Watermark
    ) -> None:
        self._context = context
        self._disk = disk
        self._stores = stores
        self._tokens = stores.tokens
        self._guard = guard
        self._watermark = watermark

    def list_tokens(self, session: Session, ask: ListTokens) -> list[TokenInfo]:
        return [token_info(token) for token in self._tokens if self._sees(session, token)]

    def show_token(self, session: Session, ask: ShowToken) -> TokenInfo:
        return token_info(self._find(session, ask.token))

    def list_admin_log(self, session: Session, ask: ListAdminLog) -> list[AdminRecord]:
        records = self._stores.admin_log.records
        return records[max(0, len(records) - ask.count) :]

    def _sees(self, session: Session, token: KnownToken) -> bool:
        return session.grant is ALL or session.grant.covers(token.grant)

    def _find(self, session: Session, id_or_name: str) -> KnownToken:
        """By id or name, among those that the session may see; of several names, the one not revoked."""
        id_or_name = without_secret(id_or_name)
        token = self._tokens.get(id_or_name)
        found = [token] if token is not None else self._tokens.named(id_or_name)
        found = [each for each in found if self._sees(session, each)]
        found = [each for each in found if each.revoked_at_us is None] or found
        if len(found) > 1:
            raise BadRequest(
                f"{len(found)} tokens have the name {id_or_name[:80]!r}",
                hint="Give the id: `headpond token list`.",
            )
        if not found:
            raise TokenNotFound(f"there is no token {id_or_name[:80]!r}")
        return found[0]

    # --- making -------------------------------------------------------------------------------------

    def create_token(self, session: Session, ask: CreateToken) -> Steps[Any]:
        grant = Grant.parse(ask.rights, ask.scopes, ask.producer, ask.subscription)
        if not ask.name or not ask.name.isprintable():
            raise BadRequest("a token's name is printable and not empty")
        first = not self._tokens.guarded
        if first and (not grant.covers(ALL) or ask.lasts_s is not None):
            raise BadRequest(
                "the first token must be for an admin of everything and must not expire: it makes the others",
                hint="`headpond token bootstrap` makes it.",
            )
        if not first and not session.grant.covers(grant):
            within = ", ".join(map(str, session.grant.scopes))
            raise NotAllowed(f"an admin of {within} can only make tokens within that")
        now_us = self._context.now_us()
        expires_us = None if ask.lasts_s is None else now_us + math.ceil(ask.lasts_s * 1e6)
        if session.expires_us is not None and (expires_us is None or expires_us > session.expires_us):
            left_s = max(0, session.expires_us - now_us) // 1_000_000
            raise NotAllowed(
                f"a token that expires in {left_s:,} s can only make tokens that expire no later",
                hint="Give it a shorter time with --expires, or have it made with a token that lasts longer.",
            )
        secret, made = make_token(
            grant, ask.name, self._context.new_uuid, at_us=now_us, by=session.token, expires_us=expires_us
        )
        changes: list[TokenChange] = [*self._tokens.room(session.grant), made]
        yield from self._write(changes)
        token = self._tokens.get(made.id)
        assert token is not None
        created = TokenCreated(secret, token_info(token))
        return Reply(created, self._guard.closed_to_all) if first else created

    def revoke_token(self, session: Session, ask: RevokeToken) -> Steps[Any]:
        token = self._find(session, ask.token)
        yield from self._write([TokenEnded(token.id, self._context.now_us())])
        revoked = {"token": token.id, "revoked": True, "connections": len(token.connections)}
        if session.token == token.id:  # the client gets the answer before its connection ends
            return Reply(revoked, lambda: self._guard.revoked(token))
        self._guard.revoked(token)
        return revoked

    def _write(self, changes: list[TokenChange]) -> Steps[None]:
        yield journaled(self._stores.tokens_journal, *changes)
        for change in changes:
            self._tokens.apply(change)

    # --- showing ------------------------------------------------------------------------------------

    def show_access(self, session: Session, ask: ShowAccess) -> AccessInfo:
        grant, everything = session.grant, session.grant.covers(ALL)
        try:
            free_bytes = self._disk.free_bytes() if everything else None
        except OSError:
            free_bytes = None
        return AccessInfo(
            self._tokens.guarded,
            session.token,
            session.token_name,
            sorted(grant.rights),
            [str(scope) for scope in grant.scopes],
            grant.producer,
            grant.subscription,
            session.expires_us,
            self._context.now_us(),
            free_bytes,
            self._context.settings.limits.free_bytes_min if everything else None,
            self._watermark.lack() is not None if everything else None,
            self._stores.last_stop if everything else "",
            self._stores.recovered[:RECOVERED_MAX] if everything else [],
        )


def token_info(token: KnownToken) -> TokenInfo:
    made = token.made
    return TokenInfo(
        made.id,
        made.name,
        list(made.rights),
        list(made.scopes),
        made.producer,
        made.subscription,
        made.created_at_us,
        made.created_by,
        made.expires_at_us,
        token.revoked_at_us,
        len(token.connections),
        token.used_at_us,
    )
