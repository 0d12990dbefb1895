"""What a checkup of a cluster finds, and that each finding has a hint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from headpond.cluster.checkup import (
    NOTE,
    PROBLEM,
    ClusterFinding,
    ServerReport,
    check_cluster,
    group_findings,
    probe_server,
    server_findings,
)
from headpond.cluster.inquiry import GroupStatus
from headpond.cluster.journal import StreamState
from headpond.cluster.member import MemberStatus
from tests.cluster.nats import NatsCluster, free_ports

ACTIVE = MemberStatus("a", "active", "headpond://a", "", 3, 9, 5, active="a", version="1.0", certain=True)
STANDBY = MemberStatus("b", "standby", "headpond://b", "", 3, 9, 5, active="a", version="1.0", lag_s=0.3)
REPLICAS = {"n1": "leader", "n2": "current", "n3": "current"}
STREAM = StreamState(1, 9, 100, 1000, "n1", REPLICAS)
SERVER = ServerReport("a:4222", "", 0.001, "n1", "2.11.4", True, True)


def found(*members: MemberStatus, stream: StreamState = STREAM) -> list[ClusterFinding]:
    findings = list(group_findings("main", GroupStatus(list(members), stream)))
    assert all(each.hint for each in findings)
    return findings


def changed(stream: StreamState, **fields: object) -> StreamState:
    return StreamState(**{**vars(stream), **fields})


def test_a_sound_group_has_no_findings() -> None:
    assert found(ACTIVE, STANDBY) == []
    assert list(server_findings([SERVER] * 3)) == []


@pytest.mark.parametrize(
    ("members", "level", "subject", "problem"),
    [
        ((), PROBLEM, "members", "none answers"),
        ((ACTIVE,), PROBLEM, "members", "no standby"),
        ((msgspec.structs.replace(STANDBY, active=""),), PROBLEM, "members", "none is active"),
        ((STANDBY,), PROBLEM, "a", "was active last"),
        ((ACTIVE, STANDBY, STANDBY), PROBLEM, "b", "2 processes"),
        ((ACTIVE, msgspec.structs.replace(STANDBY, lag_s=60.0)), PROBLEM, "b", "60 s"),
        ((msgspec.structs.replace(ACTIVE, certain=False), STANDBY), PROBLEM, "a", "confirms nothing"),
        ((ACTIVE, STANDBY, MemberStatus("c", "copying", "", "", 0, 0, 0)), NOTE, "c", "copying"),
        ((ACTIVE, msgspec.structs.replace(STANDBY, version="0.9")), NOTE, "members", "0.9, 1.0"),
    ],
)
def test_what_is_wrong_with_members(
    members: tuple[MemberStatus, ...], level: str, subject: str, problem: str
) -> None:
    findings = found(*members)
    assert any((each.level, each.subject) == (level, subject) and problem in each.problem for each in findings)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"replicas": {"n1": "leader"}}, "1 of 3"),
        ({"replicas": {**REPLICAS, "n2": "offline, 7 behind"}}, "n2 is offline, 7 behind"),
        ({"bytes": 700}, "70% full"),
        ({"bytes": 950}, "refuses messages"),
    ],
)
def test_what_is_wrong_with_the_stream(fields: dict[str, object], problem: str) -> None:
    (finding,) = found(ACTIVE, STANDBY, stream=changed(STREAM, **fields))
    assert (finding.level, finding.subject) == (PROBLEM, "stream") and problem in finding.problem


@pytest.mark.parametrize(
    ("server", "level", "problem"),
    [
        (ServerReport("a:4222", "Connection refused"), PROBLEM, "Connection refused"),
        (ServerReport("a:4222", "", 0.1, "n1", "2.11.4", False, None), PROBLEM, "no JetStream"),
        (ServerReport("a:4222", "", 0.1, "n1", "2.10.9", True, True), PROBLEM, "version 2.10.9"),
        (ServerReport("a:4222", "", 0.1, "n1", "2.11.4", True, False), PROBLEM, "power cut"),
        (ServerReport("a:4222", "", 0.1, "n1", "2.11.4", True, None), NOTE, "cannot be seen"),
    ],
)
def test_what_is_wrong_with_a_server(server: ServerReport, level: str, problem: str) -> None:
    findings = list(server_findings([server, SERVER, SERVER]))
    assert any(each.level == level and problem in each.problem and each.hint for each in findings)


@pytest.mark.timeout(120)
async def test_servers_say_who_they_are_and_whether_they_sync_every_record(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)
    async with NatsCluster(tmp_path, size=1) as nats:
        (server,) = nats.servers.values()
        place, monitor = f"127.0.0.1:{server.port}", f"http://127.0.0.1:{server.monitor_port}"
        report = await probe_server(place)
        assert (report.name, report.jetstream, report.error) == ("n1", True, "")
        assert (await probe_server(f"127.0.0.1:{server.monitor_port}")).error
        assert "refused" in (await probe_server(f"127.0.0.1:{nowhere}")).error.lower()
        for config, wanted in (("always", True), ("2m", False)):
            path = server.folder / "server.conf"
            path.write_text(path.read_text().replace("always", f'"{config}"' if config == "2m" else config))
            nats.restart("n1")
            await asyncio.to_thread(nats.wait_ready)
            checked = await check_cluster(nats.url, "none", [monitor])
            assert checked.servers[0].sync_always is wanted
            assert checked.status is None and not checked.ok
            assert any("no group none" in each.problem and each.hint for each in checked.findings)
