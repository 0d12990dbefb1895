"""Typed topics from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headpond.model.errors import HeadpondError, SchemaMismatch
from headpond.shapes.columns import parse_column, parse_type, read_schema
from tests.cli.conftest import Cli, Node
from tests.fire.typed_writer import TypedWriter

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), False),
        ("value", pa.int32()),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("raw", pa.binary()),
    ]
)
COLUMNS = ("at:timestamp[us, UTC] not null", "value:int32", "labels:map<string, string>", "raw:binary")


def options(columns: tuple[str, ...] = COLUMNS) -> list[str]:
    return [part for column in columns for part in ("--column", column)]


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("headpond://").rpartition(":")
    return host, int(port)


def test_a_typed_topic_is_created_shown_and_altered(cli: Cli, service: Node, topic: str) -> None:
    done = cli("topic", "create", topic, *options(), url=service.url)
    assert (done.code, b"4 columns" in done.out) == (0, True)
    text = cli("topic", "show", topic, url=service.url).out.decode()
    assert "schema      version 1" in text
    assert ["at", "timestamp[us,", "tz=UTC]", "no"] in [line.split() for line in text.splitlines()]
    done = cli("topic", "alter", topic, "--column", "value:int64", "--column", "unit:string", url=service.url)
    assert (done.code, b"schema version 2" in done.out) == (0, True), done.err
    shown = json.loads(cli("topic", "show", topic, "--json", url=service.url).out)
    assert shown["schema_version"] == 2
    assert shown["schema"][1] == {"name": "value", "type": "int64", "nullable": True}
    assert [column["name"] for column in shown["schema"]] == ["at", "value", "labels", "raw", "unit"]
    done = cli("topic", "alter", topic, "--column", "unit:string", url=service.url)
    assert b"already" in done.out
    listed = cli("topic", "list", url=service.url).out.decode().splitlines()
    (line,) = [line.split() for line in listed if line.split()[0] == topic]
    assert line[5] == "2"


def test_the_json_of_a_schema_can_be_read_as_a_file(
    cli: Cli, service: Node, topic: str, tmp_path: Path
) -> None:
    cli("topic", "create", topic, *options(), url=service.url)
    shown = json.loads(cli("topic", "show", topic, "--json", url=service.url).out)
    file = tmp_path / "columns.json"
    file.write_text(json.dumps(shown["schema"]))
    assert cli("topic", "create", f"{topic}-2", "--schema", file, url=service.url).code == 0
    again = json.loads(cli("topic", "show", f"{topic}-2", "--json", url=service.url).out)
    assert again["schema"] == shown["schema"]


@pytest.mark.parametrize("form", ["json", "pairs", "toml", "table", "parquet", "arrow", "stream"])
def test_columns_are_read_from_a_file(tmp_path: Path, form: str) -> None:
    small = pa.schema([("a", pa.int64()), pa.field("b", pa.list_(pa.string()), False)])
    table = small.empty_table()
    file = tmp_path / ("columns.toml" if form in ("toml", "table") else "columns")
    if form == "parquet":
        pq.write_table(table, file)
    elif form in ("arrow", "stream"):
        make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(file), "wb") as sink, make(sink, small) as writer:
            writer.write_table(table)
    else:
        file.write_text(
            {
                "json": '[{"name": "a", "type": "int64"}, '
                '{"name": "b", "type": "list<string>", "nullable": false}]',
                "pairs": '[["a", "int64"], ["b", "list<string> not null"]]',
                "toml": '[[columns]]\nname = "a"\ntype = "int64"\n'
                '[[columns]]\nname = "b"\ntype = "list<string>"\nnullable = false\n',
                "table": '[columns]\na = "int64"\nb = "list<string> not null"\n',
            }[form]
        )
    found = read_schema(file)
    assert [(field.name, field.nullable) for field in found] == [("a", True), ("b", False)]
    assert [found.field("a").type, found.field("b").type.value_type] == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    "kind",
    [
        *(
            pa.int8(),
            pa.uint64(),
            pa.float16(),
            pa.float32(),
            pa.float64(),
            pa.bool_(),
            pa.string(),
            pa.binary(),
        ),
        *(pa.large_string(), pa.date32(), pa.time64("us"), pa.duration("ms"), pa.timestamp("ns")),
        *(pa.timestamp("us", "UTC"), pa.timestamp("s", "+02:00"), pa.decimal128(10, 2), pa.decimal256(40, 0)),
        *(pa.binary(16), pa.list_(pa.int8()), pa.large_list(pa.string()), pa.list_(pa.int64(), 3)),
        pa.map_(pa.string(), pa.list_(pa.int32())),
        pa.struct([("a", pa.int32()), pa.field("b", pa.struct([("c", pa.timestamp("us", "UTC"))]), False)]),
    ],
    ids=str,
)
def test_a_type_is_read_as_it_is_printed(kind: pa.DataType) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ":int64",
        "x:",
        "x:integer",
        "x:list<>",
        "x:map<string>",
        "x:struct<a>",
        "x:decimal128(99, 1)",
        "x:timestamp[h]",
        "x:int64 null",
        "x:list<int64",
        "x:fixed_size_binary[a]",
    ],
)
def test_a_column_that_cannot_be_read_is_named_with_a_hint(text: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"column '{text.partition(':')[0] or text}") as refused:
        parse_column(text)
    assert "int64" in refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '[{"name": "a"}]',
        '[{"name": "a", "type": "int64", "size": 3}]',
        '["a"]',
        "3",
        '[{"name": "a", "type": "int64", "nullable": 1}]',
        "[" * 100_000,
        "PAR1 not",
        "ARROW1 not",
    ],
)
def test_a_file_without_columns_is_an_error_with_a_hint(tmp_path: Path, text: str) -> None:
    file = tmp_path / "columns.json"
    file.write_text(text)
    with pytest.raises(HeadpondError) as refused:
        read_schema(file)
    assert refused.value.hint


def test_each_mistake_has_its_error_code(cli: Cli, service: Node, topic: str, tmp_path: Path) -> None:
    cli("topic", "create", topic, *options(), url=service.url)
    cli("topic", "create", f"{topic}-plain", url=service.url)
    wrong = [
        ("schema-mismatch", ("topic", "alter", topic, "--column", "value:int16")),
        ("schema-mismatch", ("topic", "alter", topic, "--column", "value:string")),
        ("schema-mismatch", ("topic", "alter", f"{topic}-plain", "--column", "x:int64")),
        ("schema-mismatch", ("topic", "create", "z", "--column", "@x:int64")),
        ("schema-mismatch", ("topic", "create", "z", "--column", "x:nothing")),
        ("bad-request", ("topic", "create", "z", "--schema", tmp_path / "none.json")),
        ("topic-not-found", ("topic", "alter", f"{topic}-none", "--column", "x:int64")),
    ]
    for code, arguments in wrong:
        done = cli(*arguments, "--json", url=service.url)
        assert (done.code, json.loads(done.err)["code"]) == (1, code), arguments
    assert cli("topic", "alter", topic, url=service.url).code == 2
    both = ("--column", "x:int8", "--schema", tmp_path / "x")
    assert cli("topic", "create", "z", *both, url=service.url).code == 2


def test_consume_prints_rows_as_objects(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, *options(), url=service.url)
    row = {"at": 1_769_860_800_000_000, "value": 7, "labels": [("host", "a")], "raw": b"\xff"}
    with TypedWriter(address(service.url), topic, SCHEMA) as writer:
        writer.send([row, {**row, "raw": b"text", "value": None}], key=b"k")
    done = cli("consume", topic, "-s", "j", "--count", 2, "--json", url=service.url)
    first, second = map(json.loads, done.out.splitlines())
    value = {"at": "2026-01-31T12:00:00Z", "value": 7, "labels": {"host": "a"}, "raw": {"base64": "/w=="}}
    assert (first["value"], first["key"]) == (value, "k")
    assert second["value"] == {**value, "raw": "text", "value": None}
    done = cli("consume", topic, "-s", "v", "--count", 2, url=service.url)
    assert [json.loads(line) for line in done.out.splitlines()] == [first["value"], second["value"]]


def test_inspect_shows_the_schema_and_the_rows(cli: Cli, node: Node) -> None:
    cli("topic", "create", "m", *options(), url=node.url)
    with TypedWriter(address(node.url), "m", SCHEMA) as writer:
        writer.send([{"at": 1, "value": 1}] * 3)
        cli("topic", "alter", "m", "--column", "unit:string", url=node.url)
        writer.send([{"at": 1, "value": 1}] * 2)
    files = sorted(node.data.rglob("*.log"))
    assert len(files) == 2, "the new schema begins a new file, whose title has it"
    seen = [json.loads(cli("inspect", file, "--json", url=node.url).out) for file in files]
    assert [each["typed"] for each in seen] == [{"rows": 3, "versions": [1]}, {"rows": 2, "versions": [2]}]
    assert [each["schema"]["version"] for each in seen] == [1, 2]
    assert seen[1]["records"][0]["schema_version"] == 2
    text = cli("inspect", files[1], url=node.url).out.decode()
    assert "unit: string" in text
    assert "rows 2" in text
