"""After healing: everything is delivered within a time, and then all logs and ledgers are read."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from headpond.client.produce.refill_send import send_slot
from headpond.model.errors import HeadpondError, SubscriptionNotFound
from headpond.producer.refill.folder import files, slots
from headpond.sim.history import Sent
from headpond.sim.observer import read_topic
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.consuming import SubscriptionInfo
from tests.torture.cast import Taker
from tests.torture.group import Group
from tests.torture.journal import Journal, load
from tests.torture.machinery import Node, Troupe

LIVENESS_S = 90.0
LOOK_S = 0.5
WATCH_S = 3.0


class Stuck(Exception):
    """Something that should have happened after healing did not."""


async def wait_until(
    what: str,
    left: Callable[[], object],
    seconds: float = LIVENESS_S,
    amount: Callable[[Any], float] = lambda left: 0,
) -> None:
    """Returns when nothing is left; ``left`` may be a coroutine function.

    The time begins again whenever the ``amount`` of what is left is smaller than ever: a busy machine is slow.
    """
    over_s = asyncio.get_running_loop().time() + seconds
    last: object = "no answer"
    least = math.inf
    while True:
        try:
            last = left()
            if isinstance(last, Coroutine):
                last = await asyncio.wait_for(last, seconds)
            if last and amount(last) < least:
                least, over_s = amount(last), asyncio.get_running_loop().time() + seconds
        except (HeadpondError, OSError, TimeoutError) as error:
            last = error
        if not last:
            return
        if asyncio.get_running_loop().time() > over_s:
            raise Stuck(f"not {what}: {last}")
        await asyncio.sleep(LOOK_S)


async def ends(node: Node | Group, topic: str) -> int:
    """How many entries a topic has at a node."""
    async with node.connect() as client:
        return sum(shard.entry_next for shard in (await client.admin.show_topic(topic)).shard_list)


async def alike(troupe: Troupe, topic: str) -> None:
    """Returns when every node of the part has every message that one of them has stored."""
    sent = [each for sender in troupe.part.senders for each in load(troupe.folder, sender.name).of(Sent)]
    stored = sum(each.outcome in ("stored", "duplicate") for each in sent if each.topic == topic)

    async def left() -> object:
        counts = [await ends(node, topic) for node in troupe.nodes.values()]
        return "" if min(counts) == max(counts) >= stored else f"{counts}, and {stored} are stored"

    await wait_until(f"{topic} alike at {', '.join(troupe.nodes)}", left)


async def finish(troupe: Troupe) -> None:
    """Senders end, links and Spark copy everything, and consumers settle it; members of a group are alike."""
    senders = [worker for worker in troupe.workers if not isinstance(worker.plan, Taker)]
    takers = [worker for worker in troupe.workers if worker not in senders]
    for sender in senders:
        sender.end()
    await wait_until("senders ended", lambda: [sender.name for sender in senders if sender.up])
    for sender in senders:
        await _empty_refill(sender.folder / "refill")
    if troupe.part.links:
        for topic in troupe.part.topics:
            await alike(troupe, topic)
    if troupe.part.spark is not None:
        await _wait_for_spark(troupe, *troupe.part.spark)
    await wait_until("everything settled", lambda: _unsettled(troupe), amount=_count)
    for taker in takers:
        taker.end()
    await wait_until("takers ended", lambda: [taker.name for taker in takers if taker.up])
    for group in troupe.groups.values():
        if group.flood is not None:
            counts, broken = await group.flood.end()
            troupe.counts |= counts
            troupe.violations += broken
        await group.end_pulse()
        try:
            await group.real.all_alike()
        except TimeoutError:
            raise Stuck("the folders of all members equal") from None


async def _empty_refill(root: Path) -> None:
    """Delivers what producers have left behind, as ``headpond refill send`` does."""
    disk = OsDisk(root)
    for slot in slots(disk):
        if files(disk, slot):
            await send_slot(root, slot, token=None, timeout_s=LIVENESS_S)
        if left := files(disk, slot):
            raise Stuck(f"left in {root}: {left}")


async def _wait_for_spark(troupe: Troupe, source: str, sink: str) -> None:
    (node,) = troupe.nodes.values()

    async def left() -> int:
        return await ends(node, source) - await ends(node, sink)

    await wait_until(f"{source} copied to {sink} by Spark", left)
    assert troupe.driver is not None
    troupe.driver.ending = True
    troupe.driver.kill()


async def _unsettled(troupe: Troupe) -> list[tuple[str, list[SubscriptionInfo | None]]]:
    """The takers that are not done, and their subscriptions."""
    left = []
    for taker in troupe.part.takers:
        nodes = taker.nodes[1:] if taker.reads == "moves" else taker.nodes
        infos = [await _subscription(troupe.nodes[name], taker) for name in nodes]
        open_ = [info for info in infos if info is None or info.unsettled]
        if len(open_) > (1 if taker.reads == "any" else 0):
            left.append((f"{taker.name} at {nodes}", open_))
    return left


def _count(left: list[tuple[str, list[SubscriptionInfo | None]]]) -> int:
    return sum(info.unsettled for _, infos in left for info in infos if info is not None)


async def _subscription(node: Node | Group, taker: Taker) -> SubscriptionInfo | None:
    """None if the node does not know it: a reader of either node may have used the other alone."""
    async with node.connect() as client:
        try:
            return await client.admin.show_subscription(taker.plan.topic, taker.plan.name)
        except SubscriptionNotFound:
            return None


async def watch(troupe: Troupe) -> None:
    """Meanwhile: at every moment ledgers balance, and no message number has two contents."""
    while True:
        await asyncio.sleep(WATCH_S)
        for name, node in troupe.nodes.items():
            with contextlib.suppress(HeadpondError, OSError, TimeoutError):
                await asyncio.wait_for(_look(troupe, name, node), WATCH_S)


async def _look(troupe: Troupe, node_name: str, node: Node | Group) -> None:
    async with node.connect() as client:
        for topic in troupe.part.topics:
            ledger = await client.admin.ledger(topic)
            if not ledger.balanced:
                troupe.violations.append(f"ledger: {topic} at {node_name} meanwhile: {ledger}")
        counters = (await client.admin.show_node())["counters"]
        for name in ("peer_conflicts", "segments_rejected_conflict"):
            if counters.get(name):
                troupe.violations.append(f"conflict: {node_name} counts {counters[name]} {name}")


async def read_all(troupe: Troupe) -> None:
    """Notes everything that the nodes have."""
    for name, node in troupe.nodes.items():
        journal = Journal(troupe.folder / "journals" / f"observer.{name}.jsonl")
        async with node.connect() as client:
            for topic in [info.topic.rpartition("/")[2] for info in await client.admin.list_topics()]:
                plan = troupe.part.topics.get(topic.removesuffix(".dead"))
                if plan is not None:
                    dead_rows = plan.kind == "typed" and topic != plan.name
                    await read_topic(client, topic, name, journal, as_json=dead_rows)
