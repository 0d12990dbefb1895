"""Rates are differences of totals over the node's own clock; the screen fits the terminal."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from headpond.cli.operate.top import count, duration, screen
from headpond.cli.output import size
from headpond.shapes.top import sample
from headpond.wire.control.status import TopInfo, TopLink, TopNode, TopSubscription, TopTopic


def reading(clock_s: float, messages: int, *, uptime_s: float | None = None, settled: int = 0) -> TopInfo:
    up_us = round((clock_s if uptime_s is None else uptime_s) * 1e6)
    node = TopNode(
        "n", "s", round(clock_s * 1e6), up_us, 1, 1, 1, messages, 0, 0, 0, cpu_us=round(clock_s * 5e5)
    )
    topic = TopTopic("default/default/default/t", messages, messages * 10, messages, 0, 0)
    one = TopSubscription("default/default/default/t", "s", 0, settled, settled, 0, 0, 0, 0, 0, False)
    return TopInfo(node, [topic], [one])


def test_a_rate_is_what_came_in_between_over_the_nodes_own_time() -> None:
    made = sample(reading(10.0, 100), reading(12.0, 700, settled=50))
    assert (made.seconds, made.stored_s, made.cpu) == (2.0, 300.0, 0.5)
    assert (made.topics[0].messages_s, made.topics[0].bytes_s) == (300.0, 3000.0)
    assert made.subscriptions[0].settled_s == 25.0


def test_a_node_that_was_started_again_has_no_rate_yet() -> None:
    made = sample(reading(10.0, 100), reading(20.0, 700, uptime_s=1.0))
    assert (made.stored_s, made.topics[0].messages_s) == (None, None)


def test_a_topic_that_was_created_again_has_no_rate_yet() -> None:
    made = sample(reading(10.0, 100), reading(11.0, 5))
    assert made.topics[0].messages_s is None
    other = msgspec.structs.replace(reading(9.0, 1), topics=[], subscriptions=[])
    assert sample(other, reading(11.0, 5)).topics[0].messages_s is None


def test_numbers_stay_short() -> None:
    assert [count(number) for number in (None, 0, 0.4, 9.96, 99_999, 100_000, 12_345_678, 5 * 10**12)] == [
        *("-", "0", "0.4", "10.0", "99,999", "100k", "12,346k", "5,000G"),
    ]
    assert [size(number) for number in (0, 999, 1000, 2**20, 300 * 2**30)] == [
        *("0 B", "999 B", "1.0 KiB", "1.0 MiB", "300 GiB"),
    ]
    assert [duration(seconds) for seconds in (5, 65, 3700, 90_000)] == [
        "5 s",
        "1 min 5 s",
        "1 h 1 min",
        "1 d 1 h",
    ]


@pytest.mark.parametrize(("width", "there"), [(60, "LAG"), (80, "CONS"), (140, "REDELIVERED")])
def test_no_line_is_wider_than_the_terminal(width: int, there: str) -> None:
    long = f"a-rather-long-tenant/with-a-product/and-a-component/{'x' * 60}"
    topic = TopTopic(long, 10**9, 10**12, 10**9, 10**12, 10**9)
    one = TopSubscription(long, "y" * 80, 10**9, 10**9, 10**9, 10**7, 10**7, 10**9, 10**7, 1000, False)
    links = [TopLink("z" * 80, "catching up", 10**9, 2), TopLink("east", "connected", 0, 0)]
    now = msgspec.structs.replace(reading(12.0, 10**9), topics=[topic], subscriptions=[one], links=links)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen(sample(reading(10.0, 0), now), width))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    headings = next(line for line in lines if line.startswith("SUBSCRIPTION"))
    assert there in headings.split() and "…" not in headings
    assert any("disk free" in line for line in lines)
    assert any(line.startswith("links  zzz") for line in lines)


def test_each_link_is_shown_with_its_state_and_its_faults() -> None:
    links = [TopLink("east", "connected", 7, 1), TopLink("west", "waiting", 0, 0)]
    now = msgspec.structs.replace(reading(12.0, 1), links=links)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(sample(reading(10.0, 0), now), 100))
    assert "links  east connected, lag 7, 1 topic refused  west waiting\n" in console.export_text()


def test_a_low_terminal_says_what_it_leaves_out() -> None:
    topics = [TopTopic(f"default/default/default/t{number}", 0, 0, 0, 0, 0) for number in range(30)]
    now = msgspec.structs.replace(reading(12.0, 1), topics=topics)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(sample(reading(10.0, 0), now), 100, 20))
    lines = console.export_text().splitlines()
    assert len(lines) <= 20
    assert any("more topics" in line for line in lines)
