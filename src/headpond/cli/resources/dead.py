"""``headpond dead list|show|redrive``: messages that were tried too often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask
from headpond.cli.completion import subscriptions
from headpond.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, Url, parse_place
from headpond.cli.output import print_fields, print_json, print_result, print_table, reports_errors
from headpond.model.errors import SubscriptionNotFound
from headpond.shapes.resources import dead_object

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.model.message import Message

dead_app = typer.Typer(
    help="List, show and redeliver messages that failed as often as the policy of their subscription allows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SubscriptionOption = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        metavar="S",
        help="The subscription of the dead messages.",
        autocompletion=subscriptions,
    ),
]
PlaceArgument = Annotated[
    str, typer.Argument(metavar="ENTRY", help="The place of the message in the topic: ENTRY or SHARD/ENTRY.")
]


@dead_app.command("list")
@reports_errors
def list_(
    topic: TopicArgument,
    subscription: SubscriptionOption,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the dead messages, without those that were redelivered since."""
    objects = [dead_object(message) for message in _dead(topic, subscription, url, token)]
    if as_json:
        print_json(objects)
        return
    heads = ("SHARD", "ENTRY", "ATTEMPTS", "REASON", "DIED AT", "ID", "KEY")
    names = ("shard", "entry", "attempts", "reason", "died_at", "id", "key")
    rows: list[dict[str, object]] = [{**each} for each in objects]
    print_table(heads, [tuple(each[name] for name in names) for each in rows])


@dead_app.command()
@reports_errors
def show(
    topic: TopicArgument,
    entry: PlaceArgument,
    subscription: SubscriptionOption,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead message: its contents, and why it is dead."""
    place = parse_place(entry, "ENTRY")
    for message in _dead(topic, subscription, url, token):
        found = dead_object(message)
        if (found["shard"], found["entry"]) == place:
            if as_json:
                print_json(found)
            else:
                print_fields([(name, value) for name, value in found.items() if name != "headers"])
                print_fields([(f"header {name}", value) for name, value in found["headers"].items()])
            return
    raise SubscriptionNotFound(
        f"subscription {subscription!r} of {topic} has no dead message at {entry}",
        hint="`headpond dead list` shows what there is.",
    )


@dead_app.command()
@reports_errors
def redrive(
    topic: TopicArgument,
    subscription: SubscriptionOption,
    entry: Annotated[
        list[str] | None,
        typer.Option("--entry", metavar="ENTRY", help="ENTRY or SHARD/ENTRY. Can be repeated."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead messages.", show_default=False)] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Deliver dead messages again, only to their own subscription, with attempts counted from 1."""
    if bool(entry) == everything:
        raise typer.BadParameter("give --entry or --all", param_hint="'--entry'")
    places = None if everything else [parse_place(each, "--entry") for each in entry or []]
    count = ask(url, token, lambda admin: admin.redrive(topic, subscription, places))
    print_result(
        {"redriven": count},
        f"re-drove {count} message{'' if count == 1 else 's'} of {topic} to {subscription}",
        as_json=as_json,
    )


def _dead(topic: str, subscription: str, url: str, token: str | None) -> list[Message]:
    async def all_of_them(admin: Admin) -> list[Message]:
        return [message async for message in admin.dead_letters(topic, subscription)]

    return ask(url, token, all_of_them)
