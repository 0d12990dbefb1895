"""The guard: greets clients, ends connections when their token ends, and checks every operation.

=========================  ===================================================================================
the node                   who may connect
=========================  ===================================================================================
never had a token          everybody, for everything; the node ignores a token that a client sends
has, or had one            clients with a valid token, for what it allows
=========================  ===================================================================================

With the first token every connection that has none is closed; with a revocation, or when its time is over,
every connection of that token.
"""

from __future__ import annotations

from typing import Any

from headpond.broker.access.groups import Elsewhere, check_group
from headpond.broker.access.quotas import Quotas
from headpond.broker.access.rights import Checked, check, check_frame, keeps, reaches_stage
from headpond.broker.access.tokens import KnownToken
from headpond.broker.context import Context
from headpond.broker.session import Session
from headpond.broker.sessions import Sessions
from headpond.broker.stores import Stores
from headpond.model.errors import (
    HeadpondError,
    NotAllowed,
    StageNotFound,
    TokenExpired,
    TokenNeeded,
    TokenRevoked,
)
from headpond.model.grant import ALL
from headpond.wire.control.greeting import Hello
from headpond.wire.control.staging import ListWriters, ShowWriter

LOOK_US = 30_000_000
"""How often expiries are looked at, at the least: the time of day may be set."""


class Guard:
    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        stores: Stores,
        quotas: Quotas,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._catalog = stores.catalog
        self._tokens = stores.tokens
        self._stages = stores.stages
        self._quotas = quotas
        self._elsewhere = elsewhere
        self._alarm = context.alarms.add(self._on_time)

    # --- coming and going ---------------------------------------------------------------------------

    def greet(self, session: Session, hello: Hello) -> None:
        """Gives a client the rights of its token, or raises why it may not connect."""
        if not self._tokens.guarded:
            session.grant = ALL
            return
        try:
            if not hello.token:
                raise TokenNeeded("this node asks for a token, and none was given")
            token = self._tokens.find(hello.token, self._context.now_us())
            self._quotas.greet(session, token.grant)
        except HeadpondError as error:
            self._context.counters[f"greetings_refused_{error.code}"] += 1
            raise
        session.grant, session.token, session.token_name = token.grant, token.id, token.made.name
        session.expires_us = token.made.expires_at_us
        token.used_at_us = self._context.now_us()
        token.connections.add(session.connection)
        self._arm(session)

    def leave(self, session: Session) -> None:
        token = self._tokens.get(session.token)
        if token is not None:
            token.connections.discard(session.connection)

    def revoked(self, token: KnownToken) -> None:
        """The revocation is durable: ends the connections of the token."""
        for connection in sorted(token.connections):
            self._sessions.refuse(connection, TokenRevoked(f"token {token.id} ({token.made.name}) was revoked"))

    def closed_to_all(self) -> None:
        """The first token exists now: ends all connections that have none."""
        error = TokenNeeded("this node has tokens now, and this connection was opened without one")
        for session in self._sessions:
            if session.greeted and not session.token:
                self._sessions.refuse(session.connection, error)

    # --- time ---------------------------------------------------------------------------------------

    def _arm(self, session: Session) -> None:
        if session.expires_us is not None:
            left_us = min(max(session.expires_us - self._context.now_us(), 0), LOOK_US)
            self._alarm.by(self._context.clock_us() + left_us)

    def _on_time(self) -> None:
        """Ends connections whose token has expired."""
        for session in self._sessions:
            if self._expired(session):
                self._sessions.refuse(session.connection, self._over(session))
            else:
                self._arm(session)

    def _expired(self, session: Session) -> bool:
        return session.expires_us is not None and self._context.now_us() >= session.expires_us

    def _over(self, session: Session) -> TokenExpired:
        return TokenExpired(f"token {session.token} ({session.token_name}) has expired")

    # --- judging ------------------------------------------------------------------------------------

    def check_frame(self, session: Session, frame_type: int) -> None:
        """Raises why a connection must end that sends a frame of this type."""
        if session.expires_us is not None and self._expired(session):
            raise self._over(session)
        if session.grant is not ALL:
            check_frame(session.grant, frame_type)

    def check(self, session: Session, operation: Checked) -> None:
        try:
            check(session.grant, operation, self._catalog.name_of)
        except NotAllowed:
            self._context.counters["operations_not_allowed"] += 1
            raise
        if self._elsewhere is not None:
            check_group(operation, self._elsewhere)

    def check_stages(self, session: Session, stages: list[bytes]) -> None:
        """Stages that are out of the session's reach are as if they did not exist."""
        for uuid in stages:
            if not self.sees_stage(session, uuid):
                raise StageNotFound(f"there is no stage {uuid.hex()}")

    def sees_stage(self, session: Session, uuid: bytes) -> bool:
        """Whether a stage is within the session's reach, or does not exist."""
        stage = self._stages.get(uuid)
        return stage is None or reaches_stage(session.grant, stage.writer, self._catalog.name_of(stage.topic))

    def visible(self, session: Session, operation: Checked, result: Any) -> Any:
        """The part of a result that the session's token may see."""
        if session.grant is ALL:
            return result
        if isinstance(operation, ShowWriter) and not keeps(session.grant, ListWriters(), result):
            raise NotAllowed(f"writer {result.writer!r} has topics that the token does not reach")
        if operation.rule.listing:
            return [each for each in result if keeps(session.grant, operation, each)]
        return result
