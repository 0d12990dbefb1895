"""What a message costs beside 1, 10, 100 and 1,000 topics, subscriptions, producers and unacknowledged entries.

Messages are published one at a time, a segment and a sync each, which is where a cost per thing would show the
most. For each kind of thing four nodes run, one per number, and take turns, so that all see the same machine. A
node's CPU is the figure to compare; the wall time holds the sync and whatever else the machine does.

Topics and producers are used in turn, each over a connection of its own. Nobody is connected to the
subscriptions. The unacknowledged entries are those of one consumer of another topic.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure
from bench.idle import nobody_connected
from bench.limits import Limits
from bench.node import Node, raise_file_limit, running_node
from bench.sender import Sender
from headpond.wire.control.consuming import Subscribe, Subscribed
from tests.fire.raw_client import RawClient

COUNTS = (1, 10, 100, 1000)
TURN = 200
"""Messages that one node is sent before it is the next one's turn."""
TURNS_PER_S = 1
CREDIT_BYTES = 1 << 20
"""Enough for all unacknowledged entries."""
COSTS = ("CPU", "wall")

Prepare = Callable[[Node, int, contextlib.ExitStack], list[Sender]]
"""Makes ``count`` things on a node; returns the senders to use in turn."""


def topics(node: Node, count: int, stack: contextlib.ExitStack) -> list[Sender]:
    return [_sender(node, f"topic-{number}", stack) for number in range(count)]


def subscriptions(node: Node, count: int, stack: contextlib.ExitStack) -> list[Sender]:
    sender = _sender(node, "busy", stack)
    for client in nobody_connected(node, count):
        stack.callback(client.close)
    return [sender]


def producers(node: Node, count: int, stack: contextlib.ExitStack) -> list[Sender]:
    return [_sender(node, "busy", stack) for _ in range(count)]


def unacked(node: Node, count: int, stack: contextlib.ExitStack) -> list[Sender]:
    """On another topic, so that what is published does not add to them."""
    held = Sender(node.address, "held", rows=count)
    held.round()
    held.close()
    consumer = RawClient(node.address)
    stack.callback(consumer.close)
    consumer.send(Subscribe(1, "held", "holder", "unique", "non_resilient", "earliest", CREDIT_BYTES))
    consumer.until(Subscribed)
    return [_sender(node, "busy", stack)]


def _sender(node: Node, topic: str, stack: contextlib.ExitStack) -> Sender:
    sender = Sender(node.address, topic)
    stack.callback(sender.close)
    return sender


THINGS: dict[str, Prepare] = {
    "topics": topics,
    "subscriptions": subscriptions,
    "producers": producers,
    "unacknowledged entries": unacked,
}


def turn_us(node: Node, senders: Iterator[Sender]) -> tuple[float, float]:
    """CPU and wall time of one message."""
    cpu, wall = node.cpu_s(), time.perf_counter()
    for sender in islice(senders, TURN):
        sender.round()
    return (node.cpu_s() - cpu) / TURN * 1e6, (time.perf_counter() - wall) / TURN * 1e6


def compare(folder: Path, prepare: Prepare, turns_count: int) -> dict[int, tuple[float, float]]:
    """The median of the turns, by number of things."""
    with contextlib.ExitStack() as stack:
        nodes: dict[int, tuple[Node, Iterator[Sender]]] = {}
        for count in COUNTS:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
            node = stack.enter_context(running_node(place))
            senders = prepare(node, count, stack)
            for sender in senders:
                sender.round()  # makes the files
            nodes[count] = node, cycle(senders)
            turn_us(*nodes[count])  # warms up
        turns = [{count: turn_us(*each) for count, each in nodes.items()} for _ in range(turns_count)]
    return {
        count: (median(turn[count][0] for turn in turns), median(turn[count][1] for turn in turns))
        for count in COUNTS
    }


def figure_name(cost: str, count: int, thing: str) -> str:
    return f"growth: {cost} per message, {count:,} {thing}"


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    raise_file_limit()
    figures = []
    for thing, prepare in THINGS.items():
        found = compare(folder, prepare, max(3, round(seconds * TURNS_PER_S)))
        for number, cost in enumerate(COSTS):
            figures += [
                Figure(figure_name(cost, count, thing), found[count][number], "µs", "with 1", found[1][number])
                for count in COUNTS
            ]
    return figures


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Both costs of every thing over its number, as one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    values = {figure.name: figure.value for figure in figures}
    picture, sides = pyplot.subplots(1, len(COSTS), figsize=(11, 4.5), layout="constrained")
    for cost, axes in zip(COSTS, sides, strict=True):
        _lines(axes, values, cost)
    sides[0].legend()
    picture.savefig(path, dpi=120)
    pyplot.close(picture)


def _lines(axes: Any, values: dict[str, float], cost: str) -> None:
    for thing in THINGS:
        axes.plot(COUNTS, [values[figure_name(cost, count, thing)] for count in COUNTS], "o-", label=thing)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("how many of them")
    axes.set_ylabel(f"{cost} per message, µs")
