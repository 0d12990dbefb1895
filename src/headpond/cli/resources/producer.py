"""``headpond producer create|list|show|delete``: names registered at a topic, and who holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.completion import accesses, producers
from headpond.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, TopicFilter, Url, Yes
from headpond.cli.output import iso_time, print_fields, print_json, print_result, print_table, reports_errors
from headpond.shapes.resources import producer_object

if TYPE_CHECKING:
    from headpond.wire.control.producing import ProducerInfo

producer_app = typer.Typer(
    help="Register, list and delete producers of a topic.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the producer.", autocompletion=producers)
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the producer.")]


@producer_app.command()
@reports_errors
def create(
    topic: TopicArgument,
    producer: NewName,
    access: Annotated[
        str,
        typer.Option(
            "--access",
            metavar="ACCESS",
            help="single (one instance at a time) or multiple.",
            autocompletion=accesses,
        ),
    ] = "multiple",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Register the name of a producer at a topic."""
    info = ask(url, token, lambda admin: admin.create_producer(topic, producer, access=access))
    print_result(
        producer_object(info),
        f"registered {info.producer} at {info.topic} with {info.access} access",
        as_json=as_json,
    )


@producer_app.command("list")
@reports_errors
def list_(
    topic: TopicFilter = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List registered producers."""
    infos = ask(url, token, lambda admin: admin.list_producers(topic))
    if as_json:
        print_json([producer_object(info) for info in infos])
        return
    rows = [
        (
            info.topic,
            info.producer,
            info.access,
            info.epoch or None,
            len(info.connections),
            _seen(info),
            _held(info),
        )
        for info in infos
    ]
    print_table(("TOPIC", "PRODUCER", "ACCESS", "EPOCH", "CONNECTIONS", "LAST SEEN", "LEASE HOLDER"), rows)


@producer_app.command()
@reports_errors
def show(
    topic: TopicArgument, producer: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Show a producer: its access, when it was last connected, and which client holds its lease."""
    info = ask(url, token, lambda admin: admin.show_producer(topic, producer))
    if as_json:
        print_json(producer_object(info))
        return
    print_fields(
        [
            ("producer", info.producer),
            ("topic", info.topic),
            ("access", info.access),
            ("registered", iso_time(info.registered_at_us)),
            ("last seen", _seen(info)),
            ("clients", ", ".join(info.clients) or None),
            ("epoch", info.epoch or None),
            ("lease holder", _held(info)),
        ]
    )


@producer_app.command()
@reports_errors
def delete(
    topic: TopicArgument,
    producer: Name,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete the registration of a producer that is not connected. Its messages stay."""
    if not yes:
        confirm(f"Delete the registration of {producer} at {topic}?")
    ask(url, token, lambda admin: admin.delete_producer(topic, producer))
    print_result({"deleted": producer, "topic": topic}, f"deleted {producer} of {topic}", as_json=as_json)


def _seen(info: ProducerInfo) -> str | None:
    return iso_time(info.seen_at_us) if info.seen_at_us else None


def _held(info: ProducerInfo) -> str | None:
    if not info.holder:
        return None
    return (
        info.holder
        if info.lapses_in_s is None
        else f"{info.holder} (disconnected, lease ends in {info.lapses_in_s:.1f} s)"
    )
