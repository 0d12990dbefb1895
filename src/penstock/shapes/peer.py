"""A link to another node, and the topics that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from penstock.shapes.times import iso_time

if TYPE_CHECKING:
    from penstock.wire.peering import PeerInfo, PeerTopicInfo


class PeerTopicShape(TypedDict):
    topic: str
    direction: str
    state: str
    lag: int
    code: str | None
    message: str | None


class PeerListed(TypedDict):
    peer: str
    url: str
    topics: list[str]
    direction: str
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


class RemovedPeerShape(TypedDict):
    peer: str
    removed: bool


def peer_object(info: PeerInfo, *, whole: bool = False) -> PeerShape:
    """``whole`` tells of every topic, too."""
    found: PeerShape = {
        "peer": info.name,
        "url": info.url,
        "topics": info.topics,
        "direction": info.direction,
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
