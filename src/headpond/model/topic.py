"""Topic names: ``tenant/product/component/topic``; a bare name lives in ``default/default/default``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headpond.model.errors import BadTopicName

PART_LENGTH_MAX = 128
DEAD_SUFFIX = ".dead"
"""A topic's dead letters go to the topic of its name and this: so that is a name too, for every topic."""
TOPIC_PART_LENGTH_MAX = PART_LENGTH_MAX - len(DEAD_SUFFIX)
_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
DEFAULT_PART = "default"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    tenant: str
    product: str
    component: str
    topic: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Reads a bare name or all four parts; anything else is a ``BadTopicName`` that says which part."""
        if not isinstance(text, str):
            raise BadTopicName(f"a topic name is text, not {type(text).__name__}")
        parts = text.split("/")
        if len(parts) == 1:
            parts = [DEFAULT_PART, DEFAULT_PART, DEFAULT_PART, *parts]
        if len(parts) != 4:
            raise BadTopicName(f"topic name {shown_name(text)} has {len(parts)} parts; it takes 1 or 4")
        for place, part in zip(("tenant", "product", "component", "topic"), parts, strict=True):
            if not is_part(part):
                raise BadTopicName(
                    f"topic name {shown_name(text)}: its {place} {shown_name(part)} is not allowed"
                )
        if len(parts[-1].removesuffix(DEAD_SUFFIX)) > TOPIC_PART_LENGTH_MAX:
            raise BadTopicName(
                f"topic name {shown_name(text)}: its topic has {len(parts[-1])} characters, "
                f"and at most {TOPIC_PART_LENGTH_MAX} leave room for the one with its dead letters (TOPIC.dead)"
            )
        return cls(*parts)

    @classmethod
    def of(cls, name: str) -> TopicName:
        """A topic by its whole name, which is known to be sound."""
        return cls(*name.split("/"))

    @property
    def short(self) -> str:
        """The bare name where the rest is default, else the whole."""
        if (self.tenant, self.product, self.component) == (DEFAULT_PART, DEFAULT_PART, DEFAULT_PART):
            return self.topic
        return str(self)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.product}/{self.component}/{self.topic}"


def is_part(text: str) -> bool:
    """Whether a part of a name is allowed; subscriptions are named by the same rule."""
    return _PART.fullmatch(text) is not None and ".." not in text


def shown_name(text: str) -> str:
    """A name as an error quotes it."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
