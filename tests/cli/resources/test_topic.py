"""Topics from the command line."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli, Node


def test_a_topic_is_created_shown_listed_and_deleted(cli: Cli, node: Node) -> None:
    assert cli("topic", "create", "orders", "--shards", 4, url=node.url).code == 0
    cli("produce", "orders", url=node.url, stdin=b"a\nb\n")
    shown = json.loads(cli("topic", "show", "orders", "--json", url=node.url).out)
    assert (shown["shards"], shown["entries"], len(shown["shard_list"])) == (4, 2, 4)
    assert shown["topic"] == "default/default/default/orders"
    assert len(shown["uuid"]) == 32
    listed = json.loads(cli("topic", "list", "--json", url=node.url).out)
    assert [topic["topic"] for topic in listed] == [shown["topic"]]
    assert cli("topic", "delete", "orders", "--yes", url=node.url).code == 0
    assert json.loads(cli("topic", "list", "--json", url=node.url).out) == []


def test_tables_are_for_people(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, "--shards", 2, url=service.url)
    heading, *rows = cli("topic", "list", url=service.url).out.decode().splitlines()
    assert heading.split()[:2] == ["TOPIC", "SHARDS"]
    assert [topic, "2"] in [row.split()[:2] for row in rows]
    text = cli("topic", "show", topic, url=service.url).out.decode()
    assert "durability  sync" in text


def test_deleting_without_a_terminal_needs_yes(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, url=service.url)
    assert cli("topic", "delete", topic, url=service.url).code == 2
    assert cli("topic", "show", topic, url=service.url).code == 0


def test_each_mistake_has_its_error_code(cli: Cli, service: Node) -> None:
    cli("topic", "create", "orders", url=service.url)
    wrong = {
        "topic-exists": ("topic", "create", "orders"),
        "topic-not-found": ("topic", "show", "nothing"),
        "bad-topic-name": ("topic", "create", "a/b"),
        "bad-request": ("topic", "create", "three", "--shards", 3),
        "bad-url": ("topic", "list", "--url", "http://x"),
    }
    for code, arguments in wrong.items():
        done = cli(*arguments, "--json", **({} if "--url" in arguments else {"url": service.url}))
        assert (done.code, json.loads(done.err)["code"]) == (1, code)


def test_the_option_wins_over_the_environment(cli: Cli, service: Node) -> None:
    assert cli("topic", "list", "--url", service.url, url="headpond://127.0.0.1:1").code == 0
