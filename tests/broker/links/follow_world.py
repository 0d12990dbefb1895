"""Subscriptions that follow from one node in memory to another, and the state of every message at both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headpond.broker.links.link_table import LinkMade
from headpond.broker.subscriptions.subscription import Subscription
from headpond.wire.control.consuming import CreateSubscription, Deliver, Settle, Subscribe
from tests.broker.links.peer_world import TOPIC, MemoryNode, Way

NAME = "billing"
Row = tuple[bytes, int, int]
"""Block, segment, row."""
WAIT_S, STEP_S = 20.0, 0.005


def follow(source: MemoryNode, sink: MemoryNode, direction: str = "pull", names: str = "*") -> Way:
    way = Way(source, sink, ["*"], direction)
    way.made = LinkMade("link", "headpond://other", ["*"], direction, None, 0, "", [names])
    return way


def subscribe(node: MemoryNode, name: str = NAME, **more: Any) -> None:
    node.admin.request(CreateSubscription(TOPIC, name, **{"kind": "shared", **more}))


def of(node: MemoryNode, name: str = NAME) -> Subscription:
    found = node.shell.core.stores.subscriptions.get(node.topic().uuid, name)
    assert found is not None, f"{node.name} has no subscription {name}"
    return found


def rows(node: MemoryNode, shard: int = 0) -> dict[int, Row]:
    """The identity of each entry."""
    log = node.topic().shards[shard].log
    found: dict[int, Row] = {}
    entry = log.entry_first
    while entry < log.entry_durable:
        run = log.read(entry, 2**20)
        for record in run.records:
            header = record.header
            for row in range(header.count):
                found[header.first_entry + row] = (header.block, record.segment, row)
        entry = run.next_entry
    return found


def settled(node: MemoryNode, name: str = NAME) -> set[Row]:
    found: set[Row] = set()
    for shard, cursor in enumerate(of(node, name).cursors):
        found |= {
            row for entry, row in rows(node, shard).items() if entry < cursor.cursor or entry in cursor.settled
        }
    return found


def dead(node: MemoryNode, name: str = NAME) -> set[Row]:
    return {
        row
        for shard, cursor in enumerate(of(node, name).cursors)
        for entry, row in rows(node, shard).items()
        if entry in cursor.dead
    }


def deliveries(node: MemoryNode, name: str = NAME) -> dict[Row, int]:
    """How often each unsettled message was delivered, including those in flight."""
    found: dict[Row, int] = {}
    for shard, cursor in enumerate(of(node, name).cursors):
        of_entry = rows(node, shard)
        for count, entries in cursor.deliveries_if_lost().items():
            for start, end in entries.spans(0, entries.end):
                found |= {of_entry[entry]: count for entry in range(start, end)}
    return found


def alike(a: MemoryNode, b: MemoryNode, name: str = NAME) -> bool:
    """Whether both nodes agree on every message that both have."""
    if not b.has(TOPIC) or b.shell.core.stores.subscriptions.get(b.topic().uuid, name) is None:
        return False
    there = {row for shard in range(len(b.topic().shards)) for row in rows(b, shard).values()}
    owed = {row: count for row, count in deliveries(a, name).items() if row in there}
    return all(each(a, name) & there == each(b, name) for each in (settled, dead)) and owed == deliveries(
        b, name
    )


async def until(true: Callable[[], bool]) -> None:
    for _ in range(round(WAIT_S / STEP_S)):
        if true():
            return
        await asyncio.sleep(STEP_S)
    raise AssertionError("it did not come to that")


class MemoryConsumer:
    """A consumer that takes everything, and settles what the test chooses."""

    def __init__(
        self, node: MemoryNode, name: str = NAME, kind: str = "shared", mode: str = "non_resilient"
    ) -> None:
        self.node = node
        self.client = node.shell.connect()
        self._settles = 0
        self.client.send(Subscribe(1, TOPIC, name, kind, mode, "earliest", 2**24))
        node.shell.work_all()

    def take(self) -> dict[tuple[int, int], int]:
        """Shard, entry and attempt of the deliveries."""
        self.node.shell.work_all()
        return {
            (each.shard, entry): each.attempt
            for each in self.client.take(Deliver)
            for start, end in each.spans
            for entry in range(start, end)
        }

    def settle(self, entries: list[int], *, shard: int = 0, nacked: list[int] | None = None) -> None:
        self._settles += 1
        acked = [(entry, entry + 1) for entry in entries]
        back: list[tuple[int, float | None]] = [(entry, 3600.0) for entry in nacked or []]
        self.client.send(Settle(1, self._settles, shard, acked, [], back))
        self.node.shell.work_all()
