"""Messages about the node itself: its counters, and totals from which a reader computes rates.

Two readings of ``TopInfo`` give a rate. Totals start at 0 with each run of the node: a total below the previous
reading means that the node restarted, or that the topic was created again.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from headpond.wire.control.operation import ADMIN, OperationOf, Rule, whole_node

ROWS_MAX = 1000


class ShowNode(OperationOf[dict[str, Any]], frozen=True, tag="show_node"):
    """Asks for counters, limits and the findings of recovery."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)


class TopInfo(msgspec.Struct, frozen=True):
    node: TopNode
    topics: list[TopTopic]
    subscriptions: list[TopSubscription]
    """The furthest behind first."""
    topics_left_out: int = 0
    subscriptions_left_out: int = 0
    links: list[TopLink] = []


class ShowTop(OperationOf[TopInfo], frozen=True, tag="show_top"):
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)

    pattern: Annotated[str, msgspec.Meta(max_length=600)] = ""
    """Topics whose full or short name matches (``*`` and ``?``); empty: all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = 50
    """The most topics, and the most subscriptions, in the answer; the busiest come first."""


class TopNode(msgspec.Struct, frozen=True):
    node: str
    software: str
    clock_us: int
    """The clock for rates; it never goes back while the node runs."""
    uptime_us: int
    connections: int
    topics: int
    subscriptions: int
    messages_stored: int
    messages_delivered: int
    unacked_bytes: int
    """Bytes of segments received and not yet acknowledged."""
    disk_free_bytes: int
    disk_full: bool = False
    """Whether the node refuses sends for lack of space."""
    cpu_us: int | None = None
    """CPU time that the node has used."""
    rss_bytes: int | None = None


class TopTopic(msgspec.Struct, frozen=True):
    topic: str
    messages_in: int
    """Entries assigned since the topic was created."""
    bytes_in: int
    """Bytes written to its logs in this run."""
    stored: int
    """Entries that are stored."""
    bytes: int
    lag: int
    """The lag of the subscription that is furthest behind."""
    announced: int = 0
    """Segments that its producers made, as far as the node knows."""
    segments: int = 0
    """Those of them that are stored. R of the hop is ``segments / announced``."""
    duplicates: int = 0
    """Segments that arrived again. UR of the hop is ``segments / (segments + duplicates)``."""


class TopSubscription(msgspec.Struct, frozen=True):
    topic: str
    subscription: str
    lag: int
    """Unsettled entries."""
    delivered: int
    settled: int
    in_flight: int
    unacked: int
    redelivered: int
    dead: int
    consumers: int
    paused: bool
    entries: int = 0
    """From its start to the end of the log."""
    reached: int = 0
    """Those of them that a consumer got. R of the hop is ``reached / entries``."""
    copies: int = 0
    """Deliveries that consumers opened, since the node last crashed."""
    first_copies: int = 0
    """Those of them that were not repeats. UR of the hop is ``first_copies / copies``."""
    oldest_age_us: int = 0
    """How long ago its oldest unsettled message was stored, or up to a quarter more; 0 if all are settled."""


class TopLink(msgspec.Struct, frozen=True):
    """A summary of a link to another node."""

    link: str
    state: str
    lag: int
    refused: int
    """Topics that it cannot copy."""
    messages: int = 0
    """Copied since the node started. R of the hop is ``messages / (messages + lag)``."""
    records: int = 0
    duplicates: int = 0
    """Records that arrived again. UR of the hop is ``records / (records + duplicates)``."""
    lacking_us: int = 0
    """For how long it has lacked something, or had no connection; 0 while it lacks nothing."""


StatusOperation = ShowNode | ShowTop
