"""``headpond sub create|list|show|unacked|skipped|seek|pause|resume|promote|delete``, and the dead messages.

``headpond dead list|show|redrive`` is about messages that failed as often as the policy of their subscription
allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli.command import Node, command, confirm, group
from headpond.cli.completion import starts, subscriptions, topics
from headpond.cli.options import (
    KindOption,
    ModeOption,
    RedeliveryOption,
    StartOption,
    SubscriptionKind,
    SubscriptionMode,
    TopicArgument,
    TopicFilter,
    Yes,
    argument,
    flag,
    option,
    parse_place,
    parse_start,
    wrong_use,
)
from headpond.cli.output import iso_time, note, picked, print_fields
from headpond.model.errors import SubscriptionNotFound
from headpond.model.policy import Policy
from headpond.shapes.resources import dead_object, skipped_object, subscription_object, unacked_object

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.shapes.resources import DeadShape, SkippedShape, UnackedShape
    from headpond.wire.control.consuming import SubscriptionInfo

sub_app = group("Create, list, move, pause and delete subscriptions.")
dead_app = group(
    "List, show and redeliver messages that failed as often as the policy of their subscription allows."
)

SubscriptionArgument = Annotated[str, argument("SUBSCRIPTION", "The name of the subscription.", subscriptions)]
NewSubscription = Annotated[str, argument("SUBSCRIPTION", "The name of the subscription.")]
PAGE = 1000
PageStart = Annotated[str, option("--from", "ENTRY", "The first place to list: ENTRY or SHARD/ENTRY.")]
PageLimit = Annotated[int, option("--limit", "N", "List at most N.", min=1)]
DEADLINE_HELP = "Seconds that a consumer has to settle a message."
BACKOFF_HELP = "Seconds before a refused message is delivered again."
ATTEMPTS_HELP = "Deliveries before a message is dead; 0 means no limit."
DEAD_LETTER_HELP = 'The topic for dead messages; "" means none.'
SEEK_HELP = "The new position: earliest, latest, an entry number or an ISO 8601 time."


@command(sub_app)
def create(
    node: Node,
    topic: TopicArgument,
    subscription: NewSubscription,
    kind: KindOption = SubscriptionKind.unique,
    mode: ModeOption = SubscriptionMode.non_resilient,
    start: StartOption = "earliest",
    deadline: Annotated[float | None, option("--deadline", "S", DEADLINE_HELP)] = None,
    backoff: Annotated[float | None, option("--backoff", "S", BACKOFF_HELP)] = None,
    redelivery: RedeliveryOption = None,
    max_attempts: Annotated[int | None, option("--max-attempts", "N", ATTEMPTS_HELP)] = None,
    dead_letter: Annotated[
        str | None, option("--dead-letter", "TOPIC", DEAD_LETTER_HELP, autocompletion=topics)
    ] = None,
) -> None:
    """Create a subscription before its first consumer connects: it starts at --start."""
    policy = Policy(
        deadline=deadline,
        backoff=backoff,
        redelivery=redelivery,
        max_attempts=max_attempts,
        dead_letter=dead_letter,
    )
    place = parse_start(start, "--start")
    info = node.ask(
        lambda admin: admin.create_subscription(
            topic, subscription, kind=kind.value, mode=mode.value, start=place, policy=policy
        )
    )
    text = f"created {info.subscription} of {info.topic}: {info.kind}, {info.mode}"
    node.show(subscription_object(info), text)


@command(sub_app, "list")
def list_(node: Node, topic: TopicFilter = None) -> None:
    """List subscriptions and their progress."""
    infos = node.ask(lambda admin: admin.list_subscriptions(topic))
    infos.sort(key=lambda info: (info.topic, info.subscription))
    objects = [subscription_object(info) for info in infos]
    rows = [
        {**each, "consumers": len(each["consumers"]), "passive": each["link"] if each["passive"] else "no"}
        for each in objects
    ]
    columns = "topic subscription kind mode consumers unsettled in_flight unacked dead paused passive"
    node.table(objects, columns, rows)


@command(sub_app)
def show(node: Node, topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Show a subscription: its progress, its counts, its lost messages, and its whole policy."""
    info = node.ask(lambda admin: admin.show_subscription(topic, subscription))
    node.show(subscription_object(info), partial(_print, info))


def _print(info: SubscriptionInfo) -> None:
    shown = subscription_object(info)
    policy: Mapping[str, object] = shown["policy"] or {}
    values = {
        **shown,
        "consumers": ", ".join(info.consumers) or "none",
        "positions": ", ".join(map(str, info.positions)),
        "compacted": info.compacted or None,
    }
    delivery = (
        "consumers next_entries=positions acknowledged=acked skipped unsettled_(backlog)=unsettled in_flight "
        "waiting_for_redelivery=unacked refused=nacked dead"
    )
    losses = "re-driven=redriven expired_(time_to_live)=expired compacted lost_(damaged_or_deleted)=lost"
    print_fields(
        [
            *picked(values, "subscription topic kind mode created=created_at paused"),
            *_copy_fields(info),
            *picked(values, delivery),
            *([("reasons dropped", info.reasons_dropped)] if info.reasons_dropped else []),
            *([("not put aside", info.bury_fault)] if info.bury_fault else []),
            *picked(values, losses),
            *(("lost range", _range_text(each)) for each in info.lost_ranges),
            *((f"policy {name}", "none" if value in (None, "") else value) for name, value in policy.items()),
        ]
    )


def _copy_fields(info: SubscriptionInfo) -> list[tuple[str, object]]:
    """The fields of a subscription that is, or was, the copy of another node's."""
    elsewhere: list[tuple[str, object]] = [("also active on", info.elsewhere)] if info.elsewhere else []
    if not info.node:
        return elsewhere
    heard = f"updated {iso_time(info.told_at_us)}" if info.told_at_us else "not updated since the node started"
    behind = f"{info.behind or 0} behind, {heard}"
    return [
        ("passive", f"yes: copy of node {info.node} over link {info.link}, {behind}" if info.passive else "no"),
        ("promotions", info.epoch),
        ("settlements ignored", info.ignored),
        *elsewhere,
    ]


def _range_text(lost: tuple[int, int, int, str, int]) -> str:
    shard, start, end, reason, at_us = lost
    return f"shard {shard}, entries {start:,}–{end - 1:,}: {reason}, {iso_time(at_us)}"


@command(sub_app)
def unacked(
    node: Node,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    start: PageStart = "0/0",
    limit: PageLimit = PAGE,
) -> None:
    """List messages that were delivered without success, and what each waits for."""
    place = parse_place(start, "--from")

    async def page(admin: Admin) -> list[UnackedShape]:
        found = admin.unacked(topic, subscription, start=place, limit=limit + 1)
        return [unacked_object(entry) async for entry in found]

    _print_page(node, page, limit, "shard entry attempts waits_for due_at bound reason")


@command(sub_app)
def skipped(
    node: Node,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    start: PageStart = "0/0",
    limit: PageLimit = PAGE,
) -> None:
    """List the ranges of entries that consumers skipped."""
    place = parse_place(start, "--from")

    async def page(admin: Admin) -> list[SkippedShape]:
        found = admin.skipped(topic, subscription, start=place, limit=limit + 1)
        return [skipped_object(each) async for each in found]

    _print_page(node, page, limit, "shard first end")


def _print_page(
    node: Node, page: Callable[[Admin], Awaitable[Sequence[Mapping[str, Any]]]], limit: int, columns: str
) -> None:
    """Prints at most ``limit`` objects; if there is one more, a note says where to continue."""
    found = node.ask(page)
    for more in found[limit:]:
        shard, first, *_ = more.values()
        note(f"there are more: --from {shard}/{first}")
    node.table(found[:limit], columns)


@command(sub_app)
def seek(
    node: Node,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[str, option("--to", "P", SEEK_HELP, autocompletion=starts)],
    shard: Annotated[int | None, option("--shard", "N", "Move only this shard.", min=0)] = None,
) -> None:
    """Move a subscription: messages before the position count as settled, all others are delivered (again)."""
    place = parse_start(to, "--to", new=False)
    info = node.ask(lambda admin: admin.seek(topic, subscription, place, shard=shard))
    places = ", ".join(map(str, info.positions))
    text = f"{info.subscription} of {info.topic} continues at entry {places}"
    node.show(subscription_object(info), text)


@command(sub_app)
def pause(node: Node, topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Deliver nothing to any consumer until `resume`."""
    info = node.ask(lambda admin: admin.pause(topic, subscription))
    node.show(subscription_object(info), f"paused {info.subscription} of {info.topic}")


@command(sub_app)
def resume(node: Node, topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Deliver messages again after `pause`."""
    info = node.ask(lambda admin: admin.resume(topic, subscription))
    node.show(subscription_object(info), f"resumed {info.subscription} of {info.topic}")


@command(sub_app)
def promote(node: Node, topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Make the copy of another node's subscription active on this node; its link no longer changes it."""
    info = node.ask(lambda admin: admin.promote(topic, subscription))
    text = f"{info.subscription} of {info.topic} is active here, with {info.unsettled} to settle"
    node.show(subscription_object(info), text)


@command(sub_app)
def delete(node: Node, topic: TopicArgument, subscription: SubscriptionArgument, yes: Yes = False) -> None:
    """Delete a subscription with its position and counts. The messages of the topic stay."""
    if not yes:
        confirm(f"Delete subscription {subscription} of {topic}?")
    node.ask(lambda admin: admin.delete_subscription(topic, subscription))
    node.show({"deleted": subscription, "topic": topic}, f"deleted {subscription} of {topic}")


# --- dead messages ----------------------------------------------------------------------------------

SubscriptionOption = Annotated[
    str,
    option("--subscription", "S", "The subscription of the dead messages.", "-s", autocompletion=subscriptions),
]
DeadEntry = Annotated[str, argument("ENTRY", "The place of the message in the topic: ENTRY or SHARD/ENTRY.")]


@command(dead_app, "list")
def list_dead(node: Node, topic: TopicArgument, subscription: SubscriptionOption) -> None:
    """List the dead messages, without those that were redelivered since."""
    node.table(_dead(node, topic, subscription), "shard entry attempts reason died_at id key")


@command(dead_app, "show")
def show_dead(node: Node, topic: TopicArgument, entry: DeadEntry, subscription: SubscriptionOption) -> None:
    """Show one dead message: its contents, and why it is dead."""
    place = parse_place(entry, "ENTRY")
    found = [each for each in _dead(node, topic, subscription) if (each["shard"], each["entry"]) == place]
    if not found:
        raise SubscriptionNotFound(
            f"subscription {subscription!r} of {topic} has no dead message at {entry}",
            hint="`headpond dead list` shows what there is.",
        )
    node.show(found[0], partial(_print_dead, found[0]))


def _print_dead(message: DeadShape) -> None:
    print_fields([(name, value) for name, value in message.items() if name != "headers"])
    print_fields([(f"header {name}", value) for name, value in message["headers"].items()])


def _dead(node: Node, topic: str, subscription: str) -> list[DeadShape]:
    async def all_of_them(admin: Admin) -> list[DeadShape]:
        return [dead_object(message) async for message in admin.dead_letters(topic, subscription)]

    return node.ask(all_of_them)


@command(dead_app)
def redrive(
    node: Node,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    entry: Annotated[
        list[str] | None, option("--entry", "ENTRY", "ENTRY or SHARD/ENTRY. Can be repeated.")
    ] = None,
    everything: Annotated[bool, flag("--all", "All dead messages.")] = False,
) -> None:
    """Deliver dead messages again, only to their own subscription, with attempts counted from 1."""
    if bool(entry) == everything:
        raise wrong_use("--entry", "give --entry or --all")
    places = None if everything else [parse_place(each, "--entry") for each in entry or []]
    count = node.ask(lambda admin: admin.redrive(topic, subscription, places))
    text = f"re-drove {count} message{'' if count == 1 else 's'} of {topic} to {subscription}"
    node.show({"redriven": count}, text)
