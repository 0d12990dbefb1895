"""Names of topics and of the places that hold them, scopes of tokens, patterns of links.

A **topic name** is ``tenant/product/component/topic``; a bare name is in ``default/default/default``.

A **place** is a tenant, a product, a component or a topic, written as its parts with slashes between. A bare
name is below ``default``s: the product ``shop`` is ``default/shop``.

A **scope** is the part of the tree that a token reaches, from the tenant down: ``*`` is everything, ``acme``
the tenant and everything below it, ``acme/shop`` one product, ``acme/shop/till/orders`` one topic. A part is
a name, ``*`` for any, or a prefix and a star (``orders-*``). There are no other patterns, so that it is
decidable whether one scope lies within another.

A link lists its topics as **patterns**, written as scopes; a pattern without a slash is below ``default``.
Dead-letter topics match only a pattern that names them, because each node buries what its own subscriptions
failed to deliver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from headpond.model.errors import BadRequest, BadScope, BadTopicName

PART_LENGTH_MAX = 128
DEAD_SUFFIX = ".dead"
"""A topic's dead letters go to the topic with this suffix, so every name must leave room for it."""
TOPIC_PART_LENGTH_MAX = PART_LENGTH_MAX - len(DEAD_SUFFIX)
_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
DEFAULT_PART = "default"
LEVELS = ("tenant", "product", "component", "topic")
ANY = "*"
PATTERNS_MAX = 64


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    tenant: str
    product: str
    component: str
    topic: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parses a bare name or all four parts; anything else is a ``BadTopicName`` that names the part."""
        parts = Place.parse(text, "topic").parts
        if len(parts[-1].removesuffix(DEAD_SUFFIX)) > TOPIC_PART_LENGTH_MAX:
            raise BadTopicName(
                f"topic name {shown_name(text)}: its topic has {len(parts[-1])} characters, "
                f"and at most {TOPIC_PART_LENGTH_MAX} leave room for the one with its dead letters (TOPIC.dead)"
            )
        return cls(*parts)

    @classmethod
    def of(cls, name: str) -> TopicName:
        """A topic by its full name, which must be valid."""
        return cls(*name.split("/"))

    @property
    def short(self) -> str:
        """The bare name if the rest is default, else the full name."""
        if (self.tenant, self.product, self.component) == (DEFAULT_PART, DEFAULT_PART, DEFAULT_PART):
            return self.topic
        return str(self)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.product}/{self.component}/{self.topic}"


def _parts_of(text: str, depth: int) -> list[str]:
    """The parts of a name; a bare name is below ``default``s."""
    parts = text.split("/")
    return [*[DEFAULT_PART] * (depth - 1), *parts] if len(parts) == 1 else parts


def is_part(text: str) -> bool:
    """Whether a part of a name is valid; the rule also holds for names of subscriptions."""
    return _PART.fullmatch(text) is not None and ".." not in text


def shown_name(text: str) -> str:
    """A name as an error quotes it."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, level: str) -> Place:
        """Parses the name of a place of a level: a bare name or all its parts."""
        if level not in LEVELS:
            raise BadRequest(f"there is no level {level!r}", hint=f"It is one of {', '.join(LEVELS)}.")
        depth = LEVELS.index(level) + 1
        if not isinstance(text, str):
            raise BadTopicName(f"a {level} name is text, not {type(text).__name__}")
        parts = _parts_of(text, depth)
        if len(parts) != depth:
            takes = "1" if depth == 1 else f"1 or {depth}"
            raise BadTopicName(
                f"{level} name {shown_name(text)} has {len(parts)} parts; it takes {takes}",
                hint=f"Write NAME or {'/'.join(LEVELS[:depth])}." if depth > 1 else "Write one NAME.",
            )
        for its_level, part in zip(LEVELS, parts, strict=False):
            if not is_part(part):
                raise BadTopicName(
                    f"{level} name {shown_name(text)}: its {its_level} {shown_name(part)} is not allowed"
                )
        return cls(tuple(parts))

    @classmethod
    def of(cls, name: str) -> Place:
        """A place by its full name, which must be valid."""
        return cls(tuple(name.split("/")))

    @property
    def level(self) -> str:
        return LEVELS[len(self.parts) - 1]

    @property
    def parent(self) -> Place | None:
        return Place(self.parts[:-1]) if len(self.parts) > 1 else None

    @property
    def ancestors(self) -> Iterator[Place]:
        """The places above it, the nearest first."""
        place = self.parent
        while place is not None:
            yield place
            place = place.parent

    def holds(self, other: Place) -> bool:
        """Whether ``other`` is below it, at any depth."""
        return len(other.parts) > len(self.parts) and other.parts[: len(self.parts)] == self.parts

    @property
    def shown(self) -> str:
        return f"{self.level} {self}"

    def __str__(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    parts: tuple[str, ...]
    """At most four; everything below the last one is in the scope too."""

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
            parts.pop()  # everything below is included anyway
        return cls(tuple(parts))

    @classmethod
    def of_topic(cls, text: str) -> Scope:
        """One topic, or a pattern of topics; a bare name is below ``default``."""
        parts = _parts_of(text, len(LEVELS))
        if len(parts) != len(LEVELS):
            raise BadScope(f"topic {shown_name(text)} has {len(parts)} parts; it takes 1 or {len(LEVELS)}")
        return cls.parse("/".join(parts))

    def holds(self, place: Place) -> bool:
        """Whether a place, with everything below it, is in the scope."""
        if self.parts == (ANY,):
            return True
        if len(place.parts) < len(self.parts):
            return False
        return all(_matches(pattern, part) for pattern, part in zip(self.parts, place.parts, strict=False))

    def covers(self, other: Scope) -> bool:
        """Whether this scope includes all of ``other``."""
        return self.holds(Place(other.parts)) or self == other

    def __str__(self) -> str:
        return "/".join(self.parts)


EVERYTHING = Scope((ANY,))


def _matches(pattern: str, part: str) -> bool:
    """Whether ``pattern`` matches a name, or everything that another pattern matches."""
    if pattern == ANY:
        return True
    if pattern.endswith(ANY):
        return part.startswith(pattern[:-1])
    return part == pattern


_HINT = (
    "Write acme/shop/till/orders for a topic, 'acme/*' for a tenant's, 'orders-*' below default, '*' for all."
)


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    scopes: tuple[Scope, ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        if not 0 < len(texts) <= PATTERNS_MAX:
            raise BadRequest(f"{len(texts)} patterns of topics; a link has 1 to {PATTERNS_MAX}")
        try:
            found = [
                Scope.parse(text) if text == ANY or "/" in text else Scope.of_topic(text) for text in texts
            ]
        except BadScope as error:
            raise BadScope(error.message, hint=_HINT) from None
        return cls(tuple(dict.fromkeys(found)))

    def match(self, topic: str) -> bool:
        """Whether a topic, by its full name, matches."""
        place = Place.of(topic)
        dead = topic.endswith(DEAD_SUFFIX)
        return any(
            scope.holds(place)
            and (not dead or (len(scope.parts) == len(LEVELS) and DEAD_SUFFIX in scope.parts[-1]))
            for scope in self.scopes
        )
