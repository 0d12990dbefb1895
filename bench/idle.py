"""What idle subscriptions cost a published message: the node's CPU beside 1 and beside 1,000 of them.

Two nodes take turns, so that both see the same machine: messages are published one at a time, a segment and a
sync each, which is where a cost for each subscription would show the most. Idle is either of:

- on the topic that is published to, and nobody is connected;
- on that topic, each with a consumer on a connection of its own that can take no more for now;
- on another topic, each with a consumer on a connection of its own that has read everything and waits.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.figure import Figure
from bench.limits import Limits
from bench.node import Node, raise_file_limit, running_node
from bench.sender import Sender
from headpond.wire.control.consuming import CreateSubscription, Subscribe, Subscribed
from tests.fire.raw_client import RawClient

MANY = 1000
TURN = 200
"""Messages that one node is sent before it is the other's turn."""
TURNS_PER_S = 4

Clients = list[RawClient]


def nobody_connected(node: Node, count: int) -> Clients:
    client = RawClient(node.address)
    for number in range(count):
        client.request(CreateSubscription("busy", f"idle-{number}", start="latest"))
    return [client]


def waiting_elsewhere(node: Node, count: int) -> Clients:
    Sender(node.address, "quiet").close()
    clients: Clients = []
    for number in range(count):
        client = RawClient(node.address)
        client.send(Subscribe(1, "quiet", f"idle-{number}", "unique", "non_resilient", "latest", 1 << 20))
        client.until(Subscribed)
        clients.append(client)
    return clients


def without_room(node: Node, count: int) -> Clients:
    clients: Clients = []
    for number in range(count):
        client = RawClient(node.address)
        client.send(Subscribe(1, "busy", f"idle-{number}", "unique", "non_resilient", "latest", 1))
        client.until(Subscribed)
        clients.append(client)
    return clients


def cpu_us(node: Node, sender: Sender) -> float:
    """Of a message, in one turn."""
    before = node.cpu_s()
    for _ in range(TURN):
        sender.round()
    return (node.cpu_s() - before) / TURN * 1e6


def compare(folder: Path, idle: Callable[[Node, int], Clients], seconds: float) -> tuple[float, float]:
    """The median of the turns, beside 1 and beside many."""
    with contextlib.ExitStack() as stack:
        nodes: list[tuple[Node, Sender]] = []
        for count in (1, MANY):
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
            node = stack.enter_context(running_node(place))
            sender = Sender(node.address, "busy")
            for client in idle(node, count):
                stack.callback(client.close)
            stack.callback(sender.close)
            cpu_us(node, sender)  # warms up
            nodes.append((node, sender))
        turns = [[cpu_us(*each) for each in nodes] for _ in range(max(3, round(seconds * TURNS_PER_S)))]
    one, many = (median(times) for times in zip(*turns, strict=True))
    return one, many


IDLE = {
    "nobody connected": nobody_connected,
    "consumers without room": without_room,
    "consumers wait elsewhere": waiting_elsewhere,
}


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    raise_file_limit()
    figures = []
    for name, idle in IDLE.items():
        one, many = compare(folder, idle, seconds)
        text = f"CPU a message, {MANY:,} idle subscriptions, {name}"
        figures.append(Figure(text, many, "µs", "the same with 1", one))
    return figures
