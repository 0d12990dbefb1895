"""The rights of a token: what it may do, in which scopes, and optionally under which name only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from headpond.model.bounds import NAME_LENGTH_MAX
from headpond.model.errors import BadRequest
from headpond.model.names import EVERYTHING, Place, Scope

SCOPES_MAX = 64


class Right(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    """Includes the others, because an admin could make a token with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    rights: frozenset[Right]
    scopes: tuple[Scope, ...]
    producer: str = ""
    """The only name to produce under; empty for any."""
    subscription: str = ""
    """The only subscription to consume; empty for any."""

    @classmethod
    def parse(
        cls, rights: Sequence[str], scopes: Sequence[str], producer: str = "", subscription: str = ""
    ) -> Self:
        """Parses a request for a token; raises ``BadRequest`` or ``BadScope``."""
        words = ", ".join(Right)
        unknown = [right for right in rights if right not in set(Right)]
        if unknown or not rights:
            said = f"there is no right {unknown[0][:80]!r}" if unknown else "no right was given"
            raise BadRequest(said, hint=f"Rights are {words}.")
        if not 0 < len(scopes) <= SCOPES_MAX:
            raise BadRequest(f"{len(scopes)} scopes; a token has 1 to {SCOPES_MAX}")
        found = frozenset(map(Right, rights))
        for name, value, right in (
            ("producer", producer, Right.PRODUCE),
            ("subscription", subscription, Right.CONSUME),
        ):
            if len(value) > NAME_LENGTH_MAX:
                raise BadRequest(f"a {name}'s name is at most {NAME_LENGTH_MAX} characters long")
            if value and (right not in found or Right.ADMIN in found):
                raise BadRequest(
                    f"a token bound to a {name} needs the right to {right}, and cannot have that of an admin",
                    hint=f"Leave out the {name}, or give it --{right} without --admin.",
                )
        parsed = tuple(dict.fromkeys(map(Scope.parse, scopes)))
        return cls(rights=found, scopes=parsed, producer=producer, subscription=subscription)

    def has(self, wanted: Iterable[Right]) -> bool:
        return Right.ADMIN in self.rights or any(right in self.rights for right in wanted)

    def reaches(self, place: Place | None) -> bool:
        """Whether the scopes include a place with everything below it; None is the whole node."""
        if place is None:
            return EVERYTHING in self.scopes
        return any(scope.holds(place) for scope in self.scopes)

    def covers(self, other: Grant) -> bool:
        """Whether a token with this grant may create one with ``other``: as an admin, and within its scopes."""
        within = all(any(mine.covers(scope) for mine in self.scopes) for scope in other.scopes)
        return Right.ADMIN in self.rights and within


ALL = Grant(rights=frozenset(Right), scopes=(EVERYTHING,))
"""The grant of every client of a node without tokens, and of the first token."""
NONE = Grant(rights=frozenset(), scopes=())


PREFIX = "hpd"
_WHOLE = re.compile(rf"\b{PREFIX}_([0-9a-f]{{12}})_[\w-]{{8,}}")


def without_secret(said: str) -> str:
    """The id in a token's full text; any other text unchanged. The result can be shown, logged and sent.

    A person who revokes a leaked token may paste its text where an id or a name is expected.
    """
    pieces = said.strip().split("_", 2)
    return pieces[1] if len(pieces) == 3 and pieces[0] == PREFIX else said


def redacted(text: str) -> str:
    """A text from elsewhere, with the secrets of any tokens in it replaced."""
    return _WHOLE.sub(rf"{PREFIX}_\1_…", text)
