"""What ``headpond top`` draws: a line of the node, one of its links, a table of topics, one of subscriptions.

On a narrow terminal the columns that matter least are left out, and names are cut in their middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headpond.model.topic import TopicName
from headpond.shapes.top_rates import Rate, Sample, SubscriptionRates, TopicRates
from headpond.wire.top import TopLink

WIDE = 110
"""From this width on every column is shown."""
USUAL = 76


class _Column(NamedTuple):
    heading: str
    width: int = 0
    """Of the narrowest terminal that it is shown on."""


_TOPICS = (
    *(_Column("MSG/S"), _Column("BYTES/S"), _Column("STORED", USUAL), _Column("SIZE"), _Column("LAG")),
    _Column("TOTAL", WIDE),
)
_SUBSCRIPTIONS = (
    *(_Column("LAG"), _Column("DELIV/S"), _Column("SETTLED/S"), _Column("IN FLIGHT", USUAL)),
    *(_Column("UNACKED", WIDE), _Column("DEAD", USUAL), _Column("CONS", USUAL)),
    *(_Column("REDELIVERED", WIDE), _Column("DELIVERED", WIDE)),
)


def screen(sample: Sample, width: int, height: int | None = None) -> RenderableType:
    """``height`` None: as long as it is."""
    topics_room, subscriptions_room = _rooms(sample, height)
    name_width = max(12, min(48, width // 3))
    topics = _table("TOPIC", _TOPICS, width)
    for topic in sample.topics[:topics_room]:
        topics.add_row(_cut(_short(topic.now.topic), name_width), *_shown(_TOPICS, _topic(topic), width))
    subscriptions = _table("SUBSCRIPTION", _SUBSCRIPTIONS, width)
    for one in sample.subscriptions[:subscriptions_room]:
        subscriptions.add_row(
            _cut(f"{_short(one.now.topic)} {one.now.subscription}", name_width),
            *_shown(_SUBSCRIPTIONS, _subscription(one), width),
        )
    parts: list[RenderableType] = [*node_lines(sample, width), Text()]
    parts += [topics, _more(sample.topics_left_out + len(sample.topics) - topics_room, "topics")]
    left_out = sample.subscriptions_left_out + len(sample.subscriptions) - subscriptions_room
    parts += [Text(), subscriptions, _more(left_out, "subscriptions")]
    return Group(*(part for part in parts if not (isinstance(part, Text) and part.plain == "-")))


def no_answer(why: str, url: str) -> RenderableType:
    return Text(f"{url}: no answer, trying ({why})", style="yellow", overflow="ellipsis", no_wrap=True)


def node_lines(sample: Sample, width: int) -> list[Text]:
    """One line of the node itself, two on a narrow terminal; and one of its links, if it has any."""
    node = sample.node
    words = [
        f"node {node.node[:8]}",
        f"up {duration(node.uptime_us / 1e6)}",
        f"connections {node.connections:,}",
        f"in {count(sample.stored_s)}/s",
        f"out {count(sample.delivered_s)}/s",
    ]
    use = [f"topics {node.topics:,}", f"subscriptions {node.subscriptions:,}"] if width >= USUAL else []
    if sample.cpu is not None:
        use.append(f"cpu {sample.cpu:.0%}")
    if node.rss_bytes is not None:
        use.append(f"memory {size(node.rss_bytes)}")
    use.append(f"disk free {size(node.disk_free_bytes)}{', FULL: sends are refused' if node.disk_full else ''}")
    lines = [words + use] if width >= WIDE else [words, use]
    if sample.links:
        lines.append(["links", *map(_link, sample.links)])
    return [Text("  ".join(line), overflow="ellipsis", no_wrap=True) for line in lines]


def _link(link: TopLink) -> str:
    lag = f", lag {count(link.lag)}" if link.lag else ""
    refused = f", {link.refused:,} topic{'s' if link.refused > 1 else ''} refused" if link.refused else ""
    return f"{_cut(link.link, 32)} {link.state}{lag}{refused}"


def _rooms(sample: Sample, height: int | None) -> tuple[int, int]:
    """How many rows of each table fit; subscriptions get what topics leave."""
    topics, subscriptions = len(sample.topics), len(sample.subscriptions)
    if height is None:
        return topics, subscriptions
    lines = 9 + bool(sample.links)  # the node's, two headings, what separates them, and what is left out
    room = max(height - lines, 2)
    topics = min(topics, max(room - subscriptions, room // 3, 1))
    return topics, min(subscriptions, max(room - topics, 1))


def _table(heading: str, columns: Sequence[_Column], width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(heading, no_wrap=True)
    for column in columns:
        if column.width <= width:
            table.add_column(column.heading, justify="right", no_wrap=True)
    return table


def _shown(columns: Sequence[_Column], cells: Sequence[str], width: int) -> list[str]:
    return [cell for column, cell in zip(columns, cells, strict=True) if column.width <= width]


def _topic(row: TopicRates) -> tuple[str, ...]:
    now = row.now
    rate = f"{size(row.bytes_s)}/s" if row.bytes_s is not None else "-"
    total = count(now.messages_in)
    return count(row.messages_s), rate, count(now.stored), size(now.bytes), count(now.lag), total


def _subscription(row: SubscriptionRates) -> tuple[str, ...]:
    now = row.now
    return (
        count(now.lag),
        count(row.delivered_s),
        "paused" if now.paused else count(row.settled_s),
        count(now.in_flight),
        count(now.unacked),
        count(now.dead),
        count(now.consumers),
        count(now.redelivered),
        count(now.delivered),
    )


def _more(count_: int, what: str) -> Text:
    return Text(f"… {count_:,} more {what}", style="dim") if count_ > 0 else Text("-")


def _short(topic: str) -> str:
    return TopicName.parse(topic).short


def _cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


def count(value: Rate | int) -> str:
    """A number in at most seven characters."""
    if value is None:
        return "-"
    if isinstance(value, float) and 0 < value < 10:
        return f"{value:.1f}"
    value = round(value)
    for unit, step in (("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        if value < step * 100_000 or unit == "G":
            return f"{value / step:,.0f}{unit}"
    raise AssertionError("every number has a unit")


def size(value: Rate | int) -> str:
    if value is None:
        return "-"
    for unit, step in (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40)):
        if value < step * 1000 or unit == "TiB":
            scaled = value / step
            return f"{scaled:.0f} {unit}" if unit == "B" or scaled >= 100 else f"{scaled:.1f} {unit}"
    raise AssertionError("every size has a unit")


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
