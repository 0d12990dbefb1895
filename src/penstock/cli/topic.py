"""``penstock topic create|list|show|delete``."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, Url
from penstock.cli.output import iso_time, note, print_fields, print_json, print_table, reports_errors, run

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.wire.control import TopicInfo

topic_app = typer.Typer(
    help="Create, list, show and delete topics.", no_args_is_help=True, rich_markup_mode=None
)

Result = TypeVar("Result")


def _ask(url: str, token: str | None, question: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Asks the node one thing."""
    import penstock

    async def main() -> Result:
        async with penstock.connect(url, token=token) as client:
            return await question(client.admin)

    return run(main())


@topic_app.command()
@reports_errors
def create(
    topic: TopicArgument,
    shards: Annotated[int, typer.Option("--shards", min=1, metavar="N", help="A power of two.")] = 1,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic; its shard count is fixed for its life."""
    info = _ask(url, token, lambda admin: admin.create_topic(topic, shards=shards))
    if as_json:
        print_json(_object(info))
    else:
        print(f"created {info.topic} with {info.shards} shard{'s' if info.shards > 1 else ''}")


@topic_app.command("list")
@reports_errors
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List all topics."""
    infos = sorted(_ask(url, token, lambda admin: admin.list_topics()), key=lambda info: info.topic)
    if as_json:
        print_json([_object(info) for info in infos])
        return
    rows = [(info.topic, info.shards, info.durability, iso_time(info.created_at_us)) for info in infos]
    print_table(("TOPIC", "SHARDS", "DURABILITY", "CREATED"), rows)


@topic_app.command()
@reports_errors
def show(topic: TopicArgument, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show a topic's settings and its shards: entries kept, bytes, damage."""
    info = _ask(url, token, lambda admin: admin.show_topic(topic))
    if as_json:
        print_json(_object(info))
        return
    print_fields(
        [
            ("topic", info.topic),
            ("uuid", info.uuid.hex()),
            ("created", iso_time(info.created_at_us)),
            ("durability", info.durability),
            ("shards", info.shards),
            ("entries", _entries(info)),
            ("bytes", _bytes(info)),
        ]
    )
    print()
    rows = [
        (each.shard, each.entry_first, each.entry_next, each.bytes, each.incarnation, _spans(each.damaged))
        for each in info.shard_list
    ]
    print_table(("SHARD", "FIRST", "NEXT", "BYTES", "INCARNATION", "DAMAGED"), rows)


@topic_app.command()
@reports_errors
def delete(
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete a topic with its messages and subscriptions. There is no way back."""
    if not yes:
        _confirm(topic)
    _ask(url, token, lambda admin: admin.delete_topic(topic))
    if as_json:
        print_json({"deleted": topic})
    else:
        print(f"deleted {topic}")


def _confirm(topic: str) -> None:
    """Asks a person; a script has to say ``--yes``."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; say --yes", param_hint="'--yes'")
    if not typer.confirm(f"Delete {topic} with all its messages and subscriptions?", err=True):
        note("nothing was deleted")
        raise typer.Exit(1)


def _object(info: TopicInfo) -> dict[str, Any]:
    """What ``--json`` prints of a topic; its shards only where the node told of them (``show``)."""
    import msgspec

    settings = {
        "topic": info.topic,
        "uuid": info.uuid.hex(),
        "shards": info.shards,
        "durability": info.durability,
        "created_at": iso_time(info.created_at_us),
    }
    if not info.shard_list:
        return settings
    shards = msgspec.to_builtins(info.shard_list)
    return {**settings, "entries": _entries(info), "bytes": _bytes(info), "shard_list": shards}


def _entries(info: TopicInfo) -> int:
    return sum(each.entry_next - each.entry_first for each in info.shard_list)


def _bytes(info: TopicInfo) -> int:
    return sum(each.bytes for each in info.shard_list)


def _spans(spans: list[tuple[int, int]]) -> str | None:
    return ", ".join(f"{start}–{end - 1}" for start, end in spans) or None
