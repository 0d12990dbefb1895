"""``headpond ledger TOPIC``: accounts for every message, with the balance and R and UR of every hop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from headpond.cli.command import Node, command
from headpond.cli.options import TopicArgument, flag, option
from headpond.cli.output import iso_time, print_objects
from headpond.model.ledger import balance
from headpond.shapes.resources import ledger_object

if TYPE_CHECKING:
    from headpond.model.ledger import ProducerAccount, SubscriptionAccount
    from headpond.wire.control.ledger import BlockAccount, LedgerInfo, SubscriptionLedger

Row = dict[str, Any]
UNNAMED = "(unnamed)"
RANGES_SHOWN = 10

_ARRIVALS = "messages duplicate=duplicates late conflict=conflicts gap=gaps R UR balance"
_PRODUCERS = f"producer blocks announced stored refused pending holes unclosed {_ARRIVALS}"
_BLOCKS = f"block state last producer announced stored refused pending holes {_ARRIVALS}"
_SETTLED = (
    "subscription stored acked=acknowledged skipped dead retention damaged expired compacted passed unknown "
    "in_flight available unacked dying balance"
)
_COPIES = (
    "subscription reached R since_run new=reached_since delivered unseen redelivered elsewhere late UR "
    "before=delivered_before"
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

    R is the share of messages that arrived, UR the share of arrivals that are not repeats. Exits with 1 if an
    account does not balance.
    """
    info = node.ask(
        lambda admin: admin.ledger(topic, producer=producer, subscription=subscription, blocks=blocks)
    )
    node.show(ledger_object(info), lambda: print_ledger(info, blocks=blocks), ok=info.balanced)


# --- text -------------------------------------------------------------------------------------------


def print_ledger(info: LedgerInfo, *, blocks: bool) -> None:
    log = info.log
    before = f", {log.before:,} before that" if log.before else ""
    lost = f", {log.lost:,} lost" if log.lost else ""
    print(f"{info.topic}  {iso_time(info.at_us)}  run {info.run} of the node")
    print(f"log: {log.entries:,} entries{before}; {log.messages:,} messages{lost}: {balance(log)}")
    if blocks:
        print("\nproducer → node, in segments, one block per line")
        print_objects([_block_row(block) for block in info.blocks], _BLOCKS)
        if info.blocks_left_out:
            print(f"{info.blocks_left_out:,} blocks that were inactive for longer are left out")
    if info.producers:
        print("\nproducer → node, in segments")
        print_objects([_producer_row(account) for account in info.producers], _PRODUCERS)
        for account in info.producers:
            _print_reasons(account)
    if info.subscriptions:
        rows = [_subscription_row(one.account) for one in info.subscriptions]
        print("\nnode → consumer, in entries since the subscription's start")
        print_objects(rows, _SETTLED)
        print("\ndeliveries to consumers, repeats included")
        print_objects(rows, _COPIES)
        for one in info.subscriptions:
            _print_ranges(one)
    _print_notes(info)


def _producer_row(account: ProducerAccount) -> Row:
    row = _row(account, "duplicates", "conflicts", "gaps")
    return row | {"producer": account.producer or UNNAMED, "refused": sum(account.refused.values())}


def _block_row(block: BlockAccount) -> Row:
    state = "closed" if block.closed else "open" if block.account.open else "unclosed"
    place = {"block": block.block.hex(), "state": state, "last": iso_time(block.touched_at_us)}
    return _producer_row(block.account) | place


def _subscription_row(account: SubscriptionAccount) -> Row:
    row = _row(account, "reached", "delivered_before")
    return row | {"delivered_before": 0} if account.exact else row


def _row(account: ProducerAccount | SubscriptionAccount, *bounded: str) -> Row:
    """The fields of an account, R and UR; after a crash the ``bounded`` ones are lower bounds."""
    row = msgspec.structs.asdict(account)
    if not account.exact:
        row |= {name: f"≥{row[name]:,}" for name in bounded}
    return row | {"R": str(account.reliability), "UR": str(account.use_ratio), "balance": balance(account)}


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
