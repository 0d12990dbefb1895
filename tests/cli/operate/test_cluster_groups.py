"""Two groups of one member each over real nats-servers: programs and commands find a tenant's group."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import headpond
from headpond.model.errors import Unavailable
from tests.cli.conftest import HEADPOND, Cli, Done, clean_environment
from tests.cli.contract import check
from tests.cluster.nats import NatsCluster, free_ports

pytestmark = pytest.mark.timeout(180)
START_S_MAX = 60.0
TOPIC = "acme/shop/till/orders"


class Groups:
    """Groups main and west."""

    def __init__(self, folder: Path, nats: NatsCluster) -> None:
        ports = free_ports(4)
        self.servers = nats.url
        self.main, self.west = (f"headpond://127.0.0.1:{port}" for port in ports[:2])
        self.http = {"main": f"http://127.0.0.1:{ports[2]}", "west": f"http://127.0.0.1:{ports[3]}"}
        self.processes: list[subprocess.Popen[bytes]] = []
        for group, url, *places in zip(
            ("main", "west"), (self.main, self.west), ports[:2], ports[2:], strict=True
        ):
            self.processes.append(self._start(folder, group, *places))
            self._wait_ready(url)  # the first group of a cluster has every tenant

    def _start(self, folder: Path, group: str, port: int, http_port: int) -> subprocess.Popen[bytes]:
        words = ["node", "--cluster", self.servers, "--group", group, "--member", "m1"]
        words += [
            "--data",
            str(folder / group),
            "--listen",
            f"127.0.0.1:{port}",
            "--http",
            f"127.0.0.1:{http_port}",
        ]
        with (folder / f"{group}.log").open("ab") as log:
            return subprocess.Popen(
                [*HEADPOND, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment()
            )

    def _wait_ready(self, url: str) -> None:
        async def connect() -> None:
            async with headpond.connect(url):
                pass

        until = time.monotonic() + START_S_MAX
        while True:
            try:
                return asyncio.run(connect())
            except Unavailable:
                assert time.monotonic() < until
                time.sleep(0.2)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as nats:
        found = Groups(tmp_path_factory.mktemp("groups"), nats)
        try:
            yield found
        finally:
            for process in found.processes:
                process.kill()
                process.wait()


def place(cli: Cli, groups: Groups, tenant: str, group: str, *words: str) -> Done:
    return cli("cluster", "place", tenant, group, "--cluster", groups.servers, *(words or ("--yes", "--json")))


def listed(cli: Cli, groups: Groups) -> dict[str, Any]:
    done = cli("cluster", "groups", "--cluster", groups.servers, "--json")
    assert done.code == 0, done.err
    return {each["group"]: each for each in check("cluster groups", done.out)}


def test_programs_commands_and_http_find_the_group_of_a_tenant(cli: Cli, groups: Groups) -> None:
    done = place(cli, groups, "acme", "west")
    assert done.code == 0, done.err
    assert check("cluster place", done.out) == {
        "tenant": "acme",
        "group": "west",
        "before": "main",
        "changed": True,
    }

    async def program() -> None:
        async with headpond.connect(groups.main) as client:
            async with client.producer(TOPIC) as producer:
                await producer.send(b"1")
            async with client.consumer(TOPIC, "program") as consumer:
                message = await consumer.receive(30)
                assert message is not None and message.value == b"1"
                await consumer.ack(message)
            assert (await client.admin.show_topic(TOPIC)).topic == TOPIC
            assert await client.admin.list_topics() == [], "main has none"

    asyncio.run(program())
    sent = cli("produce", TOPIC, url=groups.main, stdin=b"2\n")
    assert sent.code == 0, sent.err
    read = cli("consume", TOPIC, "--subscription", "cli", "--count", 2, url=groups.main)
    assert read.out == b"1\n2\n", read.err
    with httpx.Client(base_url=groups.http["main"], trust_env=False) as http:
        path = f"/v1/topics/{TOPIC.replace('/', ':')}"
        until = time.monotonic() + START_S_MAX
        while (answer := http.get(path)).status_code == 421 and time.monotonic() < until:
            time.sleep(0.1)  # main has not heard of west's HTTP address yet
        assert (answer.status_code, answer.json()["code"]) == (307, "wrong-group")
        assert answer.headers["location"] == groups.http["west"] + path
        followed = http.post(f"{path}/messages", json={"messages": [{"value": "3"}]}, follow_redirects=True)
        assert followed.json()["stored"] == 1, followed.text
    found = listed(cli, groups)
    assert found["west"]["tenants"] == [{"tenant": "acme", "topics": 1, "group": "west"}]
    assert (found["west"]["active"], found["west"]["url"], found["west"]["members"]) == (
        "m1",
        groups.west,
        ["m1"],
    )
    text = cli("cluster", "groups", "--cluster", groups.servers).out.decode()
    assert "GROUP  ACTIVE  MEMBERS" in text and "acme" in text


def test_a_tenant_with_topics_is_not_placed_elsewhere_before_they_are_copied_and_deleted(
    cli: Cli, groups: Groups
) -> None:
    topic = "moving/a/b/t"
    sent = cli("produce", topic, url=groups.main, stdin=b"1\n2\n")
    assert sent.code == 0, sent.err
    refused = place(cli, groups, "moving", "west")
    error = json.loads(refused.err)
    assert (refused.code, error["code"]) == (1, "not-empty")
    assert error["message"] == "group main has 1 topic of tenant moving"
    assert "headpond peer add" in error["hint"] and "delete them on group main" in error["hint"]

    linked = cli("peer", "add", groups.main, "--topics", "moving/*", "--name", "move", url=groups.west)
    assert linked.code == 0, linked.err
    until = time.monotonic() + START_S_MAX
    while True:
        shown = json.loads(cli("peer", "show", "move", "--json", url=groups.west).out)
        if [(each["state"], each["lag"]) for each in shown["topic_list"]] == [("following", 0)]:
            break
        assert time.monotonic() < until
    copies = {each["tenant"]: each for each in listed(cli, groups)["west"]["tenants"]}["moving"]
    assert copies == {"tenant": "moving", "topics": 1, "group": "main"}
    assert cli("peer", "remove", "move", "--yes", url=groups.west).code == 0
    assert cli("topic", "delete", topic, "--yes", url=groups.main).code == 0
    moved = place(cli, groups, "moving", "west")
    assert moved.code == 0, moved.err
    read = cli("consume", topic, "--subscription", "s", "--count", 2, url=groups.main)
    assert read.out == b"1\n2\n", read.err
    again = check("cluster place", place(cli, groups, "moving", "west").out)
    assert (again["before"], again["changed"]) == ("west", False)


def test_a_place_is_asked_about_and_its_group_must_exist(cli: Cli, groups: Groups) -> None:
    asked = cli("cluster", "place", "new", "west", "--cluster", groups.servers, stdin=b"n\n")
    assert asked.code != 0
    assert "new" not in {each["tenant"] for each in listed(cli, groups)["west"]["tenants"]}
    missing = place(cli, groups, "new", "east")
    error = json.loads(missing.err)
    assert (error["code"], error["message"]) == (
        "group-not-found",
        "the cluster has no group east; it has main, west",
    )
    bad = place(cli, groups, "no/tenant", "west")
    assert bad.code != 0
