"""What an operation declares: its fields, the type of its answer, and what it needs of a token.

broker/access/rights.py decides by the declared rule. The decision depends on names alone and comes before
anything is looked up, so a refusal does not show whether a topic exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from headpond.model.bounds import Text, Uuid
from headpond.model.grant import Right
from headpond.model.names import DEAD_SUFFIX, Place, TopicName
from headpond.model.topic_settings import QUOTAS

Need = tuple[Right, Place | None]
"""A right and where; None for the whole node."""

PRODUCE, CONSUME, ADMIN = (Right.PRODUCE,), (Right.CONSUME,), (Right.ADMIN,)
USE = (Right.PRODUCE, Right.CONSUME)
ANYBODY: tuple[Right, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    rights: tuple[Right, ...]
    """One of these is enough; an admin's always is. Empty: every client with a valid token."""
    on: Callable[[Any], Place | None] | None = None
    """The place that it concerns; None if the operation has no such place, or finds it first."""
    by_uuid: bool = False
    """``topic`` is a uuid: for a token that does not reach the topic, the topic does not exist."""
    listing: bool = False
    """The answer is a list, without the items that the token does not reach."""
    producer: bool = False
    """A token bound to a producer allows it only for that producer."""
    subscription: bool = False
    """A token bound to a subscription allows it only for that subscription."""
    unbound: bool = False
    """A token bound to a subscription does not allow it."""
    whole: bool = False
    """A token bound to a producer or a subscription does not allow it."""
    writer: bool = False
    """It concerns a writer, whose name must be below a scope of the token."""
    logged: bool = False
    """It is administration: the node records it in the log of administration."""
    also: Callable[[Any], Iterable[Need]] = lambda ask: ()
    """Further rights that it needs."""
    at: Callable[[Any], Place | None] | None = None
    """The place whose group carries it out, if that is not ``on``."""
    any_group: bool = False
    """Every group carries it out: links copy topics to a group before their tenant is placed there."""

    def places(self, ask: Any) -> Iterable[Place]:
        """The places that must be on the group that carries it out."""
        if not self.any_group:
            at = self.at or self.on
            found = [at(ask) if at is not None else None, *(place for _, place in self.also(ask))]
            yield from filter(None, found)


UNDECLARED = Rule(ADMIN, lambda ask: None, logged=True)
"""An operation without a declared rule is an admin's of the whole node: a forgotten rule closes a door."""


def place_of_topic(topic: str) -> Place:
    return Place.of(str(TopicName.parse(topic)))


def topic_of(ask: Any) -> Place:
    return place_of_topic(ask.topic)


def any_topic_of(ask: Any) -> Place | None:
    """For a list: one topic, or all that the token reaches."""
    return topic_of(ask) if ask.topic else None


def place_of(ask: Any) -> Place:
    return Place.parse(ask.place, ask.level)


def inside_tenant(ask: Any) -> Place | None:
    """Only an admin of the whole node creates and deletes tenants: a tenant could shed its quotas that way."""
    return None if ask.level == "tenant" else place_of(ask)


def whole_node(ask: Any) -> None:
    return None


def each_topic(ask: Any) -> Iterable[Need]:
    return [(Right.CONSUME, place_of_topic(topic)) for topic in ask.topics]


def dead_letter_of_policy(ask: Any) -> Iterable[Need]:
    return _dead_letter(ask.policy.dead_letter, ask.topic) if ask.policy is not None else ()


def new_settings(ask: Any) -> Iterable[Need]:
    return _settings(ask.settings)


def changed_settings(ask: Any) -> Iterable[Need]:
    return _settings(ask.set, ask.unset)


def _settings(values: Mapping[str, Any], unset: Sequence[str] = ()) -> Iterable[Need]:
    """A tenant does not choose its own quotas."""
    if any(name in QUOTAS for name in (*values, *unset)):
        yield Right.ADMIN, None
    yield from _dead_letter(values.get("dead_letter"))


def _dead_letter(name: Any, topic: str = "") -> Iterable[Need]:
    """The node writes dead letters for the client that names their topic, so the client must be allowed to."""
    if isinstance(name, str) and name and name != f"{topic}{DEAD_SUFFIX}":
        yield Right.PRODUCE, place_of_topic(name)


# --- operations -----------------------------------------------------------------------------------------


class Control(msgspec.Struct, array_like=True, frozen=True):
    """The base of all messages: a frame's body, or an operation in a REQUEST."""


class Page(Control, frozen=True):
    """A part of a list, which is then in the order of full names: ``topic``, or ``topic/name`` of its user."""

    match: Text = ""
    """Only full names that contain it."""
    after: Text = ""
    """Only full names after this one."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


Result = TypeVar("Result")


class OperationOf(Control, Generic[Result], frozen=True):
    """An operation in a REQUEST, and the type of its answer: ``class ShowTopic(OperationOf[TopicInfo])``."""

    repeatable: ClassVar[bool] = True
    """Whether a client may ask again after a lost connection: a second time changes nothing further."""
    rule: ClassVar[Rule] = UNDECLARED
    """What it needs of the client's token."""


class SourceRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of requests from one node to another that has messages of a topic."""

    rule: ClassVar[Rule] = Rule(CONSUME, by_uuid=True, unbound=True)

    topic: Uuid


class SinkRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of requests from one node to another that stores copies for a topic."""

    rule: ClassVar[Rule] = Rule(ADMIN, by_uuid=True)

    topic: Uuid
