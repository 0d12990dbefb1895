"""Messages as arguments, files, JSON and CSV; what ``peek`` and ``consume --format`` print."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HEADPOND, Cli, Node, clean_environment
from tests.cli.data.test_produce_consume import summary


def rows(cli: Cli, node: Node, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("peek", topic, "-n", 100, "--json", url=node.url).out.splitlines()]


def test_a_message_is_an_argument(cli: Cli, service: Node, topic: str) -> None:
    done = cli("produce", topic, "a\nb", "-k", "k", "--id", "o-1", "-H", "a=b=c", "-H", "d=", url=service.url)
    assert (done.code, summary(done.err).startswith("sent 1, stored 1,")) == (0, True)
    (row,) = rows(cli, service, topic)
    assert (row["value"], row["key"], row["id"]) == ("a\nb", "k", "o-1")
    assert row["headers"] == {"a": "b=c", "d": ""}


def test_json_lines_copy_messages(cli: Cli, service: Node, topic: str) -> None:
    cli(
        "produce", topic, "--key-separator", ":", "-H", "h=1", url=service.url, stdin=b"k:v\n\xff:\xfe\nplain\n"
    )
    lines = cli("consume", topic, "-s", "s", "-n", 3, "--json", url=service.url).out
    done = cli("produce", f"{topic}.copy", "--format", "json", url=service.url, stdin=lines)
    assert done.code == 0
    same = ("id", "key", "value", "headers", "sent_at")
    copied, first = rows(cli, service, f"{topic}.copy"), rows(cli, service, topic)
    assert [[row[name] for name in same] for row in copied] == [[row[name] for name in same] for row in first]


def test_typed_rows_come_from_lines_json_and_csv(cli: Cli, service: Node, topic: str, tmp_path: Path) -> None:
    columns = ("--column=n:int64 not null", "--column=price:decimal128(9, 2)", "--column=note:string")
    assert cli("topic", "create", topic, *columns, url=service.url).code == 0
    cli("produce", topic, '{"n": 1, "price": 1.10}', url=service.url)
    cli("produce", topic, "--format", "json", url=service.url, stdin=b'{"key": "k", "value": {"n": 2}}\n')
    file = tmp_path / "rows.csv"
    file.write_bytes(b'n,@key,note\r\n3,k,"two\r\nlines, ""quoted"""\r\n4,,\r\n')
    assert cli("produce", topic, "--file", file, "--format", "csv", url=service.url).code == 0
    found = [(row["key"], row["value"]) for row in rows(cli, service, topic)]
    assert found == [
        (None, {"n": 1, "price": "1.10", "note": None}),
        ("k", {"n": 2, "price": None, "note": None}),
        ("k", {"n": 3, "price": None, "note": 'two\r\nlines, "quoted"'}),
        ("", {"n": 4, "price": None, "note": ""}),
    ]


def test_records_at_fault_are_rejected_by_line_and_the_others_stored(
    cli: Cli, service: Node, topic: str
) -> None:
    cli("topic", "create", topic, "--column", "n:int64 not null", url=service.url)
    done = cli("produce", topic, "--format", "csv", url=service.url, stdin=b'n\n1\nx\n\n2,3\n4\n"5\n')
    assert summary(done.err) == "sent 5, stored 2, duplicate 0, spilled 0, rejected 3"
    assert [f"line {number}:" in done.err for number in (2, 3, 5, 7)] == [False, True, True, True]
    stdin = b'{"value": {"n": 6}}\n{"value": {"n": "x"}}\n{"n": 7}\nnone\n'
    done = cli("produce", topic, "--format", "json", url=service.url, stdin=stdin)
    assert summary(done.err) == "sent 4, stored 1, duplicate 0, spilled 0, rejected 3"
    assert [row["value"]["n"] for row in rows(cli, service, topic)] == [1, 4, 6]


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["--format", "csv"], b"value,other\n", "'other'"),
        (["--format", "csv"], b"key\n", "lacks the column 'value'"),
        (["--id", "x"], b"", "one MESSAGE"),
        (["a", "--file", "x"], b"", "MESSAGE or --file"),
        (["--header", "x"], b"", "NAME=VALUE"),
        (["--format", "json", "--key-separator", ":"], b"", "--format lines"),
    ],
)
def test_each_mistake_is_named(
    cli: Cli, service: Node, topic: str, arguments: list[str], stdin: bytes, says: str
) -> None:
    done = cli("produce", topic, *arguments, url=service.url, stdin=stdin)
    assert done.code in (1, 2)
    assert says in " ".join(done.err.split())


def test_peek_reads_by_position_and_leaves_nothing_behind(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, url=service.url, stdin=b"".join(b"%d\n" % number for number in range(50)))
    assert cli("peek", topic, "-n", 2, url=service.url).out == b"0\n1\n"
    assert cli("peek", topic, "--start", 48, url=service.url).out == b"48\n49\n"
    assert cli("peek", topic, "--start=-3", url=service.url).out == b"47\n48\n49\n"
    assert cli("peek", topic, "--shard", 1, url=service.url).code == 2
    assert cli("peek", topic, "--start", "x", url=service.url).code == 2
    assert json.loads(cli("sub", "list", topic, "--json", url=service.url).out) == []


def test_keyed_lines_can_be_produced_again(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, "v", "--key", "k", url=service.url)
    assert cli("consume", topic, "-s", "s", "-n", 1, "--format", "keyed", url=service.url).out == b"k\tv\n"


def test_consume_says_that_its_subscription_is_paused(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, "v", url=service.url)
    cli("sub", "create", topic, "s", url=service.url)
    cli("sub", "pause", topic, "s", url=service.url)
    done = cli("consume", topic, "-s", "s", "--idle", 0.1, url=service.url)
    assert f"headpond sub resume {topic} s" in done.err
    cli("sub", "resume", topic, "s", url=service.url)
    assert "paused" not in cli("consume", topic, "-s", "s", "-n", 1, url=service.url).err


def test_tables_have_short_names_counts_and_sizes(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, url=service.url, stdin=b"a\nb\n")
    done = cli("topic", "list", url=service.url)
    assert done.code == 0, done.err
    (line,) = [line.split() for line in done.out.decode().splitlines() if line.startswith(f"{topic} ")]
    assert line[:3] == [topic, "1", "2"]
    assert int(line[3]) > 0


def at_a_terminal(node: Node, answer: bytes, *arguments: str) -> int:
    """The exit code of a ``produce`` at a terminal where a person types the answer."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    try:
        command = [*HEADPOND, "produce", *arguments, "--url", node.url]
        return subprocess.run(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment(),
            timeout=60,
            check=False,
        ).returncode
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_topic_with_a_similar_name_is_created_only_if_a_person_says_so(
    cli: Cli, service: Node, topic: str
) -> None:
    def exists(name: str) -> bool:
        return cli("topic", "show", name, url=service.url).code == 0

    cli("topic", "create", f"invoices-{topic}", url=service.url)
    typo = f"invoicse-{topic}"
    assert at_a_terminal(service, b"n\n", typo, "v") == 1
    assert not exists(typo)
    assert at_a_terminal(service, b"y\n", typo, "v") == 0
    assert exists(typo)
    assert at_a_terminal(service, b"", f"invoiecs-{topic}", "v", "--create") == 0
    assert cli("produce", f"invocies-{topic}", "v", url=service.url).code == 0, "a script is not asked"
