"""A link to another node, and the topics that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.control.links import PeerInfo, PeerSubscriptionInfo, PeerTopicInfo


class PeerTopicShape(TypedDict):
    topic: str
    direction: str
    state: str
    lag: int
    code: str | None
    message: str | None


class PeerSubscriptionShape(TypedDict):
    topic: str
    subscription: str
    direction: str
    state: str
    behind: int
    message: str | None


class PeerListed(TypedDict):
    peer: str
    url: str
    topics: list[str]
    direction: str
    subscriptions: list[str]
    made_at: str
    made_by: str | None
    has_token: bool
    state: str
    since: str
    node: str | None
    lag: int
    following: int
    refused: int
    error: str | None
    error_code: str | None
    counts: dict[str, int]


class PeerShape(PeerListed, total=False):
    topic_list: list[PeerTopicShape]
    subscription_list: list[PeerSubscriptionShape]


class RemovedPeerShape(TypedDict):
    peer: str
    removed: bool


def peer_object(info: PeerInfo, *, whole: bool = False) -> PeerShape:
    """``whole`` tells of every topic and subscription, too."""
    found: PeerShape = {
        "peer": info.name,
        "url": info.url,
        "topics": info.topics,
        "direction": info.direction,
        "subscriptions": info.subscriptions,
        "made_at": iso_time(info.made_at_us),
        "made_by": info.made_by or None,
        "has_token": info.has_token,
        "state": info.state,
        "since": iso_time(info.since_us),
        "node": info.node or None,
        "lag": info.lag,
        "following": info.following,
        "refused": info.refused,
        "error": info.error or None,
        "error_code": info.error_code or None,
        "counts": info.counts,
    }
    if whole:
        found["topic_list"] = [_topic(each) for each in info.topic_list]
        found["subscription_list"] = [_subscription(each) for each in info.subscription_list]
    return found


def _topic(info: PeerTopicInfo) -> PeerTopicShape:
    return {
        "topic": info.topic,
        "direction": info.direction,
        "state": info.state,
        "lag": info.lag,
        "code": info.code or None,
        "message": info.message or None,
    }


def _subscription(info: PeerSubscriptionInfo) -> PeerSubscriptionShape:
    return {
        "topic": info.topic,
        "subscription": info.subscription,
        "direction": info.direction,
        "state": info.state,
        "behind": info.behind,
        "message": info.message or None,
    }
