"""What an operator sees of a real group: metrics and the group at every member's HTTP, the doctor, names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Cli
from tests.cli.contract import check
from tests.cli.operate.test_cluster import GROUP, Group, shown
from tests.cluster.nats import NatsCluster, free_ports
from tests.fire.real_node import wait_until
from tests.metrics_page import member_page, node_page, sample_names

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("group")


@pytest.fixture(scope="module")
def group(servers: NatsCluster, folder: Path) -> Iterator[Group]:
    found = Group(folder, servers.url)
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


def roles(cli: Cli, group: Group) -> tuple[str, str]:
    """The active member and the standby."""
    active = shown(cli, group)["active"]
    (standby,) = group.http.keys() - {active}
    return active, standby


def metrics(group: Group, member: str) -> dict[str, float]:
    status, body = group.ask(member, "/metrics")
    assert status == 200, body
    lines = [line.rsplit(" ", 1) for line in body.splitlines() if line.startswith("headpond_cluster_")]
    labels = f'{{group="{GROUP}",member="{member}"'
    return {name.replace(labels, "").replace("}", ""): float(value) for name, value in lines}


def test_every_member_has_metrics_of_its_place_in_the_cluster(cli: Cli, group: Group) -> None:
    active, standby = roles(cli, group)
    sent = cli("produce", "orders", url=group.url, stdin=b"1\n2\n")
    assert sent.code == 0, sent.err
    mine, other = metrics(group, active), metrics(group, standby)
    for found, role in ((mine, "active"), (other, "standby")):
        given = {name: found[f'headpond_cluster_role,role="{name}"'] for name in ("active", "standby")}
        assert given == {"active": float(role == "active"), "standby": float(role == "standby")}
        assert found["headpond_cluster_epoch"] >= 1 and found["headpond_cluster_stream_up"] == 1
        assert found["headpond_cluster_stream_replicas_current"] == 3
        assert 0 < found["headpond_cluster_stream_bytes"] < found["headpond_cluster_stream_bytes_max"]
        assert found["headpond_cluster_lag"] < 100 and found["headpond_cluster_seq"] > 0
        assert found["headpond_cluster_applied_total"] > 0
    assert (mine["headpond_cluster_takeovers_total"], other["headpond_cluster_takeovers_total"]) == (1, 0)
    assert (mine["headpond_cluster_certain"], other["headpond_cluster_certain"]) == (1, 0)
    assert mine["headpond_cluster_append_seconds_count"] == mine["headpond_cluster_appended_total"] > 0
    assert mine["headpond_cluster_append_seconds_sum"] > 0
    assert other["headpond_cluster_lag_seconds"] < 10 and "headpond_cluster_lag_seconds" not in mine
    known = sample_names(node_page()) | sample_names(member_page())
    assert sample_names(group.ask(active, "/metrics")[1]) == known - {"headpond_cluster_lag_seconds"}


def test_every_member_shows_the_group_over_http(cli: Cli, group: Group) -> None:
    active, standby = roles(cli, group)
    for member in (active, standby):
        status, body = group.ask(member, "/v1/cluster")
        assert status == 200, body
        found = check("cluster show", body.encode() + b"\n")
        assert (found["group"], found["active"], found["stream"]["leader"] is not None) == (GROUP, active, True)
        assert [each["member"] for each in found["members"]] == ["m1", "m2"]


def test_a_page_of_another_site_sees_nothing_of_a_standby(cli: Cli, group: Group) -> None:
    _, standby = roles(cli, group)
    for headers in ({"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for path in ("/metrics", "/v1/cluster"):
            answer = httpx.get(group.http[standby] + path, headers=headers, trust_env=False)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross-site")


def examined(cli: Cli, *words: object, **environment: str) -> Any:
    """What the doctor prints; its exit code says the same."""
    done = cli("doctor", *words, "--json", **environment)
    found = check("doctor", done.out)
    assert done.code == (0 if found["ok"] else 1)
    return found


def test_the_doctor_says_that_a_standby_is_one(cli: Cli, group: Group) -> None:
    active, standby = roles(cli, group)
    found = examined(cli, group.url)
    by_role = {each["standby"]: each for each in found["addresses"]}
    assert found["ok"] and found["cluster"] is None
    assert (by_role[False]["serves"], by_role[True]["serves"], by_role[True]["answered"]) == (True, False, True)
    assert by_role[True]["error"]["code"] == "not-active"
    assert by_role[True]["successor"] == by_role[False]["address"]
    text = cli("doctor", group.url).out.decode()
    assert f"{standby} is a standby of its group; {active} is active" in text and "unavailable" not in text


def test_the_doctor_checks_servers_stream_and_members(cli: Cli, group: Group, servers: NatsCluster) -> None:
    roles(cli, group)
    ports = [server.monitor_port for server in servers.servers.values()]
    words = ["--cluster", group.servers, "--group", GROUP]
    for port in ports:
        words += ["--monitor", f"http://127.0.0.1:{port}"]
    wait_until(lambda: examined(cli, *words)["ok"])  # a busy machine may make a standby late
    found = examined(cli, *words)
    assert [each["sync_always"] for each in found["cluster"]["servers"]] == [True, True, True]
    assert sorted(each["standby"] for each in found["addresses"]) == [False, True], "addresses of the members"
    assert [each["role"] for each in found["cluster"]["group"]["members"]].count("active") == 1
    servers.kill("n3")
    try:
        problems = examined(cli, *words)["cluster"]["findings"]
        assert any("does not answer" in each["problem"] and each["hint"] for each in problems)
        text = cli("doctor", *words).out.decode()
        assert "problem: 127.0.0.1:" in text and "hint: Start it." in text
    finally:
        servers.start("n3")
        servers.wait_ready()


def test_a_second_process_with_a_members_name_ends_with_an_error(
    cli: Cli, group: Group, tmp_path: Path
) -> None:
    for member in roles(cli, group):
        words = ("node", "--cluster", group.servers, "--group", GROUP, "--member", member, "--json")
        (port,) = free_ports(1)
        done = cli(*words, "--data", tmp_path / member, "--listen", f"127.0.0.1:{port}")
        error = json.loads(done.err.splitlines()[-1])
        assert (done.code, error["code"]) == (1, "member-exists") and "--member" in error["hint"]
    assert all(process.poll() is None for process in group.processes)


def test_a_member_that_others_can_reach_does_not_start_without_tls(
    cli: Cli, group: Group, tmp_path: Path
) -> None:
    words = ("node", "--cluster", group.servers, "--group", GROUP, "--member", "m3", "--json")
    done = cli(*words, "--data", tmp_path, "--listen", "0.0.0.0:0", "--advertise", "headpond://a:7411")
    assert (done.code, json.loads(done.err.splitlines()[-1])["code"]) == (1, "insecure")


def test_a_standby_of_a_group_with_tokens_shows_itself_to_an_admin_of_everything(
    cli: Cli, group: Group
) -> None:
    """The last test of the group: from now on it needs a token."""
    active, standby = roles(cli, group)
    made = cli("token", "create", "root", "--admin", "--scope", "*", "--json", url=group.url)
    root = json.loads(made.out)["secret"]
    words = ("token", "create", "till", "--admin", "--scope", "acme", "--json")
    tenant = json.loads(cli(*words, url=group.url, HEADPOND_TOKEN=root).out)["secret"]
    deadline = time.monotonic() + 30
    while asked(group, standby, tenant) != 403 and time.monotonic() < deadline:
        time.sleep(0.1)
    for member in (active, standby):
        answers = [asked(group, member, token) for token in (None, "hpd_000000000000_nonsense", tenant, root)]
        assert answers == [401, 401, 403, 200], member
    for member in (active, standby):
        assert httpx.get(f"{group.http[member]}/livez", trust_env=False).status_code == 200


def asked(group: Group, member: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{group.http[member]}/metrics", headers=headers, trust_env=False).status_code
