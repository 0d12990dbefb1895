"""Messages about the node itself: its counters, and totals from which a reader computes rates.

Two readings of ``TopInfo`` give a rate. Totals start at 0 with each run of the node: a total below the previous
reading means that the node restarted, or that the topic was created again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.wire.control.greeting import Control

ROWS_MAX = 1000


class ShowNode(Control, frozen=True, tag="show_node"):
    """Counters, limits and what recovery found."""


class ShowTop(Control, frozen=True, tag="show_top"):
    """The answer is a ``TopInfo``."""

    pattern: Annotated[str, msgspec.Meta(max_length=600)] = ""
    """Topics whose whole name, or short one, has this form (``*`` and ``?``); empty for all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = 50
    """Topics, and subscriptions, in the answer; those with the most to show are kept."""


class TopNode(msgspec.Struct, frozen=True):
    node: str
    software: str
    clock_us: int
    """What rates are measured with; it is never set back while the node runs."""
    uptime_us: int
    connections: int
    topics: int
    subscriptions: int
    messages_stored: int
    messages_delivered: int
    unacked_bytes: int
    """Of segments taken in and not answered yet."""
    disk_free_bytes: int
    disk_full: bool = False
    """Whether sends are refused for lack of room."""
    cpu_us: int | None = None
    """Time of the processor that the node has used."""
    rss_bytes: int | None = None


class TopTopic(msgspec.Struct, frozen=True):
    topic: str
    messages_in: int
    """Entries given out, ever."""
    bytes_in: int
    """Written to its logs in this run."""
    stored: int
    """Entries that are kept."""
    bytes: int
    lag: int
    """Of the subscription that is furthest behind."""
    announced: int = 0
    """Segments that its producers are known to have made."""
    segments: int = 0
    """Those of them that are stored: R of the hop is ``segments / announced``."""
    duplicates: int = 0
    """Segments that came again: UR of the hop is ``segments / (segments + duplicates)``."""


class TopSubscription(msgspec.Struct, frozen=True):
    topic: str
    subscription: str
    lag: int
    """Entries that are not settled."""
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
    """Those of them that a consumer was handed: R of the hop is ``reached / entries``."""
    copies: int = 0
    """Handed out and opened, since the node was last killed."""
    first_copies: int = 0
    """Those of them that were no repeat: UR of the hop is ``first_copies / copies``."""


class TopLink(msgspec.Struct, frozen=True):
    """A link to another node, in short."""

    link: str
    state: str
    lag: int
    refused: int
    """Topics that it cannot bring."""
    messages: int = 0
    """Brought since the node was started: R of the hop is ``messages / (messages + lag)``."""
    records: int = 0
    duplicates: int = 0
    """Records that came again: UR of the hop is ``records / (records + duplicates)``."""


class TopInfo(msgspec.Struct, frozen=True):
    node: TopNode
    topics: list[TopTopic]
    subscriptions: list[TopSubscription]
    """The furthest behind first."""
    topics_left_out: int = 0
    subscriptions_left_out: int = 0
    links: list[TopLink] = []
