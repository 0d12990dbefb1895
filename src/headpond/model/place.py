"""Places of the tree that topics live in: a tenant, a product of it, a component of that, a topic.

A place is written as its parts with slashes between. A bare name stands below ``default``s, as a bare topic
name does: the product ``shop`` is ``default/shop``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headpond.model.errors import BadRequest, BadTopicName
from headpond.model.topic import DEFAULT_PART, is_part, shown_name

LEVELS = ("tenant", "product", "component", "topic")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, level: str) -> Place:
        """Reads the name of a place of a level: a bare name or all its parts."""
        if level not in LEVELS:
            raise BadRequest(f"there is no level {level!r}", hint=f"It is one of {', '.join(LEVELS)}.")
        depth = LEVELS.index(level) + 1
        if not isinstance(text, str):
            raise BadTopicName(f"a {level} name is text, not {type(text).__name__}")
        parts = text.split("/")
        if len(parts) == 1:
            parts = [*[DEFAULT_PART] * (depth - 1), *parts]
        if len(parts) != depth:
            takes = "1" if depth == 1 else f"1 or {depth}"
            raise BadTopicName(
                f"{level} name {shown_name(text)} has {len(parts)} parts; it takes {takes}",
                hint=f"Write NAME or {'/'.join(LEVELS[:depth])}." if depth > 1 else "Write one NAME.",
            )
        for part in parts:
            if not is_part(part):
                raise BadTopicName(f"{level} name {shown_name(text)}: {shown_name(part)} is not allowed")
        return cls(tuple(parts))

    @classmethod
    def of(cls, name: str) -> Place:
        """A place by its whole name, as ``str`` makes it; the name is known to be sound."""
        return cls(tuple(name.split("/")))

    @property
    def level(self) -> str:
        return LEVELS[len(self.parts) - 1]

    @property
    def parent(self) -> Place | None:
        return Place(self.parts[:-1]) if len(self.parts) > 1 else None

    @property
    def ancestors(self) -> Iterator[Place]:
        """Those it stands below, the nearest first."""
        place = self.parent
        while place is not None:
            yield place
            place = place.parent

    def holds(self, other: Place) -> bool:
        """Whether ``other`` stands somewhere below it."""
        return len(other.parts) > len(self.parts) and other.parts[: len(self.parts)] == self.parts

    @property
    def shown(self) -> str:
        return f"{self.level} {self}"

    def __str__(self) -> str:
        return "/".join(self.parts)
