"""Several nodes on the command line: every line goes to both, and is read once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

import headpond
from tests.cli.conftest import Cli, Node


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, service: Node) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("other"), config=f'successor = "{service.url}"') as node:
        yield node


def test_lines_go_to_both_nodes_and_are_read_once(cli: Cli, service: Node, other: Node, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(10))
    sent = cli("produce", topic, "--copy", other.url, "--json", url=service.url, stdin=lines)
    assert sent.code == 0, sent.err
    assert json.loads(sent.out)["stored"] == 10
    reading = ("consume", topic, "-s", "s", "--copy", service.url)
    some = cli(*reading, "--count", "4", url=other.url)
    rest = cli(*reading, "--idle", "1", url=other.url)
    assert some.out + rest.out == lines, "the copies of what was printed do not come to the next run"
    assert asyncio.run(_acked(service, topic)) == asyncio.run(_acked(other, topic)) == (0, 10)


def test_a_copy_that_does_not_answer_is_reported(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, url=service.url, stdin=b"one\n")
    done = cli("consume", topic, "-s", "s", "--copy", "headpond://127.0.0.1:1", "--count", "1", url=service.url)
    assert (done.code, done.out) == (0, b"one\n")
    assert "headpond://127.0.0.1:1 did not answer" in done.err


async def _acked(node: Node, topic: str) -> tuple[int, int]:
    async with headpond.connect(node.url) as client:
        shown = await client.admin.show_subscription(topic, "s")
        return shown.unsettled, shown.acked


def test_the_doctor_says_whether_clients_follow_to_the_successor(cli: Cli, service: Node, other: Node) -> None:
    (address,) = json.loads(cli("doctor", other.url, "--json").out)["addresses"]
    assert address["successor"] == service.url and address["certificate"] is None
    assert any("do not follow" in advice for advice in address["advice"])
    first, _ = json.loads(cli("doctor", f"{other.url},{service.url}", "--json").out)["addresses"]
    assert not any("do not follow" in advice for advice in first["advice"])
