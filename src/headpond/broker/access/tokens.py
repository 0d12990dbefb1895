"""Tokens, and the journal ``tokens`` that has them.

The text of a token is ``hpd_ID_SECRET``. The id (12 hexadecimal digits) is not secret: lists and logs show it.
The secret is 32 random bytes, of which the node stores only SHA-256(salt + secret). A fast hash is enough: a
slow one protects secrets that can be guessed, and would let any client keep the node busy with greetings.

=== =============== =========================================================================================
tag record          says
=== =============== =========================================================================================
1   TokenMade       a token exists
2   TokenEnded      the token was revoked
3   TokenForgotten  the token is not listed from now on (the oldest revoked ones, past ``TOKENS_MAX``)
4   Guarded         there were tokens once: the node asks for one from then on
=== =============== =========================================================================================

A node that ever had a token stays closed: revoking the last one does not open it. A rotted record may have been
the revocation of any token, so all tokens are revoked then, and ``headpond token bootstrap`` makes a new one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from headpond.model.errors import LimitReached, TokenExpired, TokenRevoked, TokenUnknown
from headpond.model.grant import ALL, PREFIX, Grant
from headpond.storage.journal import TableState

ID_BYTES = 6
SECRET_BYTES = 32
TOKENS_MAX = 10_000
REACHED_MAX = 1_000
"""How many an admin may reach who does not reach everything: it cannot use up all that the node holds."""
TEXT_LENGTH_MAX = 256


class TokenMade(msgspec.Struct, array_like=True, frozen=True, tag=1):
    id: str
    name: str
    rights: list[str]
    scopes: list[str]
    producer: str
    subscription: str
    created_at_us: int
    created_by: str
    expires_at_us: int | None
    salt: bytes
    digest: bytes
    revoked_at_us: int | None = None


class TokenEnded(msgspec.Struct, array_like=True, frozen=True, tag=2):
    id: str
    at_us: int


class TokenForgotten(msgspec.Struct, array_like=True, frozen=True, tag=3):
    id: str


class Guarded(msgspec.Struct, array_like=True, frozen=True, tag=4):
    pass


TokenChange = TokenMade | TokenEnded | TokenForgotten | Guarded


@dataclass(slots=True)
class KnownToken:
    made: TokenMade
    grant: Grant
    revoked_at_us: int | None = None
    used_at_us: int = 0
    connections: set[int] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.made.id

    def check(self, now_us: int) -> None:
        """Whether it is good now."""
        if self.revoked_at_us is not None:
            raise TokenRevoked(f"token {self.id} ({self.made.name}) was revoked")
        if self.made.expires_at_us is not None and now_us >= self.made.expires_at_us:
            raise TokenExpired(f"token {self.id} ({self.made.name}) has expired")


class Tokens(TableState):
    decoder = msgspec.msgpack.Decoder(TokenChange)

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.guarded = False
        """Whether a token is asked for."""
        self._by_id: dict[str, KnownToken] = {}

    def get(self, id: str) -> KnownToken | None:
        return self._by_id.get(id)

    def named(self, name: str) -> list[KnownToken]:
        return [token for token in self._by_id.values() if token.made.name == name]

    def __iter__(self) -> Iterator[KnownToken]:
        return iter(sorted(self._by_id.values(), key=lambda token: token.made.created_at_us))

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, text: str, now_us: int) -> KnownToken:
        """The token of that text, or raises why it is not valid."""
        token_id, secret = _parse(text)
        token = self._by_id.get(token_id)
        if token is None or not hmac.compare_digest(_digest(token.made.salt, secret), token.made.digest):
            raise TokenUnknown("this node does not know the token")
        token.check(now_us)  # only now: whether it was revoked is for its holder alone to know
        return token

    # --- changes ------------------------------------------------------------------------------------

    def apply(self, change: TokenChange) -> None:
        self.guarded = True
        if isinstance(change, TokenMade):
            grant = Grant.parse(change.rights, change.scopes, change.producer, change.subscription)
            self._by_id[change.id] = KnownToken(change, grant, change.revoked_at_us)
        elif isinstance(change, TokenEnded) and (token := self._by_id.get(change.id)) is not None:
            token.revoked_at_us = token.revoked_at_us or change.at_us
        elif isinstance(change, TokenForgotten):
            self._by_id.pop(change.id, None)

    def on_damage(self, *, lost: bool) -> None:
        """Lost records may have held the only token, or a revocation: revokes all, and stays guarded."""
        self.guarded = True
        if lost:
            for token in self:
                token.revoked_at_us = token.revoked_at_us or self._now_us()

    def snapshot(self) -> Iterator[TokenChange]:
        if self.guarded:
            yield Guarded()
        for token in self:
            yield msgspec.structs.replace(token.made, revoked_at_us=token.revoked_at_us)

    def room(self, grant: Grant) -> list[TokenForgotten]:
        """The tokens to forget so that a client with this grant can make one more."""
        whole = grant.covers(ALL)
        reached = list(self) if whole else [token for token in self if grant.covers(token.grant)]
        if len(self) < TOKENS_MAX and (whole or len(reached) < REACHED_MAX):
            return []
        revoked = next((token for token in reached if token.revoked_at_us is not None), None)
        if revoked is None:
            most = f"{REACHED_MAX:,} within this one's scopes" if len(self) < TOKENS_MAX else f"{TOKENS_MAX:,}"
            raise LimitReached(f"this node holds at most {most} tokens", hint="Revoke some first.")
        return [TokenForgotten(revoked.id)]


def make_token(
    grant: Grant, name: str, random_bytes: Callable[[], bytes], *, at_us: int, by: str, expires_us: int | None
) -> tuple[str, TokenMade]:
    """A token's text and its record. ``random_bytes`` gives 16 random bytes a call, as a uuid has them."""
    token_id = hashlib.sha256(random_bytes()).digest()[:ID_BYTES].hex()
    # Three, because a random uuid has 122 random bits and the secret is to have 256.
    secret = hashlib.sha256(random_bytes() + random_bytes() + random_bytes()).digest()
    salt = random_bytes()
    made = TokenMade(
        token_id,
        name,
        sorted(grant.rights),
        [str(scope) for scope in grant.scopes],
        grant.producer,
        grant.subscription,
        at_us,
        by,
        expires_us,
        salt,
        _digest(salt, secret),
    )
    text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
    return f"{PREFIX}_{token_id}_{text}", made


def _digest(salt: bytes, secret: bytes) -> bytes:
    return hashlib.sha256(salt + secret).digest()


def _parse(text: str) -> tuple[str, bytes]:
    pieces = text.split("_", 2) if len(text) <= TEXT_LENGTH_MAX else []
    try:
        prefix, token_id, encoded = pieces
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        prefix, token_id, secret = "", "", b""
    if prefix != PREFIX or len(secret) != SECRET_BYTES:
        raise TokenUnknown("this is not a token", hint="A token looks like hpd_ID_SECRET.")
    return token_id, secret
