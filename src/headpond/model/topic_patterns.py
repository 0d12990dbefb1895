"""Which topics a link is about: names and patterns, as scopes are written.

``shop/*`` is everything of tenant shop, ``acme/shop/till/orders-*`` topics of one component, ``*`` all there
is. What has no slash is a name, or the beginning of names and a star, below ``default``. Dead-letter topics
follow only where a pattern names them: each node buries what its own subscriptions failed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from headpond.model.errors import BadRequest, BadScope
from headpond.model.place import LEVELS, Place
from headpond.model.scope import ANY, Scope
from headpond.model.topic import DEAD_SUFFIX

PATTERNS_MAX = 64
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
        bare = (text != ANY and "/" not in text for text in texts)
        try:
            found = [
                Scope.of_topic(text) if is_bare else Scope.parse(text)
                for text, is_bare in zip(texts, bare, strict=True)
            ]
        except BadScope as error:
            raise BadScope(error.message, hint=_HINT) from None
        return cls(tuple(dict.fromkeys(found)))

    def match(self, topic: str) -> bool:
        """Whether a topic, by its whole name, is one of these."""
        place = Place.of(topic)
        dead = topic.endswith(DEAD_SUFFIX)
        return any(scope.holds(place) and (not dead or _names_dead(scope)) for scope in self.scopes)


def _names_dead(scope: Scope) -> bool:
    return len(scope.parts) == len(LEVELS) and DEAD_SUFFIX in scope.parts[-1]
