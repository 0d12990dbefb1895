"""``headpond produce`` with the node away, and ``headpond refill send`` when it is back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import headpond
from tests.cli.conftest import Cli, Node
from tests.client.processes import lines_until, lone_producer
from tests.client.reading import values_at
from tests.fire.real_node import RealNode


def refill_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.refill"))


def test_lines_are_spilled_while_no_node_answers_and_sent_when_one_does(
    cli: Cli, node: Node, topic: str, state_folder: Path
) -> None:
    node.kill()
    done = cli("produce", topic, "--json", url=node.url, stdin=b"a\nb\nc\n")
    assert done.code == 0, "they are safe"
    summary = json.loads(done.out)
    assert (summary["sent"], summary["spilled"], summary["rejected"]) == (3, 3, 0)
    assert list(summary["spill_reasons"]) == ["unavailable"] and "spilled: unavailable" in done.err
    assert "no node answers" in done.err and "refill send" in done.err
    (listed,) = json.loads(cli("refill", "list", "--json").out)
    assert listed["topic"].endswith(topic)

    away = cli("refill", "send", "--timeout", 1)
    assert away.code == 1 and "no node answers" in away.err and len(refill_files(state_folder)) == 1

    node.start()
    sent = cli("refill", "send", "--json")
    assert sent.code == 0
    (report,) = json.loads(sent.out)
    assert report["delivered"] and report["bytes_left"] == 0 and report["bytes"] > 0
    assert refill_files(state_folder) == []
    assert asyncio.run(values_at(node.url, topic)) == [b"a", b"b", b"c"]
    again = cli("refill", "send")
    assert again.code == 0 and "nothing waits" in again.err


def test_the_next_produce_delivers_what_the_last_one_left_first(cli: Cli, node: Node, topic: str) -> None:
    node.kill()
    assert cli("produce", topic, url=node.url, stdin=b"1\n2\n").code == 0
    node.start()
    assert cli("produce", topic, url=node.url, stdin=b"3\n").code == 0
    assert asyncio.run(values_at(node.url, topic)) == [b"1", b"2", b"3"]


def test_sending_goes_to_every_destination_that_the_file_names(
    cli: Cli, tmp_path: Path, topic: str, state_folder: Path
) -> None:
    with RealNode(tmp_path / "one") as one, RealNode(tmp_path / "two") as two:
        one.kill()
        two.kill()
        with lone_producer("send", one.url, topic, "p", 4, f"copies=[{two.url!r}]") as process:
            lines_until(process, "done")
        one.start()
        half = cli("refill", "send", "--timeout", 2, "--json")
        assert half.code == 1, "one of the two is still away"
        (report,) = json.loads(half.out)
        assert report["unreachable"] == [two.url] and report["bytes_left"] > 0
        two.start()
        assert cli("refill", "send").code == 0
        assert refill_files(state_folder) == []
        for node in (one, two):
            assert asyncio.run(values_at(node.url, topic)) == [b"0", b"1", b"2", b"3"]


def test_a_slot_that_a_live_process_uses_is_left_to_it(cli: Cli, node: Node, topic: str) -> None:
    node.kill()
    with lone_producer("send", node.url, topic, "p", 1) as process:
        lines_until(process, "done")
        done = cli("refill", "send")
        assert done.code == 1 and f"process {process.pid}" in done.err


def test_a_missing_slot_is_an_error(cli: Cli) -> None:
    done = cli("refill", "send", "nowhere")
    assert done.code == 1 and "no slot nowhere" in done.err


@pytest.mark.parametrize("dropped", ["destination", "file"])
def test_dropped_messages_are_not_sent(
    cli: Cli, node: Node, topic: str, state_folder: Path, dropped: str
) -> None:
    node.kill()
    assert cli("produce", topic, url=node.url, stdin=b"1\n").code == 0
    (file,) = refill_files(state_folder)
    claim = ("--destination", node.url) if dropped == "destination" else ()
    assert cli("refill", "drop", file, "--yes", *claim).code == 0
    node.start()
    assert cli("produce", topic, url=node.url, stdin=b"2\n").code == 0
    assert asyncio.run(values_at(node.url, topic)) == [b"2"]
    assert refill_files(state_folder) == []


async def spill_under_a_lease(node: Node, topic: str, **options: Any) -> None:
    """One message is stored, one is spilled, by an instance that holds the lease and closes."""
    async with (
        headpond.connect(node.url) as client,
        client.producer(topic, "till", access="single", close_timeout=0.1, **options) as producer,
    ):
        await producer.send(b"stored")
        node.kill()
        assert (await producer.send(b"spilled")).outcome == "spilled"


async def hold(node: Node, topic: str, value: bytes, **options: Any) -> None:
    async with (
        headpond.connect(node.url) as client,
        client.producer(topic, "till", access="single", wait=20, **options) as producer,
    ):
        await producer.send(value)


def test_files_of_a_lease_holder_are_sent_if_nobody_took_the_lease_since(
    cli: Cli, node: Node, topic: str, state_folder: Path
) -> None:
    cli("topic", "create", topic, "--set", "producer_lease=1s", url=node.url)
    asyncio.run(spill_under_a_lease(node, topic))
    (spilled,) = json.loads(cli("refill", "list", "--json").out)
    assert spilled["late"] is False
    node.start()  # it keeps the lease for its holder, for a second
    assert cli("refill", "send", "--state", state_folder, HEADPOND_STATE="").code == 0
    assert asyncio.run(values_at(node.url, topic)) == [b"stored", b"spilled"]


def test_a_lease_that_somebody_holds_is_not_waited_for(cli: Cli, node: Node, topic: str) -> None:
    cli("topic", "create", topic, "--set", "producer_lease=1s", url=node.url)
    asyncio.run(spill_under_a_lease(node, topic))
    node.start()
    with headpond.sync.connect(node.url) as client:
        with client.producer(topic, "till", access="single", wait=20, refill=None):
            done = cli("refill", "send", "--timeout", 600)
        assert done.code == 1 and "is held by" in done.err


def test_files_of_a_replaced_instance_are_marked_as_late(
    cli: Cli, node: Node, topic: str, state_folder: Path, tmp_path: Path
) -> None:
    cli("topic", "create", topic, "--set", "producer_lease=1s", url=node.url)
    asyncio.run(spill_under_a_lease(node, topic))
    node.start()
    asyncio.run(hold(node, topic, b"elsewhere", refill=tmp_path / "elsewhere"))
    asyncio.run(hold(node, topic, b"here again"))
    (late,) = json.loads(cli("refill", "list", "--json").out)
    assert late["late"] is True
    listed = cli("refill", "list")
    assert "LATE" in listed.out.decode() and "refill send --late" in listed.err
    assert "refill send --late" in cli("refill", "show", late["slot"]).out.decode()
    assert cli("refill", "send").code == 1
    assert cli("refill", "send", "--late").code == 0
    values = asyncio.run(values_at(node.url, topic))
    assert values == [b"stored", b"elsewhere", b"here again", b"spilled"]
