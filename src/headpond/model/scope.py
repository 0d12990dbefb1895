"""Scopes: which part of the tree a token reaches, written from the tenant down.

``*`` is everything, ``acme`` the tenant and all below it, ``acme/shop`` one product of it,
``acme/shop/till/orders`` one topic. A part is a name, ``*`` for any, or the beginning of names and a star
(``orders-*``). No other patterns: so that whether one scope lies within another can be said exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from headpond.model.errors import BadScope
from headpond.model.place import LEVELS, Place
from headpond.model.topic import DEFAULT_PART, is_part, shown_name

ANY = "*"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    parts: tuple[str, ...]
    """At most four; what stands below the last one is within the scope too."""

    @classmethod
    def parse(cls, text: str) -> Scope:
        if not isinstance(text, str):
            raise BadScope(f"a scope is text, not {type(text).__name__}")
        parts = text.split("/")
        if len(parts) > len(LEVELS):
            raise BadScope(f"scope {shown_name(text)} has {len(parts)} parts; it takes 1 to {len(LEVELS)}")
        for part in parts:
            name = part.removesuffix(ANY)
            if part != ANY and not (is_part(name) or (part.endswith(ANY) and is_part(f"{name}x"))):
                raise BadScope(f"scope {shown_name(text)}: {shown_name(part)} is not a name or a pattern")
        while len(parts) > 1 and parts[-1] == ANY:
            parts.pop()  # all that is below is meant anyway
        return cls(tuple(parts))

    @classmethod
    def of_topic(cls, text: str) -> Scope:
        """One topic, or a pattern of topics: bare names stand below ``default`` as everywhere else."""
        parts = text.split("/")
        if len(parts) == 1:
            parts = [*[DEFAULT_PART] * (len(LEVELS) - 1), *parts]
        if len(parts) != len(LEVELS):
            raise BadScope(f"topic {shown_name(text)} has {len(parts)} parts; it takes 1 or {len(LEVELS)}")
        return cls.parse("/".join(parts))

    def holds(self, place: Place) -> bool:
        """Whether a place, and with it all that stands below it, is within the scope."""
        if self.parts == (ANY,):
            return True
        if len(place.parts) < len(self.parts):
            return False
        return all(_matches(pattern, part) for pattern, part in zip(self.parts, place.parts, strict=False))

    def covers(self, other: Scope) -> bool:
        """Whether all that ``other`` reaches is within this one."""
        return self.holds(Place(other.parts)) or self == other

    def __str__(self) -> str:
        return "/".join(self.parts)


EVERYTHING = Scope((ANY,))


def _matches(pattern: str, part: str) -> bool:
    """``part`` is a name, or itself a pattern: then all that it matches must be matched."""
    if pattern == ANY:
        return True
    if pattern.endswith(ANY):
        return part.startswith(pattern[:-1])
    return part == pattern
