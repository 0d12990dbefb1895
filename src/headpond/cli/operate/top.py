"""``headpond top``: throughput and lag, live on a terminal, or one JSON object per sample."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import headpond
from headpond.cli.command import Node, command
from headpond.cli.options import flag, option
from headpond.cli.output import json_text, make_console, note, run, size
from headpond.model.errors import HeadpondError
from headpond.model.names import TopicName
from headpond.shapes.top import Rate, Sample, sample, top_object
from headpond.wire.control.status import TopLink

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.wire.control.status import TopInfo


ASK_S_MAX = 5.0
"""After this long without an answer the screen says so, and the request is repeated."""


INTERVAL_HELP = "Seconds between two samples."
TOPIC_HELP = "Only topics that match; * and ? are wildcards."
LIMIT_HELP = "Show at most N topics and N subscriptions."
SORT_HELP = "What comes first among those shown; the key s changes it."
Sort = StrEnum("Sort", ["lag", "rate", "size", "name"])


@command()
def top(
    node: Node,
    interval: Annotated[float, option("--interval", "S", INTERVAL_HELP, min=0.1, max=3600.0)] = 1.0,
    once: Annotated[bool, flag("--once", "Print one sample and exit.")] = False,
    topic: Annotated[str, option("--topic", "PATTERN", TOPIC_HELP)] = "",
    limit: Annotated[int, option("--limit", "N", LIMIT_HELP, min=1, max=1000)] = 50,
    sort: Annotated[Sort, typer.Option("--sort", help=SORT_HELP)] = Sort.lag,
) -> None:
    """Watch throughput and lag until q or Ctrl-C; the node sends those that lag most."""
    run(_watch(node, topic, limit, interval, sort, once=once))


async def _watch(node: Node, topic: str, limit: int, interval: float, sort: Sort, *, once: bool) -> None:
    live = sys.stdout.isatty() and not once
    show = _JsonLines(sort) if node.as_json else _Screen(node.url, sort) if live else _Plain(sort)
    before: TopInfo | None = None
    try:
        async with aclosing(_readings(node, topic, limit, interval, None if once else show)) as readings:
            with show:
                async for reading in readings:
                    if before is not None:
                        show.sample(sample(before, reading))
                        if once:
                            return
                    before = reading
    except asyncio.CancelledError:
        if not show.ended:
            raise


async def _readings(
    node: Node, pattern: str, limit: int, interval: float, show: _Plain | None
) -> AsyncGenerator[TopInfo]:
    """The counters of a node; while it does not answer, ``show`` says why. Without one, that is an error."""
    client = headpond.connect(node.url, token=node.token)
    async with AsyncExitStack() as stack:
        admin: Admin | None = None
        while True:
            try:
                async with asyncio.timeout(ASK_S_MAX):
                    if admin is None:
                        admin = (await stack.enter_async_context(client)).admin
                    reading = await admin.top(pattern, limit=limit)
            except HeadpondError as error:
                if show is None or not error.retryable:
                    raise
                show.waiting(error.message)
                await asyncio.sleep(0.5)
            except TimeoutError:
                if show is None:
                    raise HeadpondError(
                        f"the node did not answer for {ASK_S_MAX:g} s",
                        hint="Check that the node is running at this URL.",
                    ) from None
                show.waiting(f"nothing for {ASK_S_MAX:g} s")
                await asyncio.sleep(0.5)
            else:
                yield reading
                await asyncio.sleep(interval)


# --- where it goes ----------------------------------------------------------------------------------


class _Plain:
    """One screen after the other, for a file, a pipe, or a single look."""

    ended = False
    """Whether a key ended it."""

    def __init__(self, sort: Sort) -> None:
        self._sort = sort

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...

    def sample(self, sample: Sample) -> None:
        console = make_console()
        console.print(screen(sample, console.width, sort=self._sort))
        if not console.is_terminal:
            console.print()

    def waiting(self, why: str) -> None:
        note(f"no answer, trying ({why})")


class _JsonLines(_Plain):
    """One JSON object per sample, on a line."""

    def sample(self, sample: Sample) -> None:
        print(json_text(top_object(sample)), flush=True)


class _Screen(_Plain):
    """The whole terminal, redrawn with every sample. The key q ends it, s changes the order."""

    def __init__(self, url: str, sort: Sort) -> None:
        super().__init__(sort)
        self._url = url
        self._console = make_console()
        self._last: Sample | None = None
        self._last_s = 0.0
        first = Text(f"{url}: waiting for the first two readings …")
        self._live = Live(first, console=self._console, screen=True, auto_refresh=False)
        self._terminal: list[Any] | None = None

    def __enter__(self) -> None:
        self._live.__enter__()
        if sys.stdin.isatty():
            self._terminal = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_reader(sys.stdin, self._on_key, task)

    def __exit__(self, *exc: object) -> None:
        if self._terminal is not None:
            asyncio.get_running_loop().remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)
        self._live.__exit__(None, None, None)

    def _on_key(self, task: asyncio.Task[Any]) -> None:
        keys = os.read(sys.stdin.fileno(), 64)
        if b"q" in keys or not keys:
            self.ended = True
            task.cancel()
        for _ in range(keys.count(b"s")):
            orders = list(Sort)
            self._sort = orders[(orders.index(self._sort) + 1) % len(orders)]
        self._draw()

    def sample(self, sample: Sample) -> None:
        self._last, self._last_s = sample, time.monotonic()
        self._draw()

    def waiting(self, why: str) -> None:
        self._draw(why)

    def _draw(self, stale_why: str = "") -> None:
        """``stale_why``: the node does not answer, so the figures are the last ones that it sent."""
        if self._last is None and not stale_why:
            return
        parts: list[RenderableType] = []
        if stale_why:
            age = f"figures of {duration(time.monotonic() - self._last_s)} ago; " if self._last else ""
            text = f"STALE {self._url}: {age}no answer, trying ({stale_why})"
            parts.append(Text(text, style="black on yellow", overflow="ellipsis", no_wrap=True))
        if self._last is not None:
            height = self._console.height - len(parts) - 1
            parts.append(screen(self._last, self._console.width, height, sort=self._sort))
        parts.append(Text(f"q quits, s sorts (by {self._sort})", style="dim"))
        self._live.update(Group(*parts), refresh=True)


# --- the screen -------------------------------------------------------------------------------------
# A line for the node, one for its links, a table of topics and one of subscriptions. A narrow terminal leaves
# out the least important columns and shortens names in the middle.

WIDE = 110
"""From this width on every column is shown."""
USUAL = 76


class _Column(NamedTuple):
    heading: str
    cell: Callable[[Any], str]
    width: int = 0
    """Of the narrowest terminal that it is shown on."""


_TOPICS = (
    _Column("MSG/S", lambda row: count(row.messages_s)),
    _Column("BYTES/S", lambda row: "-" if row.bytes_s is None else f"{size(row.bytes_s)}/s"),
    _Column("STORED", lambda row: count(row.now.stored), USUAL),
    _Column("SIZE", lambda row: size(row.now.bytes)),
    _Column("LAG", lambda row: count(row.now.lag)),
    _Column("TOTAL", lambda row: count(row.now.messages_in), WIDE),
)
_SUBSCRIPTIONS = (
    _Column("LAG", lambda row: count(row.now.lag)),
    _Column("DELIV/S", lambda row: count(row.delivered_s)),
    _Column("SETTLED/S", lambda row: "paused" if row.now.paused else count(row.settled_s)),
    _Column("IN FLIGHT", lambda row: count(row.now.in_flight), USUAL),
    _Column("UNACKED", lambda row: count(row.now.unacked), WIDE),
    _Column("DEAD", lambda row: count(row.now.dead), USUAL),
    _Column("CONS", lambda row: count(row.now.consumers), USUAL),
    _Column("REDELIVERED", lambda row: count(row.now.redelivered), WIDE),
    _Column("DELIVERED", lambda row: count(row.now.delivered), WIDE),
)


_ORDERS: dict[Sort, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    Sort.lag: (lambda row: -row.now.lag, lambda row: -row.now.lag),
    Sort.rate: (lambda row: -(row.messages_s or 0), lambda row: -(row.delivered_s or 0)),
    Sort.size: (lambda row: -row.now.bytes, lambda row: -row.now.lag),
    Sort.name: (lambda row: row.now.topic, lambda row: (row.now.topic, row.now.subscription)),
}
"""How topics and subscriptions are sorted."""


def screen(sample: Sample, width: int, height: int | None = None, sort: Sort = Sort.lag) -> RenderableType:
    """``height`` None: as long as it is."""
    of_topic, of_subscription = _ORDERS[sort]
    topics_room, subscriptions_room = _rooms(sample, height)
    topics = [(_short(row.now.topic), row) for row in sorted(sample.topics, key=of_topic)[:topics_room]]
    subscriptions = [
        (f"{_short(row.now.topic)} {row.now.subscription}", row)
        for row in sorted(sample.subscriptions, key=of_subscription)[:subscriptions_room]
    ]
    topics_left = sample.topics_left_out + len(sample.topics) - topics_room
    subscriptions_left = sample.subscriptions_left_out + len(sample.subscriptions) - subscriptions_room
    parts: list[RenderableType] = [*node_lines(sample, width), Text()]
    parts += [_table("TOPIC", topics, _TOPICS, width), *_more(topics_left, "topics"), Text()]
    parts += [_table("SUBSCRIPTION", subscriptions, _SUBSCRIPTIONS, width)]
    return Group(*parts, *_more(subscriptions_left, "subscriptions"))


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


def _table(heading: str, rows: Sequence[tuple[str, Any]], columns: Sequence[_Column], width: int) -> Table:
    """Rows by name, with the columns that fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(heading, no_wrap=True)
    shown = [column for column in columns if column.width <= width]
    for column in shown:
        table.add_column(column.heading, justify="right", no_wrap=True)
    name_width = max(12, min(48, width // 3))
    for name, row in rows:
        table.add_row(_cut(name, name_width), *(column.cell(row) for column in shown))
    return table


def _more(left_out: int, what: str) -> list[Text]:
    return [Text(f"… {left_out:,} more {what}", style="dim")] if left_out > 0 else []


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


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
