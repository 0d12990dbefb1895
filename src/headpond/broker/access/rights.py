"""What every operation and every frame asks for, in one table; and the decision.

An operation that is not in the table is an admin's of everything: forgetting an entry closes a door, it does
not open one (and a test walks all there are). Decisions go by names alone and come before anything is looked
up, so that a refusal is the same whether a topic exists or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from headpond.model.errors import NotAllowed, TopicNotFound
from headpond.model.grant import ALL, Grant, Right
from headpond.model.names import DEAD_SUFFIX, LEVELS, Place, TopicName
from headpond.model.topic_settings import QUOTAS
from headpond.wire.control.access import (
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
)
from headpond.wire.control.catalog import (
    AlterTopic,
    ChangeSettings,
    CompactTopic,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    DeleteTopic,
    ListPlaces,
    ListTopics,
    OpenTopic,
    ShowPlace,
    ShowTopic,
)
from headpond.wire.control.consuming import (
    Browse,
    CreateSubscription,
    DeleteSubscription,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    PauseSubscription,
    Redrive,
    SeekSubscription,
    ShowSubscription,
    Subscribe,
)
from headpond.wire.control.following import (
    ApplyDropped,
    ApplySettled,
    FollowSubscriptions,
    OpenCopy,
    PromoteSubscription,
    ReadDropped,
    ReadSettled,
    TellPromoted,
)
from headpond.wire.control.greeting import Control
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import (
    AddPeer,
    AdmitRecords,
    FollowTopics,
    ListPeers,
    OfferHeads,
    OpenFeed,
    ReadHeads,
    RemovePeer,
    ShowPeer,
)
from headpond.wire.control.producing import (
    CloseProducer,
    CreateProducer,
    DeleteProducer,
    ListProducers,
    OpenProducer,
    ShowProducer,
)
from headpond.wire.control.reading import AdvanceSubscription, FetchEntries, FindTime, ReadEnds
from headpond.wire.control.staging import (
    AbortStages,
    CommitBatch,
    DeleteWriter,
    FinishStage,
    ListWriters,
    OpenStage,
    ShowWriter,
)
from headpond.wire.control.status import ShowNode, ShowTop
from headpond.wire.frame import FrameType

Need = tuple[Right, Place | None]
"""A right and where; None for the whole node."""

PRODUCE, CONSUME, ADMIN = (Right.PRODUCE,), (Right.CONSUME,), (Right.ADMIN,)
USE = (Right.PRODUCE, Right.CONSUME)
ANYBODY: tuple[Right, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    rights: tuple[Right, ...]
    """One of these is enough, and an admin's always is. None: whoever was let in."""
    on: Callable[[Any], Place | None] | None = None
    """What it is about; None: it is decided by what the operation finds, or there is nothing to decide."""
    uuid_of: Callable[[Any], bytes] | None = None
    """Its topic is named by a uuid: one that is out of reach is as if it did not exist."""
    listing: bool = False
    """The answer is a list; what the token does not reach is left out."""
    producer: bool = False
    """A token bound to a producer may do it for that one alone."""
    subscription: bool = False
    """A token bound to a subscription may do it for that one alone."""
    unbound: bool = False
    """A token bound to a subscription may not do it."""
    whole: bool = False
    """A token bound to a producer or a subscription may not do it."""
    writer: bool = False
    """It concerns a writer, whose name must stand below a scope of the token (``reaches_writer``)."""
    logged: bool = False
    """It is administration, and goes into its log."""
    also: Callable[[Any], Iterable[Need]] = lambda ask: ()
    """What it needs besides."""


def _topic(ask: Any) -> Place:
    return _place_of(ask.topic)


def _place_of(topic: str) -> Place:
    return Place.of(str(TopicName.parse(topic)))


def _any_topic(ask: Any) -> Place | None:
    """Of a list: of one topic, or of all that the token reaches."""
    return _topic(ask) if ask.topic else None


def _place(ask: Any) -> Place:
    return Place.parse(ask.place, ask.level)


def _tenancy(ask: Any) -> Place | None:
    """A tenant itself is made and deleted by an admin of everything: its quotas could be shed that way."""
    return None if ask.level == "tenant" else _place(ask)


def _node(ask: Any) -> None:
    return None


def _all_topics(ask: Any) -> Iterable[Need]:
    return [(Right.CONSUME, _place_of(topic)) for topic in ask.topics]


def _dead_letter(name: Any, topic: str = "") -> Iterable[Need]:
    """The node writes dead letters for whoever names their topic, so they must be allowed to write there."""
    if isinstance(name, str) and name and name != f"{topic}{DEAD_SUFFIX}":
        yield Right.PRODUCE, _place_of(name)


def _policy(ask: Any) -> Iterable[Need]:
    return _dead_letter(ask.policy.dead_letter, ask.topic) if ask.policy is not None else ()


def _settings(ask: Any) -> Iterable[Need]:
    values = ask.set if isinstance(ask, ChangeSettings) else ask.settings
    unset = ask.unset if isinstance(ask, ChangeSettings) else ()
    if any(name in QUOTAS for name in (*values, *unset)):
        yield Right.ADMIN, None  # a tenant does not choose its own quotas
    yield from _dead_letter(values.get("dead_letter"))


RULES: Final[Mapping[type[Control], Rule]] = {
    # topics
    OpenTopic: Rule(rights=USE, on=_topic),
    ShowTopic: Rule(rights=USE, on=_topic),
    ListTopics: Rule(rights=USE, listing=True),
    CreateTopic: Rule(rights=ADMIN, on=_topic, also=_settings, logged=True),
    AlterTopic: Rule(rights=ADMIN, on=_topic, logged=True),
    DeleteTopic: Rule(rights=ADMIN, on=_topic, logged=True),
    CompactTopic: Rule(rights=ADMIN, on=_topic, logged=True),
    # subscriptions
    Subscribe: Rule(rights=CONSUME, on=_topic, subscription=True, also=_policy),
    CreateSubscription: Rule(rights=CONSUME, on=_topic, subscription=True, also=_policy, logged=True),
    ListSubscriptions: Rule(rights=CONSUME, on=_any_topic, subscription=True, listing=True),
    ShowSubscription: Rule(rights=CONSUME, on=_topic, subscription=True),
    ListUnacked: Rule(rights=CONSUME, on=_topic, subscription=True),
    ListSkipped: Rule(rights=CONSUME, on=_topic, subscription=True),
    SeekSubscription: Rule(rights=CONSUME, on=_topic, subscription=True, logged=True),
    PauseSubscription: Rule(rights=CONSUME, on=_topic, subscription=True, logged=True),
    Redrive: Rule(rights=CONSUME, on=_topic, subscription=True, logged=True),
    DeleteSubscription: Rule(rights=ADMIN, on=_topic, logged=True),
    Browse: Rule(rights=CONSUME, on=_topic, unbound=True),
    # reading by position; a token bound to a subscription could seek that to any place and read there, too
    ReadEnds: Rule(rights=CONSUME, also=_all_topics, subscription=True),
    FindTime: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, subscription=True),
    FetchEntries: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, subscription=True),
    AdvanceSubscription: Rule(rights=CONSUME, on=_topic, subscription=True),
    # tenants, products, components
    CreatePlace: Rule(rights=ADMIN, on=_tenancy, also=_settings, logged=True),
    ListPlaces: Rule(rights=USE, listing=True),
    ShowPlace: Rule(rights=USE, on=_place),
    DeletePlace: Rule(rights=ADMIN, on=_tenancy, logged=True),
    ChangeSettings: Rule(rights=ADMIN, on=_place, also=_settings, logged=True),
    # producers
    OpenProducer: Rule(rights=PRODUCE, on=_topic, producer=True),
    CloseProducer: Rule(rights=PRODUCE, on=_topic, producer=True),
    ListProducers: Rule(rights=PRODUCE, on=_any_topic, producer=True, listing=True),
    ShowProducer: Rule(rights=PRODUCE, on=_topic, producer=True),
    CreateProducer: Rule(rights=ADMIN, on=_topic, logged=True),
    DeleteProducer: Rule(rights=ADMIN, on=_topic, logged=True),
    # staged writes; the stages in them are judged by ``reaches_stage`` where they are found
    OpenStage: Rule(rights=PRODUCE, on=_topic, writer=True, whole=True),
    FinishStage: Rule(rights=PRODUCE, whole=True),
    CommitBatch: Rule(rights=PRODUCE, writer=True, whole=True),
    AbortStages: Rule(rights=PRODUCE, writer=True, whole=True),
    ListWriters: Rule(rights=PRODUCE, listing=True, whole=True),
    ShowWriter: Rule(rights=PRODUCE, writer=True, whole=True),
    DeleteWriter: Rule(rights=PRODUCE, writer=True, whole=True, logged=True),
    # tokens: which ones is decided where they are found
    CreateToken: Rule(rights=ADMIN, logged=True),
    ListTokens: Rule(rights=ADMIN),
    ShowToken: Rule(rights=ADMIN),
    RevokeToken: Rule(rights=ADMIN, logged=True),
    ShowAccess: Rule(rights=ANYBODY),
    # what became of everything
    ShowLedger: Rule(rights=USE, on=_topic, whole=True),
    ShowTop: Rule(rights=ADMIN, on=_node),
    # links between nodes: a source is read like any topic; who feeds a sink writes under every producer's name
    AddPeer: Rule(rights=ADMIN, on=_node, logged=True),
    ListPeers: Rule(rights=ADMIN, on=_node),
    ShowPeer: Rule(rights=ADMIN, on=_node),
    RemovePeer: Rule(rights=ADMIN, on=_node, logged=True),
    FollowTopics: Rule(rights=CONSUME, unbound=True),
    ReadHeads: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, unbound=True),
    OpenFeed: Rule(rights=ADMIN, on=_topic, also=_settings),
    OfferHeads: Rule(rights=ADMIN, uuid_of=lambda ask: ask.topic),
    AdmitRecords: Rule(rights=ADMIN, uuid_of=lambda ask: ask.topic),
    FollowSubscriptions: Rule(rights=CONSUME, unbound=True),
    ReadSettled: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, unbound=True),
    TellPromoted: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, unbound=True),
    ReadDropped: Rule(rights=CONSUME, uuid_of=lambda ask: ask.topic, unbound=True),
    ApplyDropped: Rule(rights=ADMIN, uuid_of=lambda ask: ask.topic),
    OpenCopy: Rule(rights=ADMIN, uuid_of=lambda ask: ask.topic),
    ApplySettled: Rule(rights=ADMIN, uuid_of=lambda ask: ask.topic),
    PromoteSubscription: Rule(rights=ADMIN, on=_topic, logged=True),
    # the node
    ListAdminLog: Rule(rights=ADMIN, on=_node),
    ShowNode: Rule(rights=ADMIN, on=_node),
}
UNLISTED: Final = Rule(rights=ADMIN, on=_node, logged=True)


class Judged(Enum):
    """Where it is decided whether a frame may be sent."""

    FREE = auto()
    """It asks for nothing: whoever was let in may send it."""
    RULE = auto()
    """By its own entry in ``RULES``, or that of the operation in it."""
    TITLE = auto()
    """By ``judge_title``."""
    BLOCK = auto()
    """It concerns a block that a TITLE of this connection opened."""
    STAGE = auto()
    """It concerns a stage: one that is out of reach is as if it did not exist (``reaches_stage``)."""
    FEED = auto()
    """It concerns a topic that an ``open_feed`` of this connection opened."""
    CONSUMER = auto()
    """It concerns a consumer that a SUBSCRIBE of this connection opened."""


FRAMES: Final[Mapping[int, Judged]] = {
    FrameType.HELLO: Judged.FREE,
    FrameType.PING: Judged.FREE,
    FrameType.PONG: Judged.FREE,
    FrameType.REQUEST: Judged.RULE,
    FrameType.SUBSCRIBE: Judged.RULE,
    FrameType.TITLE: Judged.TITLE,
    FrameType.SEGMENT: Judged.BLOCK,
    FrameType.SNAPSHOT: Judged.BLOCK,
    FrameType.HOLE: Judged.BLOCK,
    FrameType.BLOCK_END: Judged.BLOCK,
    FrameType.STAGE: Judged.STAGE,
    FrameType.PEER: Judged.FEED,
    FrameType.UNSUBSCRIBE: Judged.CONSUMER,
    FrameType.CREDIT: Judged.CONSUMER,
    FrameType.SETTLE: Judged.CONSUMER,
    FrameType.EXTEND: Judged.CONSUMER,
    FrameType.RENEW: Judged.CONSUMER,
    FrameType.GIVE_BACK: Judged.CONSUMER,
}


def rule_of(operation: Control) -> Rule:
    return RULES.get(type(operation), UNLISTED)


def check(grant: Grant, operation: Control, name_of: Callable[[bytes], str | None] = lambda uuid: None) -> None:
    """Whether somebody may do this; if not, ``NotAllowed`` says which right is missing, and where.

    ``name_of`` gives the name of the topic with a uuid, if there is one.
    """
    if grant is ALL:
        return
    rule = rule_of(operation)
    place = rule.on(operation) if rule.on is not None else None
    somewhere = rule.on is None or (rule.listing and place is None)
    if rule.rights and not (grant.has(rule.rights) and (somewhere or grant.reaches(place))):
        raise _missing(rule.rights, place, somewhere=somewhere)
    if not rule.listing:
        _check_names(grant, rule, operation)
    if rule.uuid_of is not None:
        _check_uuid(grant, name_of(rule.uuid_of(operation)))
    for right, where in rule.also(operation):
        if not (grant.has((right,)) and grant.reaches(where)):
            raise _missing((right,), where)


def check_frame(grant: Grant, frame_type: int) -> None:
    """A kind of frame that the table does not know is an admin's."""
    if frame_type not in FRAMES and not (grant.has(ADMIN) and grant.reaches(None)):
        raise _missing(ADMIN, None)


def reaches_writer(grant: Grant, writer: str) -> bool:
    """Whether a writer is the token's to use. Writers' names are the whole node's, and a batch that somebody
    else commits would make the next one a duplicate: so a name stands below a scope, as in ``acme/nightly``.
    """
    above = writer.split("/")[:-1]
    places = (Place(tuple(above[:depth])) for depth in range(1, min(len(above), len(LEVELS)) + 1))
    return grant.reaches(None) or any(grant.reaches(place) for place in places)


def reaches_stage(grant: Grant, writer: str, topic: str | None) -> bool:
    """Whether a stage of a writer for a topic is the token's to fill and to commit."""
    if grant is ALL:
        return True
    return reaches_writer(grant, writer) and (topic is None or grant.reaches(Place.of(topic)))


def keeps(grant: Grant, operation: Control, info: Any) -> bool:
    """Whether an item of a listing is one that the token may see."""
    if isinstance(operation, ListWriters):
        return all(reaches_stage(grant, info.writer, topic) for topic in (None, *info.topics))
    name = info.place if isinstance(operation, ListPlaces) else info.topic
    if not grant.reaches(Place.of(name)):
        return False
    rule = rule_of(operation)
    if rule.producer and grant.producer:
        return bool(info.producer == grant.producer)
    if rule.subscription and grant.subscription:
        return bool(info.subscription == grant.subscription)
    return True


def check_title(grant: Grant, topic: str, producer: str) -> None:
    """Whether somebody may send to the topic that a TITLE names, under that name."""
    place = _place_of(topic)
    if not (grant.has(PRODUCE) and grant.reaches(place)):
        raise _missing(PRODUCE, place)
    if grant.producer and producer != grant.producer:
        raise _bound("produce", "producer", grant.producer)


def _check_uuid(grant: Grant, name: str | None) -> None:
    if name is None or not grant.reaches(Place.of(name)):
        raise TopicNotFound("the topic that was read is not there any more")


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
    return NotAllowed(f"the token may {verb} as {what} {name!r} alone")


def _missing(rights: tuple[Right, ...], place: Place | None, *, somewhere: bool = False) -> NotAllowed:
    words = " or ".join(rights)
    if somewhere:
        return NotAllowed(f"the token does not have the right to {words}")
    where = f"on {place.shown}" if place is not None else "on the whole node"
    return NotAllowed(f"the token does not have the right to {words} {where}")
