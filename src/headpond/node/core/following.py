"""Subscriptions that follow those of another node: the requests about them.

Reading order: copied (what a copy is), follow_source (a node that tells), follow_sink (one that is told),
follow_places (whose segments are which entries here), follow_dropped (what the source has no more);
node/peer_follow.py carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.node.core.fetching import Answer, Refuse
from headpond.node.core.follow_dropped import read_dropped
from headpond.node.core.follow_sink import FollowSink
from headpond.node.core.follow_source import FollowSource
from headpond.node.core.session import Session
from headpond.wire.control import Operation
from headpond.wire.following import (
    ApplyDropped,
    ApplySettled,
    FollowSubscriptions,
    OpenCopy,
    ReadDropped,
    ReadSettled,
    TellPromoted,
)

if TYPE_CHECKING:
    from headpond.node.core.peering import Peering


class Following:
    def __init__(self, peering: Peering) -> None:
        self._node = peering.node
        self.source = FollowSource(peering.node)
        self.sink = FollowSink(peering)

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about subscriptions that follow."""
        if isinstance(operation, FollowSubscriptions):
            answer(self.source.follow(session.grant, operation))
        elif isinstance(operation, ReadSettled):
            self.source.read(session, operation, answer, refuse)
        elif isinstance(operation, TellPromoted):
            answer({"known": self.source.promoted(operation)})
        elif isinstance(operation, OpenCopy):
            self.sink.open(operation, answer, refuse)
        elif isinstance(operation, ApplySettled):
            self.sink.apply(operation, answer, refuse)
        elif isinstance(operation, ReadDropped):
            read_dropped(self._node, session, operation, answer, refuse)
        elif isinstance(operation, ApplyDropped):
            self.sink.apply_dropped(operation, answer, refuse)
        else:
            return False
        return True
