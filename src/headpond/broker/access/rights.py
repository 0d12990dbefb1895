"""Whether a token allows an operation or a frame; each operation declares what it needs (``wire/control``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headpond.model.errors import NotAllowed, TopicNotFound
from headpond.model.grant import ALL, Grant, Right
from headpond.model.names import LEVELS, Place
from headpond.wire.control.catalog import ListPlaces
from headpond.wire.control.operation import ADMIN, PRODUCE, Rule, place_of_topic
from headpond.wire.control.staging import ListWriters
from headpond.wire.frame import FrameType

TOPIC_GONE = "the topic no longer exists"
"""The same text whether a topic was deleted or is out of a token's reach."""
Checked = Any
"""An operation, or a SUBSCRIBE: it has a ``rule``."""


FRAMES: Final = frozenset(
    (
        # Every greeted client may send these.
        FrameType.HELLO,
        FrameType.PING,
        FrameType.PONG,
        # The rule of the operation decides, or that of the SUBSCRIBE.
        FrameType.REQUEST,
        FrameType.SUBSCRIBE,
        # ``check_title`` decides, also about the frames of its block.
        FrameType.TITLE,
        FrameType.SEGMENT,
        FrameType.SNAPSHOT,
        FrameType.HOLE,
        FrameType.BLOCK_END,
        # ``reaches_stage`` decides: for a token that does not reach a stage, the stage does not exist.
        FrameType.STAGE,
        # The ``open_feed`` of this connection has decided.
        FrameType.PEER,
        # The SUBSCRIBE of this connection has decided.
        FrameType.UNSUBSCRIBE,
        FrameType.CREDIT,
        FrameType.SETTLE,
        FrameType.EXTEND,
        FrameType.RENEW,
        FrameType.GIVE_BACK,
    )
)
"""The frames that a client may send, and what decides about each."""


def check(grant: Grant, operation: Checked, name_of: Callable[[bytes], str | None] = lambda uuid: None) -> None:
    """Raises ``NotAllowed`` with the missing right and the place, if the grant does not allow an operation.

    ``name_of`` gives the name of the topic with a uuid, if there is one.
    """
    if grant is ALL:
        return
    rule: Rule = operation.rule
    place = rule.on(operation) if rule.on is not None else None
    somewhere = rule.on is None or (rule.listing and place is None)
    if rule.rights and not (grant.has(rule.rights) and (somewhere or grant.reaches(place))):
        raise _missing(rule.rights, place, somewhere=somewhere)
    if not rule.listing:
        _check_names(grant, rule, operation)
    if rule.by_uuid:
        _check_uuid(grant, name_of(operation.topic))
    for right, where in rule.also(operation):
        if not (grant.has((right,)) and grant.reaches(where)):
            raise _missing((right,), where)


def check_frame(grant: Grant, frame_type: int) -> None:
    """A type of frame that ``FRAMES`` does not have needs an admin of the whole node."""
    if frame_type not in FRAMES and not (grant.has(ADMIN) and grant.reaches(None)):
        raise _missing(ADMIN, None)


def reaches_writer(grant: Grant, writer: str) -> bool:
    """Whether a token may use a writer. All writers of a node share one namespace, and a batch that another
    client commits would make the next one a duplicate: so a name is below a scope, as in ``acme/nightly``.
    """
    above = writer.split("/")[:-1]
    places = (Place(tuple(above[:depth])) for depth in range(1, min(len(above), len(LEVELS)) + 1))
    return grant.reaches(None) or any(grant.reaches(place) for place in places)


def reaches_stage(grant: Grant, writer: str, topic: str | None) -> bool:
    """Whether a token may fill and commit a stage of a writer for a topic."""
    if grant is ALL:
        return True
    return reaches_writer(grant, writer) and (topic is None or grant.reaches(Place.of(topic)))


def keeps(grant: Grant, operation: Checked, info: Any) -> bool:
    """Whether an item of a listing is one that the token may see."""
    if isinstance(operation, ListWriters):
        return all(reaches_stage(grant, info.writer, topic) for topic in (None, *info.topics))
    name = info.place if isinstance(operation, ListPlaces) else info.topic
    if not grant.reaches(Place.of(name)):
        return False
    rule: Rule = operation.rule
    if rule.producer and grant.producer:
        return bool(info.producer == grant.producer)
    if rule.subscription and grant.subscription:
        return bool(info.subscription == grant.subscription)
    return True


def check_title(grant: Grant, topic: str, producer: str) -> None:
    """Raises ``NotAllowed`` unless the grant allows to send to a topic under the name of a producer."""
    place = place_of_topic(topic)
    if not (grant.has(PRODUCE) and grant.reaches(place)):
        raise _missing(PRODUCE, place)
    if grant.producer and producer != grant.producer:
        raise _bound("produce", "producer", grant.producer)


def _check_uuid(grant: Grant, name: str | None) -> None:
    if name is None or not grant.reaches(Place.of(name)):
        raise TopicNotFound(TOPIC_GONE)


def _check_names(grant: Grant, rule: Rule, operation: Any) -> None:
    if rule.producer and grant.producer and operation.producer != grant.producer:
        raise _bound("produce", "producer", grant.producer)
    if rule.whole and (grant.producer or grant.subscription):
        raise NotAllowed("a token that is bound to a producer or a subscription may not do this")
    if rule.writer and not reaches_writer(grant, operation.writer):
        raise NotAllowed(
            f"writer {operation.writer[:80]!r} is not below a scope of the token",
            hint="Begin the writer's name with a place that the token reaches: acme/shop/NAME.",
        )
    if not grant.subscription:
        return
    if rule.unbound or (rule.subscription and operation.subscription != grant.subscription):
        raise _bound("consume", "subscription", grant.subscription)


def _bound(verb: str, what: str, name: str) -> NotAllowed:
    return NotAllowed(f"the token may {verb} only as {what} {name!r}")


def _missing(rights: tuple[Right, ...], place: Place | None, *, somewhere: bool = False) -> NotAllowed:
    words = " or ".join(rights)
    if somewhere:
        return NotAllowed(f"the token does not have the right to {words}")
    where = f"on {place.shown}" if place is not None else "on the whole node"
    return NotAllowed(f"the token does not have the right to {words} {where}")
