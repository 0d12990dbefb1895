"""``headpond topic create|alter|list|show|set|unset|compact|delete``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.options import DEFAULT_URL, AsJson, NewTopicArgument, Token, TopicArgument, Url, Yes
from headpond.cli.output import iso_time, print_fields, print_json, print_result, print_table, reports_errors
from headpond.cli.resources.settings import Assignments, Names, SetOption, print_settings, read_assignments
from headpond.shapes.resources import bytes_of, columns_object, compaction_object, entries_of, topic_object

if TYPE_CHECKING:
    import pyarrow as pa

    from headpond.client.admin import Admin
    from headpond.wire.control.catalog import TopicInfo

topic_app = typer.Typer(
    help="Create, list, change and delete topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="The columns, from a JSON or TOML list of names and types, or from an Arrow or Parquet file.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME:TYPE",
        help="A column, for example 'price:float64' or 'id:int64 not null'. Can be repeated.",
    ),
]


@topic_app.command()
@reports_errors
def create(
    topic: NewTopicArgument,
    shards: Annotated[
        int,
        typer.Option(
            "--shards",
            min=1,
            metavar="N",
            help="The number of shards: a power of two, fixed for the life of the topic.",
        ),
    ] = 1,
    schema_file: SchemaFile = None,
    columns: Columns = None,
    state: Annotated[
        bool,
        typer.Option("--state", help="A state topic: it keeps the latest value per key.", show_default=False),
    ] = False,
    settings: SetOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic. With columns it is a typed topic."""
    schema = _schema(schema_file, columns)
    values = read_assignments(settings)
    info = ask(
        url,
        token,
        lambda admin: admin.create_topic(topic, shards=shards, schema=schema, state=state, settings=values),
    )
    if as_json:
        print_json(topic_object(info))
    else:
        typed = f" and {len(schema)} column{'s' if len(schema) > 1 else ''}" if schema is not None else ""
        kind = "state topic " if info.state else ""
        print(f"created {kind}{info.topic} with {info.shards} shard{'s' if info.shards > 1 else ''}{typed}")


@topic_app.command()
@reports_errors
def alter(
    topic: TopicArgument,
    schema_file: SchemaFile = None,
    columns: Columns = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Change the columns of a typed topic: --column adds or widens one, --schema replaces the list.

    Columns that are added must be nullable, and numbers can only become wider. Producers with the older columns
    keep working.
    """
    if schema_file is None and not columns:
        raise typer.BadParameter("give --column or --schema", param_hint="'--column'")
    given = _schema(schema_file, columns)
    assert given is not None

    async def change(admin: Admin) -> tuple[int | None, TopicInfo]:
        before = await admin.show_topic(topic)
        whole = given if schema_file is not None else _changed(before, given)
        return before.schema_version, await admin.alter_topic(topic, schema=whole)

    version, info = ask(url, token, change)
    if as_json:
        print_json(topic_object(info))
    elif version == info.schema_version:
        print(f"{info.topic} has these columns already (schema version {info.schema_version})")
    else:
        print(f"altered {info.topic}: schema version {info.schema_version}")


def _schema(file: Path | None, columns: list[str] | None) -> pa.Schema | None:
    """The schema from one of the two options; None for a plain topic."""
    import pyarrow as pa

    from headpond.shapes.columns import parse_column, read_schema

    if file is not None and columns:
        raise typer.BadParameter("--schema and --column cannot both be given", param_hint="'--column'")
    if file is not None:
        return read_schema(file)
    return pa.schema([parse_column(text) for text in columns]) if columns else None


def _changed(info: TopicInfo, given: pa.Schema) -> pa.Schema:
    """The schema of a topic with columns replaced or added; one that gets wider stays as nullable as it is."""
    import pyarrow as pa

    from headpond.wire.typed.schema import decode_schema

    if info.schema is None:
        return given  # the node says that the topic is plain
    fields = {field.name: field for field in decode_schema(info.schema)}
    for field in given:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else field.with_nullable(known.nullable)
    return pa.schema(list(fields.values()))


@topic_app.command("list")
@reports_errors
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List all topics."""
    infos = sorted(ask(url, token, lambda admin: admin.list_topics()), key=lambda info: info.topic)
    if as_json:
        print_json([topic_object(info) for info in infos])
        return
    rows = [
        (info.topic, info.shards, info.durability, info.schema_version, iso_time(info.created_at_us))
        for info in infos
    ]
    print_table(("TOPIC", "SHARDS", "DURABILITY", "SCHEMA", "CREATED"), rows)


@topic_app.command()
@reports_errors
def show(topic: TopicArgument, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show a topic: its columns, its shards with their entries, bytes and damage, and its settings."""
    info = ask(url, token, lambda admin: admin.show_topic(topic))
    if as_json:
        print_json(topic_object(info))
        return
    print_fields(
        [
            ("topic", info.topic),
            ("uuid", info.uuid.hex()),
            ("created", iso_time(info.created_at_us)),
            ("durability", info.durability),
            ("shards", info.shards),
            ("schema", f"version {info.schema_version}" if info.schema_version is not None else None),
            ("kind", "state topic: the latest value a key" if info.state else None),
            ("entries", entries_of(info)),
            ("compacted", _compacted(info) if info.state else None),
            ("bytes", bytes_of(info)),
        ]
    )
    print()
    if info.schema is not None:
        print_table(
            ("COLUMN", "TYPE", "NULLABLE"),
            [(each["name"], each["type"], each["nullable"]) for each in columns_object(info.schema)],
        )
        print()
    rows = [
        (each.shard, each.entry_first, each.entry_next, each.bytes, each.incarnation, _spans(each.damaged))
        for each in info.shard_list
    ]
    print_table(("SHARD", "FIRST", "NEXT", "BYTES", "INCARNATION", "DAMAGED"), rows)
    if info.settings:
        print()
        print_settings(info.settings)


@topic_app.command("set")
@reports_errors
def set_(
    topic: TopicArgument,
    assignments: Assignments,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic; they override inherited ones. The value `none` removes a limit."""
    values = read_assignments(assignments)
    info = ask(url, token, lambda admin: admin.set_topic(topic, **values))
    print_result(topic_object(info), f"set {', '.join(values)} at topic {info.topic}", as_json=as_json)


@topic_app.command()
@reports_errors
def unset(
    topic: TopicArgument, names: Names, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Remove settings from a topic, so that it inherits them again."""
    info = ask(url, token, lambda admin: admin.unset_topic(topic, *names))
    print_result(topic_object(info), f"unset {', '.join(names)} at topic {info.topic}", as_json=as_json)


@topic_app.command()
@reports_errors
def compact(topic: TopicArgument, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Remove superseded messages from the files of a state topic now, and wait until that is done."""
    result = ask(url, token, lambda admin: admin.compact_topic(topic))
    if as_json:
        print_json(compaction_object(result))
        return
    gone = sum(each.compacted for each in result.shards)
    before, after = (
        sum(getattr(each, name) for each in result.shards) for name in ("bytes_before", "bytes_after")
    )
    print(f"compacted {result.topic}: {gone:,} entries taken out, {before:,} bytes are {after:,} now")


@topic_app.command()
@reports_errors
def delete(
    topic: TopicArgument,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete a topic with its messages and subscriptions. This cannot be undone."""
    if not yes:
        confirm(f"Delete {topic} with all its messages and subscriptions?")
    ask(url, token, lambda admin: admin.delete_topic(topic))
    print_result({"deleted": topic}, f"deleted {topic}", as_json=as_json)


def _compacted(info: TopicInfo) -> int:
    return sum(each.compacted for each in info.shard_list)


def _spans(spans: list[tuple[int, int]]) -> str | None:
    return ", ".join(f"{start}–{end - 1}" for start, end in spans) or None
