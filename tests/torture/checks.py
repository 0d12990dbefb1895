"""Judges what journals and logs say: the simulator's checks at each node, and what is promised between nodes.

The simulator's checks judge what one node has and delivered. A message that was sent to several nodes, or that
links copy, must be at each of them: each node is judged as if it were alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from headpond.sim.checks import CHECKS
from headpond.sim.history import Accounts, Batch, Delivered, History, Read, Sent, Settled
from headpond.sim.plan import Plan, draw
from tests.torture.cast import SPARK_PREFIX, Part
from tests.torture.faults import FAULTS

TRANSIT = 0.25
"""A message may be on its way to a program for a quarter of the time that a simulation allows."""


def judge(history: History, part: Part, settled_before_move: int = 0) -> list[str]:
    """All broken promises of a part, each with the name of its check."""
    broken = [f"{name}: {each}" for name, check in BETWEEN.items() for each in check(history, part)]
    broken += [f"moved: {each}" for each in check_move(history, part, settled_before_move)]
    for node in part.nodes:
        seen, plan = at_node(history, part, node)
        for name, check in CHECKS.items():
            if (name, node) != (
                "order",
                part.restored,
            ):  # its peers fill in what it lost behind what it got since
                broken += [f"{name} at {node}: {each}" for each in check(seen, plan)]
    return broken


def at_node(history: History, part: Part, node: str) -> tuple[History, Plan]:
    """The history as one node shows it, and the plan that it is judged by."""
    alone = {taker.plan.name: taker for taker in part.takers if taker.reads in ("one", "moves")}
    plan = replace(
        draw(0),
        nodes=(node,),
        topics=tuple(part.topics.values()),
        producers=tuple(sender.plan for sender in part.senders),
        writers=(),
        readers=(),
        admins=(),
        links=(),
        subscriptions=tuple(taker.plan for taker in alone.values() if taker.reads == "one"),
        faults=dict.fromkeys(FAULTS, 1.0),
        tempo=1.0 if part.grouped else TRANSIT,
    )
    seen = History()
    for event in history.events:
        if isinstance(event, Sent) and event.topic in part.topics:
            named = event.node == node != part.restored  # the receipt names its entry here
            seen.add(event if named else replace(event, node=node, entry=None))
        elif isinstance(event, Delivered | Settled):
            delivery = event.delivery if isinstance(event, Settled) else event
            if delivery.node == node and delivery.subscription in alone:
                seen.add(event)
        elif isinstance(event, Batch):
            if event.topic in part.topics:
                seen.add(replace(event, node=node))
        elif getattr(event, "node", "") == node:
            seen.add(event)
    return seen, plan


def with_merged_batches(history: History) -> History:
    """A batch that a driver repeats after a crash is one: its last rows count."""
    batches: dict[tuple[str, int], Batch] = {}
    for batch in history.of(Batch):
        before = batches.get((batch.writer, batch.number))
        batch.committed |= before is not None and before.committed
        batches[batch.writer, batch.number] = batch
    merged = History(lines=history.lines)
    others = (event for event in history.events if not isinstance(event, Batch))
    for event in (*others, *batches.values()):
        merged.add(event)
    return merged


def check_answers(history: History, part: Part) -> Iterator[str]:
    """A producer that can reach its node, or its refill, in the end is refused only for lack of room."""
    for sent in history.sent.values():
        if sent.topic in part.topics and sent.outcome in ("refused", "rejected") and sent.error not in REFUSALS:
            yield f"{sent.value[:40]!r}: {sent.error}"


REFUSALS = ("buffer-full", "disk-full", "closed", "timed-out", "storage-failed", "fenced", "producer-busy")


def check_alike(history: History, part: Part) -> Iterator[str]:
    """Nodes with links between them have the same messages."""
    found = {node: set[tuple[str, bytes]]() for node in part.nodes if part.links}
    for read in history.of(Read):
        if read.node in found and read.topic in part.topics:
            found[read.node].add((read.topic, read.value))
    everything = set().union(*found.values())
    for node, there in found.items():
        if missing := everything - there:
            yield f"{node} lacks {len(missing)}, such as {min(missing)}"


def check_accounts(history: History, part: Part) -> Iterator[str]:
    """The ledger of a producer says how many messages of it the log has."""
    kept = {plan.name for plan in part.topics.values() if plan.kind != "state" and plan.soft_ttl is None}
    senders = {sender.name for sender in part.senders}
    found: Counter[tuple[str, str, str]] = Counter()
    for read in history.of(Read):
        if read.topic in part.topics and read.value in history.sent:
            found[read.node, read.topic, history.sent[read.value].producer] += 1
    for accounts in history.of(Accounts):
        for account in accounts.ledger.producers:
            there = found[accounts.node, accounts.topic, account.producer]
            if accounts.topic in kept and account.producer in senders and account.messages != there:
                where = f"{account.producer} in {accounts.topic} at {accounts.node}"
                yield f"{where}: {account.messages} by the ledger, {there} in the log"


def check_several(history: History, part: Part) -> Iterator[str]:
    """A process that reads several nodes gets every message, and only refused ones twice."""
    for taker in (taker for taker in part.takers if taker.reads in ("all", "any")):
        got: Counter[tuple[int, bytes]] = Counter()
        for event in history.of(Delivered):
            if event.consumer == taker.name:
                got[event.life, event.value] += 1
        refused: Counter[tuple[int, bytes]] = Counter()
        for settled in history.of(Settled):
            if settled.delivery.consumer == taker.name and settled.how == "nack":
                refused[settled.delivery.life, settled.delivery.value] += 1
        for (life, value), count in got.items():
            if count > 1 + refused[life, value]:
                yield f"{taker.name}#{life} got {value[:40]!r} {count} times, not {1 + refused[life, value]}"
        at = Counter(read.value for read in history.of(Read) if read.topic == taker.plan.topic)
        needed = (
            len(taker.nodes) if taker.reads == "any" else 1
        )  # without a receipt it may be at one node alone
        for value in {value for value, count in at.items() if count >= needed} - {value for _, value in got}:
            yield f"{taker.name} never got {value[:40]!r}"


def check_move(history: History, part: Part, settled_before: int) -> Iterator[str]:
    """A consumer that moves to the follower gets the rest there, and repeats are flagged."""
    for taker in (taker for taker in part.takers if taker.reads == "moves"):
        old, new = taker.nodes
        at: dict[str, dict[bytes, list[Delivered]]] = {node: defaultdict(list) for node in taker.nodes}
        for event in history.of(Delivered):
            if event.subscription == taker.plan.name:
                at[event.node][event.value].append(event)
        settled = {
            each.delivery.value
            for each in history.of(Settled)
            if each.delivery.node == old and each.how != "nack"
        }
        stored = {read.value for read in history.of(Read) if (read.node, read.topic) == (new, taker.plan.topic)}
        for value in stored - settled - at[new].keys():
            yield f"{value[:40]!r} was settled at {old} by no program, and did not come at {new}"
        for value in at[old].keys() & at[new].keys():
            if any(event.attempt == 1 for event in at[new][value]):
                yield f"{value[:40]!r} was delivered at {old}, and at {new} as attempt 1"
        if len(at[new]) > len(stored) - settled_before:
            yield f"{len(at[new])} of {len(stored)} came at {new}, whose copy had {settled_before} settled"


def check_spark(history: History, part: Part) -> Iterator[str]:
    """Spark has written every message of its source once, and nothing else."""
    if part.spark is not None:
        source, sink = (Counter(r.value for r in history.of(Read) if r.topic == topic) for topic in part.spark)
        wanted = Counter({SPARK_PREFIX + value: count for value, count in source.items()})
        for value in (wanted - sink) | (sink - wanted):
            yield f"{value[:40]!r} is {sink[value]} times in {part.spark[1]}"


BETWEEN: dict[str, Callable[[History, Part], Iterator[str]]] = {
    "answers": check_answers,
    "alike": check_alike,
    "accounts": check_accounts,
    "several": check_several,
    "spark": check_spark,
}
