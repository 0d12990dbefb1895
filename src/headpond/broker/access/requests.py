"""Tokens made, listed, shown and revoked; what a client may do; the log of administration, read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.access.guard import Guard
from headpond.broker.access.tokens import Token, TokenChange, TokenEnded, encode_change, make_token
from headpond.broker.session import Session
from headpond.model.errors import BadRequest, HeadpondError, NotAllowed, TokenNotFound
from headpond.model.grant import ALL, Grant, without_secret
from headpond.wire.control.access import (
    AccessInfo,
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
    TokenInfo,
)
from headpond.wire.control.codec import Operation

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

RECOVERED_MAX = 100

Answer = Callable[[Any], None]
Refuse = Callable[[HeadpondError], None]


class TokenRequests:
    def __init__(self, node: NodeCore, guard: Guard) -> None:
        self._node = node
        self._guard = guard
        self._tokens = node.stores.tokens

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about access."""
        if isinstance(operation, CreateToken):
            self._create(session, operation, answer, refuse)
        elif isinstance(operation, ListTokens):
            answer([token_info(token) for token in self._tokens if self._sees(session, token)])
        elif isinstance(operation, ShowToken):
            answer(token_info(self._find(session, operation.token)))
        elif isinstance(operation, RevokeToken):
            self._revoke(session, operation, answer, refuse)
        elif isinstance(operation, ShowAccess):
            answer(self._access(session))
        elif isinstance(operation, ListAdminLog):
            records = self._node.stores.admin_log.records
            answer(records[max(0, len(records) - operation.count) :])
        else:
            return False
        return True

    def _sees(self, session: Session, token: Token) -> bool:
        return session.grant is ALL or session.grant.covers(token.grant)

    def _find(self, session: Session, said: str) -> Token:
        """By id or name, among those that the session may know of; of several names, the one not revoked."""
        said = without_secret(said)
        token = self._tokens.get(said)
        found = [token] if token is not None else self._tokens.named(said)
        found = [each for each in found if self._sees(session, each)]
        found = [each for each in found if each.revoked_at_us is None] or found
        if len(found) > 1:
            raise BadRequest(
                f"{len(found)} tokens have the name {said[:80]!r}", hint="Give the id: `headpond token list`."
            )
        if not found:
            raise TokenNotFound(f"there is no token {said[:80]!r}")
        return found[0]

    # --- making -------------------------------------------------------------------------------------

    def _create(self, session: Session, ask: CreateToken, answer: Answer, refuse: Refuse) -> None:
        grant = Grant.parse(ask.rights, ask.scopes, ask.producer, ask.subscription)
        if not ask.name or not ask.name.isprintable():
            raise BadRequest("a token's name is printable and not empty")
        first = not self._tokens.guarded
        if first and (not grant.covers(ALL) or ask.lasts_s is not None):
            raise BadRequest(
                "the first token must be an admin's of everything, without an end: nobody else could make more",
                hint="`headpond token bootstrap` makes it.",
            )
        if not first and not session.grant.covers(grant):
            within = ", ".join(map(str, session.grant.scopes))
            raise NotAllowed(f"an admin of {within} can make tokens within that alone")
        now_us = self._node.now_us()
        expires_us = None if ask.lasts_s is None else now_us + math.ceil(ask.lasts_s * 1e6)
        if session.expires_us is not None and (expires_us is None or expires_us > session.expires_us):
            left_s = max(0, session.expires_us - now_us) // 1_000_000
            raise NotAllowed(
                f"a token that ends in {left_s:,} s can make tokens that end no later alone",
                hint="Give it a shorter time with --expires, or have it made with a token that lasts longer.",
            )
        secret, made = make_token(
            grant, ask.name, self._node.new_uuid, at_us=now_us, by=session.token, expires_us=expires_us
        )
        changes: list[TokenChange] = [*self._tokens.room(session.grant), made]

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            for change in changes:
                self._tokens.apply(change)
            token = self._tokens.get(made.id)
            assert token is not None
            answer(TokenCreated(secret, token_info(token)))
            if first:  # the answer goes out before
                self._after_answer(self._guard.closed_to_all)

        self._node.stores.tokens_kept.change([encode_change(change) for change in changes], durable)

    def _revoke(self, session: Session, ask: RevokeToken, answer: Answer, refuse: Refuse) -> None:
        token = self._find(session, ask.token)
        ended = TokenEnded(token.id, self._node.now_us())

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            self._tokens.apply(ended)
            connections = len(token.connections)
            answer({"token": token.id, "revoked": True, "connections": connections})
            if session.token == token.id:  # it hears of it first
                self._after_answer(lambda: self._guard.revoked(token))
            else:
                self._guard.revoked(token)

        self._node.stores.tokens_kept.change([encode_change(ended)], durable)

    def _after_answer(self, act: Callable[[], None]) -> None:
        """The answer waits for the log of administration, so what is to come after it waits there too."""
        self._node.stores.admin_log_kept.lane.wait(lambda error: act())

    # --- showing ------------------------------------------------------------------------------------

    def _access(self, session: Session) -> AccessInfo:
        grant, everything = session.grant, session.grant.covers(ALL)
        try:
            free_bytes = self._node.disk.free_bytes() if everything else None
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
            self._node.now_us(),
            free_bytes,
            self._node.settings.limits.free_bytes_min if everything else None,
            self._node.watermark.lack() is not None if everything else None,
            self._node.stores.last_stop if everything else "",
            self._node.recovered[:RECOVERED_MAX] if everything else [],
        )


def token_info(token: Token) -> TokenInfo:
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
