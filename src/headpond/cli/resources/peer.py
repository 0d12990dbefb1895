"""``headpond peer add|list|show|remove``: the links of a node to other nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli import completion
from headpond.cli.ask import ask, confirm
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url, Yes
from headpond.cli.output import (
    iso_time,
    note,
    print_fields,
    print_json,
    print_result,
    print_table,
    reports_errors,
)
from headpond.cli.resources.context import read_token
from headpond.shapes.resources import peer_object

peer_app = typer.Typer(
    help="Link a node to other nodes, to copy topics between them.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the link.", autocompletion=completion.peers),
]


@peer_app.command()
@reports_errors
def add(
    peer_url: Annotated[str, typer.Argument(metavar="URL", help="The other node: headpond://HOST:PORT.")],
    topics: Annotated[
        list[str],
        typer.Option(
            "--topics",
            metavar="PATTERN",
            help="Topics to copy: orders, 'orders-*', acme/shop/till/orders, 'shop/*' or '*'. Can be repeated.",
            show_default=False,
        ),
    ],
    direction: Annotated[
        str,
        typer.Option(
            "--direction",
            metavar="pull|push|both",
            help="pull copies from the other node to this one, push copies to the other node.",
            autocompletion=completion.directions,
        ),
    ] = "pull",
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="TEXT", help="The name of the link. [default: HOST:PORT]", show_default=False
        ),
    ] = "",
    peer_token: Annotated[
        str | None,
        typer.Option(
            "--peer-token",
            envvar="HEADPOND_PEER_TOKEN",
            metavar="TEXT",
            help="A token of the other node, to consume (pull) or administer (push); - reads it from stdin.",
            show_default=False,
        ),
    ] = None,
    with_subscriptions: Annotated[
        bool,
        typer.Option(
            "--with-subscriptions", help="Copy the subscriptions of these topics too.", show_default=False
        ),
    ] = False,
    subscription: Annotated[
        list[str] | None,
        typer.Option(
            "--subscription",
            metavar="PATTERN",
            help="Copy only these subscriptions: a name, or 'billing-*'. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Link the node at --url to the node at URL: each message is copied once and keeps its identity.

    Topics that are created later and match are copied too. The same name and URL again changes the link.
    """
    secret = read_token() if peer_token == "-" else peer_token
    names = subscription or (["*"] if with_subscriptions else [])
    info = ask(
        url,
        token,
        lambda admin: admin.add_peer(
            peer_url, topics, direction=direction, name=name, token=secret, subscriptions=names
        ),
    )
    if as_json:
        print_json(peer_object(info))
    else:
        print(f"linked {info.name}")
        note(f"`headpond peer show {info.name}` shows its state")


@peer_app.command("list")
@reports_errors
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List the links of the node with their state and lag."""
    infos = ask(url, token, lambda admin: admin.list_peers())
    if as_json:
        print_json([peer_object(info) for info in infos])
        return
    rows = [
        (
            info.name,
            info.url,
            info.direction,
            info.state,
            info.lag,
            info.following,
            info.refused,
            info.error or None,
        )
        for info in infos
    ]
    print_table(("NAME", "URL", "DIRECTION", "STATE", "LAG", "FOLLOWING", "REFUSED", "LAST ERROR"), rows)


@peer_app.command()
@reports_errors
def show(name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show a link: its state, its counts, and the state of every topic."""
    info = ask(url, token, lambda admin: admin.show_peer(name))
    if as_json:
        print_json(peer_object(info, whole=True))
        return
    counts = [(each.replace("_", " "), count) for each, count in info.counts.items()]
    print_fields(
        [
            ("name", info.name),
            ("url", info.url),
            ("topics", " ".join(info.topics)),
            ("direction", info.direction),
            *([("subscriptions", " ".join(info.subscriptions))] if info.subscriptions else []),
            ("token", "stored" if info.has_token else None),
            ("created", f"{iso_time(info.made_at_us)} by {info.made_by or 'a client without a token'}"),
            ("state", f"{info.state} since {iso_time(info.since_us)}"),
            ("node", info.node or None),
            ("lag", info.lag),
            ("last error", f"{info.error} ({info.error_code})" if info.error_code else None),
            *counts,
        ]
    )
    if info.topic_list:
        print()
        rows = [
            (each.topic, each.direction, each.state, each.lag, each.message or None) for each in info.topic_list
        ]
        print_table(("TOPIC", "DIRECTION", "STATE", "LAG", "WHY"), rows)
    if info.subscription_list:
        print()
        copies = [
            (each.topic, each.subscription, each.direction, each.state, each.behind, each.message or None)
            for each in info.subscription_list
        ]
        print_table(("TOPIC", "SUBSCRIPTION", "DIRECTION", "STATE", "BEHIND", "WHY"), copies)


@peer_app.command()
@reports_errors
def remove(
    name: Name,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Remove a link. The messages that it copied stay."""
    if not yes:
        info = ask(url, token, lambda admin: admin.show_peer(name))
        confirm(f"Remove link {info.name} to {info.url} ({info.direction}, {info.following} topics)?")
    ask(url, token, lambda admin: admin.remove_peer(name))
    print_result({"peer": name, "removed": True}, f"removed {name}", as_json=as_json)
