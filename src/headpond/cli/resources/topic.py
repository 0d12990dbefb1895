"""``headpond topic create|alter|list|show|set|unset|compact|delete``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import Node, command, confirm, group
from headpond.cli.options import NewTopicArgument, TopicArgument, Yes, flag, option, wrong_use
from headpond.cli.output import picked, print_report
from headpond.cli.resources.settings import Assignments, Names, SetOption, print_settings, read_assignments
from headpond.shapes.resources import bytes_of, compaction_object, entries_of, topic_object

if TYPE_CHECKING:
    import pyarrow as pa

    from headpond.client.admin import Admin
    from headpond.wire.control.catalog import TopicInfo

topic_app = group("Create, list, change and delete topics.")

SHARDS_HELP = "The number of shards: a power of two, fixed for the life of the topic."
SCHEMA_HELP = "The columns, from a JSON or TOML list of names and types, or from an Arrow or Parquet file."
COLUMN_HELP = "A column, for example 'price:float64' or 'id:int64 not null'. Can be repeated."
SchemaFile = Annotated[Path | None, option("--schema", "FILE", SCHEMA_HELP)]
Columns = Annotated[list[str] | None, option("--column", "NAME:TYPE", COLUMN_HELP)]


@command(topic_app)
def create(
    node: Node,
    topic: NewTopicArgument,
    shards: Annotated[int, option("--shards", "N", SHARDS_HELP, min=1)] = 1,
    schema_file: SchemaFile = None,
    columns: Columns = None,
    state: Annotated[bool, flag("--state", "A state topic: it keeps the latest value per key.")] = False,
    settings: SetOption = None,
) -> None:
    """Create a topic. With columns it is a typed topic."""
    schema = _schema(schema_file, columns)
    values = read_assignments(settings)
    info = node.ask(
        lambda admin: admin.create_topic(topic, shards=shards, schema=schema, state=state, settings=values)
    )
    typed = f" and {len(schema)} column{'s' if len(schema) > 1 else ''}" if schema is not None else ""
    kind = "state topic " if info.state else ""
    counts = f"{info.shards} shard{'s' if info.shards > 1 else ''}{typed}"
    node.show(topic_object(info), f"created {kind}{info.topic} with {counts}")


@command(topic_app)
def alter(node: Node, topic: TopicArgument, schema_file: SchemaFile = None, columns: Columns = None) -> None:
    """Change the columns of a typed topic: --column adds or widens one, --schema replaces the list.

    Columns that are added must be nullable, and numbers can only become wider. Producers with the older columns
    keep working.
    """
    given = _schema(schema_file, columns)
    if given is None:
        raise wrong_use("--column", "give --column or --schema")

    async def change(admin: Admin) -> tuple[int | None, TopicInfo]:
        before = await admin.show_topic(topic)
        whole = given if schema_file is not None else _changed(before, given)
        return before.schema_version, await admin.alter_topic(topic, schema=whole)

    version, info = node.ask(change)
    same = f"{info.topic} has these columns already (schema version {info.schema_version})"
    other = f"altered {info.topic}: schema version {info.schema_version}"
    node.show(topic_object(info), same if version == info.schema_version else other)


def _schema(file: Path | None, columns: list[str] | None) -> pa.Schema | None:
    """The schema from one of the two options; None for a plain topic."""
    if file is not None and columns:
        raise wrong_use("--column", "--schema and --column cannot both be given")
    if file is None and not columns:
        return None
    import pyarrow as pa

    from headpond.shapes.columns import parse_column, read_schema

    return read_schema(file) if file is not None else pa.schema([parse_column(text) for text in columns or ()])


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


@command(topic_app, "list")
def list_(node: Node) -> None:
    """List all topics."""
    infos = sorted(node.ask(lambda admin: admin.list_topics()), key=lambda info: info.topic)
    objects = [topic_object(info) for info in infos]
    rows = [{"entries": None, "bytes": None, **each} for each in objects]  # an older node does not count
    columns = "topic shards entries bytes durability schema=schema_version created=created_at"
    node.table(objects, columns, rows)


@command(topic_app)
def show(node: Node, topic: TopicArgument) -> None:
    """Show a topic: its columns, its shards with their entries, bytes and damage, and its settings."""
    info = node.ask(lambda admin: admin.show_topic(topic))
    node.show(topic_object(info), partial(_print, info))


def _print(info: TopicInfo) -> None:
    shown = topic_object(info)
    values = {
        **shown,
        "schema": f"version {info.schema_version}" if info.schema_version is not None else None,
        "kind": "state topic: the latest value a key" if info.state else None,
        "entries": entries_of(info),
        "compacted": sum(each.compacted for each in info.shard_list) if info.state else None,
        "bytes": bytes_of(info),
    }
    names = "topic uuid created=created_at durability shards schema kind entries compacted bytes"
    shards = [{**each, "damaged": _spans(each["damaged"])} for each in shown["shard_list"]]
    columns = "shard first=entry_first next=entry_next bytes incarnation damaged"
    print_report(picked(values, names), (shown["schema"] or [], "column=name type nullable"), (shards, columns))
    if info.settings:
        print()
        print_settings(info.settings)


def _spans(spans: list[list[int]]) -> str | None:
    return ", ".join(f"{start}–{end - 1}" for start, end in spans) or None


@command(topic_app, "set")
def set_(node: Node, topic: TopicArgument, assignments: Assignments) -> None:
    """Change settings of a topic; they override inherited ones. The value `none` removes a limit."""
    values = read_assignments(assignments)
    info = node.ask(lambda admin: admin.set_topic(topic, **values))
    node.show(topic_object(info), f"set {', '.join(values)} at topic {info.topic}")


@command(topic_app)
def unset(node: Node, topic: TopicArgument, names: Names) -> None:
    """Remove settings from a topic, so that it inherits them again."""
    info = node.ask(lambda admin: admin.unset_topic(topic, *names))
    node.show(topic_object(info), f"unset {', '.join(names)} at topic {info.topic}")


@command(topic_app)
def compact(node: Node, topic: TopicArgument) -> None:
    """Remove superseded messages from the files of a state topic now, and wait until that is done."""
    result = node.ask(lambda admin: admin.compact_topic(topic))
    gone = sum(each.compacted for each in result.shards)
    before = sum(each.bytes_before for each in result.shards)
    after = sum(each.bytes_after for each in result.shards)
    text = f"compacted {result.topic}: {gone:,} entries taken out, {before:,} bytes are {after:,} now"
    node.show(compaction_object(result), text)


@command(topic_app)
def delete(node: Node, topic: TopicArgument, yes: Yes = False) -> None:
    """Delete a topic with its messages and subscriptions. This cannot be undone."""
    if not yes:
        confirm(f"Delete {topic} with all its messages and subscriptions?")
    node.ask(lambda admin: admin.delete_topic(topic))
    node.show({"deleted": topic}, f"deleted {topic}")
