"""Every command's ``--json`` has the shape that docs/json.md documents; the tests of some are elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import headpond
from headpond.cli.app import app
from headpond.shapes.convert import ErrorShape
from headpond.spark.sweep.sweep import RouteSummary, SweepResult
from tests.cli import contract
from tests.cli.conftest import Cli, Node, Spawn
from tests.cli.contract import check
from tests.cli.test_usage import COMMANDS
from tests.client.reading import receive

NOWHERE = "headpond://127.0.0.1:1"
Run = Callable[..., Any]


@pytest.fixture
def run(
    service: Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs a command in this process, which saves its start, and checks what it prints."""

    def running(words: str, *arguments: object, stdin: bytes = b"", code: int = 0, name: str = "") -> Any:
        file = tmp_path / "stdin"
        file.write_bytes(stdin)
        command = [*words.split(), *map(str, arguments), "--json"]
        with file.open("rb") as source, io.TextIOWrapper(source) as text:
            monkeypatch.setattr(sys, "stdin", text)
            if "HEADPOND_URL" not in command:
                monkeypatch.setenv("HEADPOND_URL", service.url)
            ended = app(command, prog_name="headpond", standalone_mode=False)
        out, err = capfd.readouterr()
        assert (ended or 0) == code, err
        return check(name or words, out.encode())

    return running


def test_every_command_is_on_the_page() -> None:
    names = {" ".join(command) for command in COMMANDS}
    options = {"errors CODE", "spark audit --follow", "spark audit --sent-ledger"}
    program = {"run"}  # which prints no JSON of its own
    assert set(contract.COMMANDS) == names - program | options


def test_the_checker_finds_faults() -> None:
    good = {"code": "c", "meaning": "m", "hint": "h", "retryable": False}
    for bad in (
        {**good, "more": 1},
        {name: value for name, value in good.items() if name != "hint"},
        {**good, "retryable": "no"},
        [good],
    ):
        with pytest.raises(AssertionError, match="errors CODE"):
            check("errors CODE", json.dumps(bad).encode() + b"\n")


def test_topics(run: Run, topic: str) -> None:
    made = run("topic create", topic, "--column", "n:int32 not null")
    assert made["schema"] == [{"name": "n", "type": "int32", "nullable": False}]
    run("topic alter", topic, "--column", "m:string")
    run("topic set", topic, "hard_ttl=1d")
    shown = run("topic show", topic)
    assert (shown["schema_version"], shown["settings"]["hard_ttl"]["value"]) == (2, 86400)
    run("topic unset", topic, "hard_ttl")
    assert topic in str(run("topic list"))
    run("topic delete", topic, "--yes")
    run("topic create", f"{topic}.state", "--state")
    run("topic compact", f"{topic}.state")
    run("topic create", topic)


@pytest.mark.parametrize("level", ["tenant", "product", "component"])
def test_places(run: Run, level: str, topic: str) -> None:
    place = "/".join([topic, "p", "c"][: ["tenant", "product", "component"].index(level) + 1])
    run(f"{level} create", place)
    run("topic create", f"{topic}/p/c/t")
    run(f"{level} set", place, "soft_ttl=1h")
    assert run(f"{level} show", place)["topic_list"] == [f"{topic}/p/c/t"]
    run(f"{level} unset", place, "soft_ttl")
    run(f"{level} list")
    assert run(f"{level} delete", place, "--recursive", "--yes")["topics"] == [f"{topic}/p/c/t"]


def test_writers(run: Run, service: Node, topic: str) -> None:
    with headpond.sync.connect(service.url) as client, client.writer(topic) as writer:
        rows = pa.table({"value": [b"a"]})
        writer.commit(0, [writer.stage(topic, rows)])
        writer.stage(topic, rows)
    assert topic in [each["writer"] for each in run("writer list")]
    assert len(run("writer show", topic)["stage_list"]) == 1
    run("writer delete", topic, "--yes")


def test_producers(run: Run, topic: str) -> None:
    run("topic create", topic)
    run("producer create", topic, "till", "--access", "single")
    run("producer show", topic, "till")
    assert [each["producer"] for each in run("producer list", topic)] == ["till"]
    run("producer delete", topic, "till", "--yes")


def test_messages_and_subscriptions(run: Run, topic: str) -> None:
    sent = run("produce", topic, "--key-separator", ":", stdin=b"k:v\n\xff:\xfe\nplain\n")
    assert (sent["sent"], sent["stored"]) == (3, 3)
    run("sub create", topic, "s", "--deadline", 30)
    rows = run("consume", topic, "-s", "s", "--count", 3)
    assert [row["key"] for row in rows] == ["k", {"base64": "/w=="}, None]
    assert run("sub show", topic, "s")["acked"] == 3
    assert run("sub seek", topic, "s", "--to", 1)["positions"] == [1]
    assert run("sub pause", topic, "s")["paused"] is True
    run("sub resume", topic, "s")
    run("sub list", topic)
    run("sub delete", topic, "s", "--yes")


def test_the_ledger_and_top(run: Run, topic: str) -> None:
    run("produce", topic, stdin=b"a\nb\n")
    run("sub create", topic, "s")
    found = run("ledger", topic, "--blocks")
    assert found["balanced"] and [each["available"] for each in found["subscriptions"]] == [2]
    (sample,) = run("top", "--once", "--interval", 0.1, "--topic", topic)
    (row,) = run("consume", topic, "-s", "s", "--count", 1)
    assert row["node"] == sample["node"]["node"]
    assert [each["lag"] for each in sample["subscriptions"]] == [2]


def test_typed_rows(run: Run, service: Node, topic: str) -> None:
    run("topic create", topic, "--column", "n:int64")

    async def fill() -> None:
        async with headpond.connect(service.url) as client, client.producer(topic) as producer:
            await producer.send({"n": 1})

    asyncio.run(fill())
    (row,) = run("consume", topic, "-s", "s", "--count", 1)
    assert row["value"] == {"n": 1}


def test_unacked_and_skipped_entries(run: Run, service: Node, topic: str) -> None:
    run("produce", topic, stdin=b"a\nb\nc\n")

    async def settle() -> None:
        async with headpond.connect(service.url) as client, client.consumer(topic, "s") as consumer:
            refuse = partial(consumer.nack, delay=600.0)  # it still waits when the commands look
            for settled in (refuse, consumer.skip, refuse):
                message = await receive(consumer)
                await settled(message)
            await consumer.flush()

    asyncio.run(settle())
    found = run("sub unacked", topic, "s")
    assert [(each["entry"], each["attempts"]) for each in found] == [(0, 1), (2, 1)]
    assert run("sub unacked", topic, "s", "--limit", 1) == found[:1]
    assert run("sub unacked", topic, "s", "--from", "0/1") == found[1:]
    assert run("sub skipped", topic, "s") == [{"shard": 0, "first": 1, "end": 2}]


def test_dead_messages(run: Run, service: Node, topic: str) -> None:
    run("produce", topic, stdin=b"a\n")

    async def refuse() -> None:
        policy = headpond.Policy(max_attempts=1)
        async with (
            headpond.connect(service.url) as client,
            client.consumer(topic, "s", policy=policy) as consumer,
        ):
            message = await receive(consumer)
            await consumer.nack(message)
            while not (await client.admin.show_subscription(topic, "s")).dead:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(refuse())
    (dead,) = run("dead list", topic, "-s", "s")
    assert dead["reason"] == "max-attempts"
    run("dead show", topic, 0, "-s", "s")
    run("topic delete", f"{topic}.dead", "--yes")
    (bare,) = run("dead list", topic, "-s", "s")
    assert bare["reason"] is None
    assert run("dead redrive", topic, "-s", "s", "--all") == {"redriven": 1}


def test_lost_ranges(run: Run, service: Node, topic: str) -> None:
    run("topic create", topic, "--set", "hard_ttl=1s")
    run("sub create", topic, "s")
    run("produce", topic, stdin=b"a\n")

    async def until_lost() -> None:
        async with headpond.connect(service.url) as client, asyncio.timeout(60):
            while not (await client.admin.show_subscription(topic, "s")).lost_ranges:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    asyncio.run(until_lost())
    assert run("sub show", topic, "s")["lost_ranges"][0]["reason"] == "retention"


def test_refills_and_files(run: Run, cli: Cli, service: Node, topic: str, state_folder: Path) -> None:
    run("produce", topic, stdin=b"a\n")
    cli("produce", topic, url=NOWHERE, stdin=b"x\n")
    (kept,) = run("refill list")
    (shown,) = run("refill show", kept["slot"])
    assert shown["shard_list"][0]["rows"] == 1
    run("inspect", kept["file"])
    run("inspect", next(service.data.glob("**/*.journal")))
    run("inspect", next(service.data.glob("topics/**/*.log")))
    run("refill send", kept["slot"], "--timeout", 0.2, code=1)
    assert run("refill drop", kept["slot"], "--yes")["dropped"][0]["rows"] == 1
    assert run("refill list") == []


def test_commands_that_need_no_node(run: Run) -> None:
    assert len(run("errors")) > 20
    assert run("errors", "disk-full", name="errors CODE")["retryable"] is True
    run("explain", "resend_many(window=8) | dedup", "--loss", 0.1)
    run("lab run", "--route", "resend", "--messages", 20)
    assert run("sim run", "--seed", 3)["failures"] == []
    assert "power-cut" in [each["scenario"] for each in run("sim scenarios")]
    assert run("sim meta", "--first", 3, "--seeds", 1)["different"] == []


def test_a_sweeps_result() -> None:
    route = RouteSummary(
        route="resend",
        runs=1,
        failed=0,
        promised=1,
        unfinished=0,
        agreeing=1,
        order_broken=0,
        r_deviation_max=0.0,
        ur_deviation_max=None,
        stands=True,
        error=None,
    )
    result = SweepResult(
        runs=1,
        failed=0,
        promised=1,
        unfinished=0,
        agreeing=1,
        seconds=1.5,
        stands=True,
        routes=[route],
        files=["runs.parquet"],
    )
    check("lab sweep", msgspec.json.encode(result) + b"\n")


def test_tokens_and_the_log_of_administration(run: Run, tmp_path: Path) -> None:
    first = run("token bootstrap", "--data", tmp_path / "node" / "data")
    with Node(tmp_path / "node") as node:
        there = ("--url", node.url, "--token", first["secret"])
        run("token create", "till", "--produce", "--scope", "acme", "--expires", "1d", *there)
        assert {each["name"] for each in run("token list", *there)} == {"admin", "till"}
        assert run("token show", "till", *there)["revoked_at"] is None
        run("token revoke", "till", "--yes", *there)
        records = run("log admin", *there)
        assert [each["result"] for each in records] == ["done"] * 3
        run("doctor", f"{NOWHERE},{node.url}", *there)


def test_links(run: Run, service: Node, topic: str) -> None:
    run("topic create", topic)
    added = run("peer add", service.url, "--topics", topic, "--direction", "both", "--name", topic)
    assert (added["peer"], added["has_token"]) == (topic, False)
    assert topic in [each["peer"] for each in run("peer list")]
    shown = run("peer show", topic)
    assert shown["error_code"] in (None, "peer-itself"), "it leads to the node that it is on"
    assert run("peer remove", topic, "--yes")["removed"] is True


def test_contexts(run: Run) -> None:
    run("context add", "here", "--url", NOWHERE, "--token", "hpd_1_SECRET", "--ca", "ca.pem")
    run("context use", "here")
    assert run("context show")["in_use"] is True
    assert [each["token"] for each in run("context list")] == ["1"]
    run("context remove", "here")


def test_a_node_says_when_it_is_ready(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn("node", "--json", "--listen", "127.0.0.1:0", "--data", tmp_path / "data")
    assert process.stdout is not None
    check("node", process.stdout.readline())


@pytest.mark.parametrize(
    "words",
    [
        "topic show nothing-there",
        "sub show nothing-there s",
        "consume nothing-there -s a/b --count 1",
        "sub unacked nothing-there s",
        "dead list nothing-there -s s",
        "producer show nothing-there p",
        "tenant show nothing-there",
        "refill show nothing-there",
        "inspect nothing-there",
        "errors nothing-there",
        "token show nothing-there",
        "context show nothing-there",
        "explain nothing-there",
    ],
)
def test_an_error_is_the_last_line_on_stderr(cli: Cli, service: Node, words: str) -> None:
    done = cli(*words.split(), "--json", url=service.url)
    assert (done.code, done.out) == (1, b"")
    assert set(json.loads(done.err.splitlines()[-1])) == ErrorShape.__required_keys__
