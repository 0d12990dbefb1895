"""``headpond cluster`` against a real group: three nats-servers and two nodes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from headpond.cluster.apply import Position, load_position, save_position
from headpond.cluster.jetstream import JetStream
from headpond.storage.os_disk import OsDisk
from tests.cli.conftest import HEADPOND, Cli, Spawn, clean_environment
from tests.cli.contract import check
from tests.cluster.nats import NatsCluster, free_ports

GROUP = "west"
NOWHERE = "nats://127.0.0.1:1"
pytestmark = pytest.mark.timeout(180)


class Group:
    """Two members; ``http`` is where each one answers HTTP."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.servers = servers
        ports = free_ports(4)
        self.url = f"headpond://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
        self.http = {"m1": f"http://127.0.0.1:{ports[2]}", "m2": f"http://127.0.0.1:{ports[3]}"}
        self.processes = [
            self._start(folder, name, *places)
            for name, *places in zip(("m1", "m2"), ports[:2], ports[2:], strict=True)
        ]

    def _start(self, folder: Path, member: str, port: int, http_port: int) -> subprocess.Popen[bytes]:
        words = ["node", "--cluster", self.servers, "--group", GROUP, "--member", member]
        words += ["--data", str(folder / member), "--listen", f"127.0.0.1:{port}"]
        words += ["--http", f"127.0.0.1:{http_port}"]
        with (folder / f"{member}.log").open("ab") as log:
            return subprocess.Popen(
                [*HEADPOND, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment()
            )

    def ask(self, member: str, path: str) -> tuple[int, str]:
        """The status and the body of an HTTP answer."""
        try:
            with build_opener(ProxyHandler({})).open(self.http[member] + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture(scope="module")
def group(servers: NatsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    found = Group(tmp_path_factory.mktemp("group"), servers.url)
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


def shown(cli: Cli, group: Group) -> Any:
    """What ``show`` prints as soon as one member is active and the other one follows it."""
    while True:
        done = cli("cluster", "show", "--cluster", group.servers, "--group", GROUP, "--json")
        if done.code == 0:
            found = check("cluster show", done.out)
            if sorted(each["role"] for each in found["members"]) == ["active", "standby"]:
                return found


def test_show_has_the_members_and_the_stream(cli: Cli, group: Group) -> None:
    found = shown(cli, group)
    assert [each["member"] for each in found["members"]] == ["m1", "m2"]
    assert found["active"] in ("m1", "m2")
    assert sorted(found["stream"]["replicas"]) == ["n1", "n2", "n3"]
    text = cli("cluster", "show", "--group", GROUP, HEADPOND_CLUSTER=group.servers).out.decode()
    assert "MEMBER  ROLE" in text and f"active    {found['active']}\n" in text


def test_switch_makes_the_standby_active_and_clients_follow(cli: Cli, group: Group) -> None:
    before = shown(cli, group)["active"]
    sent = cli("produce", "orders", url=group.url, stdin=b"1\n2\n")
    assert sent.code == 0, sent.err
    done = cli("cluster", "switch", "--cluster", group.servers, "--group", GROUP, "--json")
    assert done.code == 0, done.err
    switched = check("cluster switch", done.out)
    assert switched["before"] == before != switched["active"]
    assert shown(cli, group)["active"] == switched["active"]
    read = cli("consume", "orders", "--subscription", "s", "--count", 2, url=group.url)
    assert read.out == b"1\n2\n", read.err


def test_a_standby_lives_and_is_not_ready(cli: Cli, group: Group) -> None:
    active = shown(cli, group)["active"]
    (standby,) = group.http.keys() - {active}
    assert group.ask(standby, "/livez") == (200, "ok\n")
    status, body = group.ask(standby, "/readyz")
    answer = json.loads(body)
    assert (status, answer["code"], answer["role"], answer["active"]) == (503, "not-active", "standby", active)
    status, body = group.ask(standby, "/v1/topics")
    assert (status, sorted(json.loads(body))) == (503, ["code", "hint", "message", "retryable"])
    assert group.ask(active, "/readyz") == (200, "ok\n")


def test_a_group_that_does_not_exist(cli: Cli, servers: NatsCluster) -> None:
    for command in ("show", "switch"):
        done = cli("cluster", command, "--cluster", servers.url, "--group", "none", "--json")
        assert (done.code, json.loads(done.err)["code"]) == (1, "group-not-found")


def test_servers_that_do_not_answer(cli: Cli) -> None:
    done = cli("cluster", "show", "--cluster", "nats://reader:secret@127.0.0.1:1")
    assert done.code == 1
    assert "error: no NATS server answers at 127.0.0.1:1\nhint: " in done.err
    done = cli("cluster", "show", "--cluster", "nats://reader:secret@127.0.0.1:1", "--json")
    *warnings, error = map(json.loads, done.err.splitlines())
    assert [each["level"] for each in warnings] == ["warning"] and error["code"] == "unavailable"
    assert "secret" not in done.err


def test_an_address_that_is_none(cli: Cli) -> None:
    done = cli("cluster", "show", "--cluster", "http://127.0.0.1", "--json")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-config")


def test_a_reseed_needs_a_members_folder_and_a_group_without_an_active_member(
    cli: Cli, group: Group, tmp_path: Path
) -> None:
    shown(cli, group)
    words = ("cluster", "reseed", "--cluster", group.servers, "--group", GROUP, "--json", "--data")
    done = cli(*words, tmp_path, "--yes")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-data")
    save_position(OsDisk(tmp_path), Position(seq=7))
    done = cli(*words, tmp_path, "--yes")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-request")
    assert load_position(OsDisk(tmp_path)) == Position(seq=7)


def test_a_reseed_asks_first_and_continues_the_stream_behind_the_folder(
    cli: Cli, servers: NatsCluster, tmp_path: Path
) -> None:
    async def create() -> None:
        await (await JetStream.connect(servers.url, "empty", "m1")).close()

    asyncio.run(create())
    save_position(OsDisk(tmp_path), Position(seq=7, epoch=3))
    words = ("cluster", "reseed", "--cluster", servers.url, "--group", "empty", "--data", tmp_path, "--json")
    assert cli(*words).code == 2
    assert load_position(OsDisk(tmp_path)) == Position(seq=7, epoch=3)
    done = cli(*words, "--yes")
    assert done.code == 0, done.err
    found = check("cluster reseed", done.out)
    assert load_position(OsDisk(tmp_path)) == Position(seq=found["seq"], epoch=4, released=True)


def test_a_token_is_not_written_to_a_members_folder(cli: Cli, tmp_path: Path) -> None:
    save_position(OsDisk(tmp_path), Position())
    done = cli("token", "bootstrap", "--data", tmp_path, "--json")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-data")


def test_a_member_on_all_addresses_must_say_where_clients_reach_it(cli: Cli, tmp_path: Path) -> None:
    done = cli("node", "--cluster", NOWHERE, "--listen", "0.0.0.0:0", "--data", tmp_path, "--json")
    assert (done.code, json.loads(done.err.splitlines()[-1])["code"]) == (1, "bad-config")


def test_up_starts_a_cluster_and_ends_it(cli: Cli, spawn: Spawn, tmp_path: Path) -> None:
    words = ("cluster", "up", "--data", tmp_path, "--nodes", 2, "--port", 0, "--nats-port", 0, "--json")
    running = spawn(*words)
    assert running.stdout is not None and running.stderr is not None
    found = check("cluster up", running.stdout.readline())
    assert [each["name"] for each in found["processes"]] == ["m1", "m2", "n1", "n2", "n3"]
    sent = cli("produce", "orders", url=found["ready"], stdin=b"1\n")
    assert sent.code == 0, sent.err
    os.kill(found["processes"][2]["pid"], signal.SIGKILL)
    while b"n1 ended by SIGKILL" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    for each in found["processes"]:
        with pytest.raises(ProcessLookupError):
            os.kill(each["pid"], 0)


def test_up_without_a_nats_server_says_how_to_get_one(tmp_path: Path) -> None:
    code = "import sysconfig; sysconfig.get_path = lambda name: ''; from headpond.cli import main; main()"
    words = ["cluster", "up", "--data", str(tmp_path), "--port", "0", "--nats-port", "0", "--json"]
    environment = {**clean_environment(), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, json.loads(done.stderr)["code"]) == (1, "nats-missing")
