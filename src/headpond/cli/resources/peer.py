"""``headpond peer add|list|show|remove``: the links of a node to other nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from headpond.cli import completion
from headpond.cli.command import Node, command, confirm, group
from headpond.cli.options import Yes, argument, flag, option
from headpond.cli.output import note, picked, print_report
from headpond.cli.resources.context import read_token
from headpond.shapes.resources import peer_object

if TYPE_CHECKING:
    from headpond.shapes.resources import PeerShape

peer_app = group("Link a node to other nodes, to copy topics between them.")

Name = Annotated[str, argument("NAME", "The name of the link.", completion.peers)]
TOPICS_HELP = "Topics to copy: orders, 'orders-*', acme/shop/till/orders, 'shop/*' or '*'. Can be repeated."
DIRECTION_HELP = "pull copies from the other node to this one, push copies to the other node."
NAME_HELP = "The name of the link. [default: HOST:PORT]"
TOKEN_HELP = "A token of the other node, to consume (pull) or administer (push); - reads it from stdin."
SUBSCRIPTION_HELP = "Copy only these subscriptions: a name, or 'billing-*'. Can be repeated."


@command(peer_app)
def add(
    node: Node,
    peer_url: Annotated[str, argument("URL", "The other node: headpond://HOST:PORT.")],
    topics: Annotated[list[str], option("--topics", "PATTERN", TOPICS_HELP, show_default=False)],
    direction: Annotated[
        str,
        option("--direction", "pull|push|both", DIRECTION_HELP, autocompletion=completion.directions),
    ] = "pull",
    name: Annotated[str, option("--name", "TEXT", NAME_HELP, show_default=False)] = "",
    peer_token: Annotated[
        str | None, option("--peer-token", "TEXT", TOKEN_HELP, envvar="HEADPOND_PEER_TOKEN")
    ] = None,
    with_subscriptions: Annotated[
        bool, flag("--with-subscriptions", "Copy the subscriptions of these topics too.")
    ] = False,
    subscription: Annotated[list[str] | None, option("--subscription", "PATTERN", SUBSCRIPTION_HELP)] = None,
) -> None:
    """Link the node at --url to the node at URL: each message is copied once and keeps its identity.

    Topics that are created later and match are copied too. The same name and URL again changes the link.
    """
    secret = read_token() if peer_token == "-" else peer_token
    names = subscription or (["*"] if with_subscriptions else [])
    info = node.ask(
        lambda admin: admin.add_peer(
            peer_url, topics, direction=direction, name=name, token=secret, subscriptions=names
        )
    )
    node.show(peer_object(info), f"linked {info.name}")
    if not node.as_json:
        note(f"`headpond peer show {info.name}` shows its state")


@command(peer_app, "list")
def list_(node: Node) -> None:
    """List the links of the node with their state and lag."""
    infos = node.ask(lambda admin: admin.list_peers())
    columns = "name=peer url direction state lag following refused last_error=error"
    node.table([peer_object(info) for info in infos], columns)


@command(peer_app)
def show(node: Node, name: Name) -> None:
    """Show a link: its state, its counts, and the state of every topic."""
    shown = peer_object(node.ask(lambda admin: admin.show_peer(name)), whole=True)
    node.show(shown, partial(_print, shown))


def _print(link: PeerShape) -> None:
    fields = [
        *picked(link, "name=peer url"),
        ("topics", " ".join(link["topics"])),
        ("direction", link["direction"]),
        *([("subscriptions", " ".join(link["subscriptions"]))] if link["subscriptions"] else []),
        ("token", "stored" if link["has_token"] else None),
        ("created", f"{link['made_at']} by {link['made_by'] or 'a client without a token'}"),
        ("state", f"{link['state']} since {link['since']}"),
        *picked(link, "node lag"),
        ("last error", f"{link['error']} ({link['error_code']})" if link["error_code"] else None),
        *((name.replace("_", " "), count) for name, count in link["counts"].items()),
    ]
    topics = (link["topic_list"], "topic direction state lag why=message")
    subscriptions = (link["subscription_list"], "topic subscription direction state behind why=message")
    print_report(fields, topics, subscriptions)


@command(peer_app)
def remove(node: Node, name: Name, yes: Yes = False) -> None:
    """Remove a link. The messages that it copied stay."""
    if not yes:
        info = node.ask(lambda admin: admin.show_peer(name))
        confirm(f"Remove link {info.name} to {info.url} ({info.direction}, {info.following} topics)?")
    node.ask(lambda admin: admin.remove_peer(name))
    node.show({"peer": name, "removed": True}, f"removed {name}")
