"""``headpond ledger TOPIC``: accounts for every message, with the balance and R and UR of every hop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import Node, command
from headpond.cli.options import TopicArgument, flag, option
from headpond.cli.output import EXIT_ERROR, iso_time, print_table
from headpond.model.ledger import balance
from headpond.shapes.resources import ledger_object

if TYPE_CHECKING:
    from headpond.model.ledger import ProducerAccount, SubscriptionAccount
    from headpond.wire.control.ledger import LedgerInfo, SubscriptionLedger

UNNAMED = "(unnamed)"
RANGES_SHOWN = 10

_PRODUCERS = (
    *("PRODUCER", "BLOCKS", "ANNOUNCED", "STORED", "REFUSED", "PENDING", "HOLES", "UNCLOSED", "MESSAGES"),
    *("DUPLICATE", "LATE", "CONFLICT", "GAP", "R", "UR", "BALANCE"),
)
_BLOCKS = ("BLOCK", "STATE", "LAST", *_PRODUCERS[:1], *_PRODUCERS[2:7], *_PRODUCERS[8:])
_SETTLED = (
    *("SUBSCRIPTION", "STORED", "ACKED", "SKIPPED", "DEAD", "RETENTION", "DAMAGED", "EXPIRED", "COMPACTED"),
    *("PASSED", "UNKNOWN", "IN FLIGHT", "AVAILABLE", "UNACKED", "DYING", "BALANCE"),
)
_COPIES = (
    *("SUBSCRIPTION", "REACHED", "R", "SINCE RUN", "NEW", "DELIVERED", "UNSEEN", "REDELIVERED", "ELSEWHERE"),
    *("LATE", "UR", "BEFORE"),
)


@command()
def ledger(
    node: Node,
    topic: TopicArgument,
    producer: Annotated[str | None, option("--producer", "NAME", "Only this producer.")] = None,
    subscription: Annotated[str | None, option("--subscription", "NAME", "Only this subscription.")] = None,
    blocks: Annotated[bool, flag("--blocks", "List every block of a producer.")] = False,
) -> None:
    """Account for every segment and entry of a topic, with R and UR of both hops.

    R is the share of messages that arrived, UR the share of arrivals that were no repeats. Exits with 1 if an
    account does not balance.
    """
    info = node.ask(
        lambda admin: admin.ledger(topic, producer=producer, subscription=subscription, blocks=blocks)
    )
    node.show(ledger_object(info), lambda: print_ledger(info, blocks=blocks))
    if not info.balanced:
        raise typer.Exit(EXIT_ERROR)


# --- text -------------------------------------------------------------------------------------------


def print_ledger(info: LedgerInfo, *, blocks: bool) -> None:
    log = info.log
    before = f", {log.before:,} before that" if log.before else ""
    lost = f", {log.lost:,} lost" if log.lost else ""
    print(f"{info.topic}  {iso_time(info.at_us)}  run {info.run} of the node")
    print(f"log: {log.entries:,} entries{before}; {log.messages:,} messages{lost}: {balance(log)}")
    if blocks:
        print("\nproducer → node, in segments, one block per line")
        print_table(_BLOCKS, [_block_row(block) for block in info.blocks])
        if info.blocks_left_out:
            print(f"{info.blocks_left_out:,} blocks that were inactive for longer are left out")
    if info.producers:
        print("\nproducer → node, in segments")
        print_table(_PRODUCERS, [_producer_row(account) for account in info.producers])
        for account in info.producers:
            _print_reasons(account)
    if info.subscriptions:
        accounts = [one.account for one in info.subscriptions]
        print("\nnode → consumer, in entries since the subscription's start")
        print_table(_SETTLED, [_settled_row(account) for account in accounts])
        print("\ndeliveries to consumers, repeats included")
        print_table(_COPIES, [_copies_row(account) for account in accounts])
        for one in info.subscriptions:
            _print_ranges(one)
    _print_notes(info)


def _producer_row(account: ProducerAccount) -> tuple[object, ...]:
    return (
        account.producer or UNNAMED,
        account.blocks,
        account.announced,
        account.stored,
        sum(account.refused.values()),
        account.pending,
        account.holes,
        account.unclosed,
        account.messages,
        _count(account.duplicates, account.exact),
        account.late,
        _count(account.conflicts, account.exact),
        _count(account.gaps, account.exact),
        str(account.reliability),
        str(account.use_ratio),
        balance(account),
    )


def _block_row(block: Any) -> tuple[object, ...]:
    row = _producer_row(block.account)
    state = "closed" if block.closed else "open" if block.account.open else "unclosed"
    return (block.block.hex(), state, iso_time(block.touched_at_us), row[0], *row[2:7], *row[8:])


def _settled_row(account: SubscriptionAccount) -> tuple[object, ...]:
    return (
        account.subscription,
        account.stored,
        account.acknowledged,
        account.skipped,
        account.dead,
        account.retention,
        account.damaged,
        account.expired,
        account.compacted,
        account.passed,
        account.unknown,
        account.in_flight,
        account.available,
        account.unacked,
        account.dying,
        balance(account),
    )


def _copies_row(account: SubscriptionAccount) -> tuple[object, ...]:
    return (
        account.subscription,
        _count(account.reached, account.exact),
        str(account.reliability),
        account.since_run,
        account.reached_since,
        account.delivered,
        account.unseen,
        account.redelivered,
        account.elsewhere,
        account.late,
        str(account.use_ratio),
        0 if account.exact else f"≥{account.delivered_before:,}",
    )


def _count(count: int, exact: bool) -> object:
    return count if exact else f"≥{count:,}"


def _print_reasons(account: ProducerAccount) -> None:
    name = account.producer or UNNAMED
    for words, counts in (
        ("refused permanently", account.refused),
        ("rejected, to be sent again", account.rejected),
    ):
        if counts:
            shown = ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))
            print(f"{name}: {words}: {shown}")


def _print_ranges(one: SubscriptionLedger) -> None:
    for shard, start, end, reason, at_us in one.lost_ranges[-RANGES_SHOWN:]:
        name = one.account.subscription
        print(f"{name}: lost to {reason}: shard {shard}, entries {start:,} to {end - 1:,}, {iso_time(at_us)}")
    if (more := len(one.lost_ranges) - RANGES_SHOWN) > 0:
        print(f"{one.account.subscription}: {more:,} earlier ranges; --json lists them")


def _print_notes(info: LedgerInfo) -> None:
    copies = [one.account.exact for one in info.subscriptions] + [one.exact for one in info.producers]
    notes = [
        "R: share that arrived; UR: share of arrivals without repeats; docs/ledger.md explains each column"
    ]
    if not all(copies):
        ended = f"run {info.crashed} of the node did not stop cleanly"
        notes.append(f"≥ and ≤: {ended}; the counts that it had not written are unknown")
    if any(account.unclosed for account in info.producers):
        notes.append(
            "UNCLOSED: these producers ended without closing their blocks; what they held in memory is unknown"
        )
    if not all(account.counted for account in info.producers):
        notes.append("damage took the counts of some segments")
    print()
    for note in notes:
        print(note)
