"""``headpond sub create|list|show|unacked|skipped|seek|pause|resume|promote|delete``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.completion import starts, subscriptions, topics
from headpond.cli.options import (
    DEFAULT_URL,
    AsJson,
    Kind,
    KindOption,
    Mode,
    ModeOption,
    RedeliveryOption,
    StartOption,
    Token,
    TopicArgument,
    TopicFilter,
    Url,
    Yes,
    parse_place,
    parse_start,
)
from headpond.cli.output import (
    iso_time,
    note,
    print_fields,
    print_json,
    print_result,
    print_table,
    reports_errors,
)
from headpond.model.policy import Policy
from headpond.shapes.resources import skipped_object, subscription_object, unacked_object

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.shapes.resources import SkippedShape, UnackedShape
    from headpond.wire.control.consuming import SubscriptionInfo

sub_app = typer.Typer(
    help="Create, list, move, pause and delete subscriptions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SubscriptionArgument = Annotated[
    str,
    typer.Argument(metavar="SUBSCRIPTION", help="The name of the subscription.", autocompletion=subscriptions),
]
NewSubscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The name of the subscription.")]
PAGE = 1000
PageStart = Annotated[
    str, typer.Option("--from", metavar="ENTRY", help="The first place to list: ENTRY or SHARD/ENTRY.")
]
PageLimit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="List at most N.")]
PLACE = "The new position: earliest, latest, an entry number or an ISO 8601 time"


@sub_app.command()
@reports_errors
def create(
    topic: TopicArgument,
    subscription: NewSubscription,
    kind: KindOption = Kind.unique,
    mode: ModeOption = Mode.non_resilient,
    start: StartOption = "earliest",
    deadline: Annotated[
        float | None,
        typer.Option("--deadline", metavar="S", help="Seconds that a consumer has to settle a message."),
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option("--backoff", metavar="S", help="Seconds before a refused message is delivered again."),
    ] = None,
    redelivery: RedeliveryOption = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts", metavar="N", help="Deliveries before a message is dead; 0 means no limit."
        ),
    ] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter",
            metavar="TOPIC",
            help='The topic for dead messages; "" means none.',
            autocompletion=topics,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
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
    info = ask(
        url,
        token,
        lambda admin: admin.create_subscription(
            topic, subscription, kind=kind.value, mode=mode.value, start=place, policy=policy
        ),
    )
    print_result(
        subscription_object(info),
        f"created {info.subscription} of {info.topic}: {info.kind}, {info.mode}",
        as_json=as_json,
    )


@sub_app.command("list")
@reports_errors
def list_(
    topic: TopicFilter = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List subscriptions and their progress."""
    infos = ask(url, token, lambda admin: admin.list_subscriptions(topic))
    infos.sort(key=lambda info: (info.topic, info.subscription))
    if as_json:
        print_json([subscription_object(info) for info in infos])
        return
    heads = (
        "TOPIC",
        "SUBSCRIPTION",
        "KIND",
        "MODE",
        "CONSUMERS",
        "UNSETTLED",
        "IN FLIGHT",
        "UNACKED",
        "DEAD",
        "PAUSED",
        "PASSIVE",
    )
    rows = [
        (
            info.topic,
            info.subscription,
            info.kind,
            info.mode,
            len(info.consumers),
            info.unsettled,
            info.in_flight,
            info.unacked,
            info.dead,
            "yes" if info.paused else "no",
            info.link if info.passive else "no",
        )
        for info in infos
    ]
    print_table(heads, rows)


@sub_app.command()
@reports_errors
def show(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show a subscription: its progress, its counts, its lost messages, and its whole policy."""
    info = ask(url, token, lambda admin: admin.show_subscription(topic, subscription))
    if as_json:
        print_json(subscription_object(info))
        return
    policy: Mapping[str, object] = subscription_object(info)["policy"] or {}
    print_fields(
        [
            ("subscription", info.subscription),
            ("topic", info.topic),
            ("kind", info.kind),
            ("mode", info.mode),
            ("created", iso_time(info.created_at_us)),
            ("paused", "yes" if info.paused else "no"),
            *_copy(info),
            ("consumers", ", ".join(info.consumers) or "none"),
            ("next entries", ", ".join(map(str, info.positions))),
            ("acknowledged", info.acked),
            ("skipped", info.skipped),
            ("unsettled (backlog)", info.unsettled),
            ("in flight", info.in_flight),
            ("waiting for redelivery", info.unacked),
            ("refused", info.nacked),
            ("dead", info.dead),
            *([("not put aside", info.bury_fault)] if info.bury_fault else []),
            ("re-driven", info.redriven),
            ("expired (time to live)", info.expired),
            ("compacted", info.compacted or None),
            ("lost (damaged or deleted)", info.lost),
            *(("lost range", _range(each)) for each in info.lost_ranges),
            *((f"policy {name}", "none" if value in (None, "") else value) for name, value in policy.items()),
        ]
    )


@sub_app.command()
@reports_errors
def unacked(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    start: PageStart = "0/0",
    limit: PageLimit = PAGE,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List messages that were delivered without success, and what each waits for."""
    place = parse_place(start, "--from")

    async def some(admin: Admin) -> list[UnackedShape]:
        found = admin.unacked(topic, subscription, start=place, limit=limit + 1)
        return [unacked_object(entry) async for entry in found]

    heads = ("SHARD", "ENTRY", "ATTEMPTS", "WAITS FOR", "DUE AT", "BOUND")
    _print_page(ask(url, token, some), limit, heads, "entry", as_json=as_json)


@sub_app.command()
@reports_errors
def skipped(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    start: PageStart = "0/0",
    limit: PageLimit = PAGE,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the ranges of entries that consumers skipped."""
    place = parse_place(start, "--from")

    async def some(admin: Admin) -> list[SkippedShape]:
        found = admin.skipped(topic, subscription, start=place, limit=limit + 1)
        return [skipped_object(each) async for each in found]

    _print_page(ask(url, token, some), limit, ("SHARD", "FIRST", "END"), "first", as_json=as_json)


def _print_page(
    found: Sequence[Mapping[str, Any]], limit: int, heads: Sequence[str], first: str, *, as_json: bool
) -> None:
    """Prints at most ``limit`` objects; if there is one more, a note says where to continue."""
    for more in found[limit:]:
        note(f"there are more: --from {more['shard']}/{more[first]}")
    if as_json:
        print_json(found[:limit])
    else:
        print_table(heads, [tuple(each.values()) for each in found[:limit]])


@sub_app.command()
@reports_errors
def seek(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[str, typer.Option("--to", metavar="P", help=f"{PLACE}.", autocompletion=starts)],
    shard: Annotated[
        int | None, typer.Option("--shard", min=0, metavar="N", help="Move only this shard.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Move a subscription: messages before the position count as settled, all others are delivered (again)."""
    place = parse_start(to, "--to", new=False)
    info = ask(url, token, lambda admin: admin.seek(topic, subscription, place, shard=shard))
    places = ", ".join(map(str, info.positions))
    print_result(
        subscription_object(info),
        f"{info.subscription} of {info.topic} continues at entry {places}",
        as_json=as_json,
    )


@sub_app.command()
@reports_errors
def pause(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Deliver nothing to any consumer until `resume`."""
    info = ask(url, token, lambda admin: admin.pause(topic, subscription))
    print_result(subscription_object(info), f"paused {info.subscription} of {info.topic}", as_json=as_json)


@sub_app.command()
@reports_errors
def resume(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Deliver messages again after `pause`."""
    info = ask(url, token, lambda admin: admin.resume(topic, subscription))
    print_result(subscription_object(info), f"resumed {info.subscription} of {info.topic}", as_json=as_json)


@sub_app.command()
@reports_errors
def promote(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Make the copy of another node's subscription active on this node; its link no longer changes it."""
    info = ask(url, token, lambda admin: admin.promote(topic, subscription))
    print_result(
        subscription_object(info),
        f"{info.subscription} of {info.topic} is active here, with {info.unsettled} to settle",
        as_json=as_json,
    )


@sub_app.command()
@reports_errors
def delete(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete a subscription with its position and counts. The messages of the topic stay."""
    if not yes:
        confirm(f"Delete subscription {subscription} of {topic}?")
    ask(url, token, lambda admin: admin.delete_subscription(topic, subscription))
    print_result(
        {"deleted": subscription, "topic": topic}, f"deleted {subscription} of {topic}", as_json=as_json
    )


def _copy(info: SubscriptionInfo) -> list[tuple[str, object]]:
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


def _range(lost: tuple[int, int, int, str, int]) -> str:
    shard, start, end, reason, at_us = lost
    return f"shard {shard}, entries {start:,}–{end - 1:,}: {reason}, {iso_time(at_us)}"
