"""A checkup of a cluster: its NATS servers, the stream of a group, its members, and a hint for each problem."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from headpond.cluster.inquiry import START_HINT, GroupStatus, inquire
from headpond.cluster.journal import StreamState
from headpond.cluster.member import CROWDED, FULL, MemberStatus
from headpond.model.errors import HeadpondError

ANSWER_S_MAX = 2.0
MONITOR_PORT = 8222
"""Of a nats-server, if its configuration says ``http: 8222``."""
INFO_BYTES_MAX = 64 * 1024
REPLICAS = 3
LAG_S_MAX = 10.0
"""Of a standby that follows; it has something of the active member every half second."""

PROBLEM = "problem"
NOTE = "note"
"""Not wrong by itself."""


class ClusterFinding(NamedTuple):
    level: str
    subject: str
    """A NATS server, the stream, or a member."""
    problem: str
    hint: str

    def as_object(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(slots=True)
class ServerReport:
    """What a NATS server says of itself to everybody who connects."""

    address: str
    error: str = ""
    answered_in_s: float | None = None
    name: str = ""
    version: str = ""
    jetstream: bool | None = None
    sync_always: bool | None = None
    """Only its monitoring port says so."""

    def as_object(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "answered_in_s": self.answered_in_s,
            "name": self.name or None,
            "version": self.version or None,
            "jetstream": self.jetstream,
            "sync_always": self.sync_always,
            "error": self.error or None,
        }


@dataclass(slots=True)
class ClusterReport:
    group: str
    servers: list[ServerReport]
    status: GroupStatus | None
    """None if the stream does not answer."""
    findings: list[ClusterFinding]

    @property
    def ok(self) -> bool:
        return all(each.level != PROBLEM for each in self.findings)

    @property
    def url(self) -> str:
        """The members that answer, as clients reach them; empty if none does."""
        return ",".join(each.url for each in self.status.members) if self.status is not None else ""


async def check_cluster(servers: str, group: str, monitors: Sequence[str] = ()) -> ClusterReport:
    """``monitors``: the URLs of the servers' monitoring ports; without them, port 8222 of each is tried."""
    from headpond.cluster.jetstream import Servers  # a node that is alone loads nothing of NATS

    places = Servers.parse(servers).places
    hosts = [place.rpartition(":")[0] for place in places]
    monitors = monitors or [f"http://{host}:{MONITOR_PORT}" for host in dict.fromkeys(hosts)]
    probes = asyncio.gather(*map(probe_server, places))
    asked = asyncio.gather(*(asyncio.to_thread(_sync_always, monitor) for monitor in monitors))
    status: GroupStatus | None = None
    unanswered: list[ClusterFinding] = []
    try:
        async with inquire(servers, group) as inquiry:
            status = await inquiry.status()
    except HeadpondError as error:
        unanswered = [ClusterFinding(PROBLEM, "stream", error.message, error.hint)]
    reports, syncs = await probes, dict(filter(None, await asked))
    for report in reports:
        report.sync_always = syncs.get(report.name)
    of_group = list(group_findings(group, status)) if status is not None else unanswered
    return ClusterReport(group, reports, status, [*server_findings(reports), *of_group])


# --- questions to one server ------------------------------------------------------------------------


async def probe_server(place: str) -> ServerReport:
    """A server sends its INFO before anything else, in the clear and without a login."""
    report = ServerReport(place)
    host, _, port = place.rpartition(":")
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=INFO_BYTES_MAX)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        report.answered_in_s = time.monotonic() - began_s
        info = json.loads(line.removeprefix(b"INFO "))
        report.name, report.version = str(info["server_name"]), str(info["version"])
        report.jetstream = bool(info.get("jetstream"))
    except TimeoutError:
        report.error = f"no answer within {ANSWER_S_MAX:g} s"
    except OSError as error:
        report.error = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        report.error = "what answers there is no NATS server"
    return report


def _sync_always(monitor: str) -> tuple[str, bool] | None:
    """The name of the server with this monitoring port, and whether it syncs every record; None if unknown."""
    if urlsplit(monitor).scheme not in ("http", "https"):
        return None
    try:
        with build_opener(ProxyHandler({})).open(f"{monitor.rstrip('/')}/varz", timeout=ANSWER_S_MAX) as answer:
            found = json.load(answer)
        return str(found["server_name"]), bool(found["jetstream"]["config"].get("sync_always"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


# --- findings ---------------------------------------------------------------------------------------


def server_findings(servers: Sequence[ServerReport]) -> Iterator[ClusterFinding]:
    from headpond.cluster.jetstream import VERSION_MIN

    for each in servers:
        if each.error:
            yield ClusterFinding(
                PROBLEM,
                each.address,
                f"the NATS server does not answer: {each.error}",
                "Start it. The group continues without one of three servers, and waits without two.",
            )
            continue
        if not each.jetstream:
            yield ClusterFinding(
                PROBLEM,
                each.address,
                f"{each.name} has no JetStream",
                "Add jetstream { store_dir: … } to its configuration, and start it again.",
            )
        if tuple(map(int, re.findall(r"\d+", each.version)[:2])) < VERSION_MIN:
            wanted = ".".join(map(str, VERSION_MIN))
            yield ClusterFinding(
                PROBLEM,
                each.address,
                f"{each.name} is version {each.version}",
                f"Headpond needs {wanted} or newer.",
            )
        if each.sync_always is False:
            yield ClusterFinding(
                PROBLEM,
                each.address,
                f"{each.name} acknowledges records before they are synced: a power cut can take them away",
                "Set sync_interval: always in jetstream { … } of its configuration, and start it again.",
            )
        elif each.sync_always is None and each.jetstream:
            yield ClusterFinding(
                NOTE,
                each.address,
                f"whether {each.name} syncs every record cannot be seen",
                f"Look for sync_interval: always in its configuration, or set http: {MONITOR_PORT} there, or "
                "give --monitor.",
            )
    if len(versions := {each.version for each in servers if each.version}) > 1:
        yield ClusterFinding(
            NOTE, "servers", f"they have the versions {', '.join(sorted(versions))}", "Update the older ones."
        )
    if len(servers) < REPLICAS:
        yield ClusterFinding(
            NOTE,
            "servers",
            f"{len(servers)} of {REPLICAS} are named",
            "Name all of them: members and this command use another one when one is lost.",
        )


def group_findings(group: str, status: GroupStatus) -> Iterator[ClusterFinding]:
    yield from _stream_findings(group, status.stream)
    yield from _active_findings(group, status)
    for each in status.members:
        yield from _member_findings(each)
    if len(versions := {each.version for each in status.members if each.version}) > 1:
        text = f"they have the versions {', '.join(sorted(versions))}"
        yield ClusterFinding(NOTE, "members", text, "Update the older ones: standbys first, then switch.")


def _stream_findings(group: str, stream: StreamState) -> Iterator[ClusterFinding]:
    if len(stream.replicas) < REPLICAS:
        yield ClusterFinding(
            PROBLEM,
            "stream",
            f"{len(stream.replicas)} of {REPLICAS} NATS servers have the stream",
            f"Run three servers in one cluster, and nats stream edit HEADPOND-{group} --replicas {REPLICAS}.",
        )
    for name, state in sorted(stream.replicas.items()):
        if state not in ("leader", "current"):
            yield ClusterFinding(
                PROBLEM,
                "stream",
                f"{name} is {state}",
                "It catches up by itself when it runs and reaches the others; see its log and its disk.",
            )
    share = stream.bytes / stream.bytes_max if stream.bytes_max > 0 else 0.0
    if share > CROWDED:
        refuses = share >= FULL
        yield ClusterFinding(
            PROBLEM,
            "stream",
            f"it is {share:.0%} full" + ("; the group refuses messages" if refuses else ""),
            "It shrinks when two members have synced its records: start another one, or wait until it follows.",
        )


def _active_findings(group: str, status: GroupStatus) -> Iterator[ClusterFinding]:
    members = status.members
    start = START_HINT.format(group=group)
    if not members:
        yield ClusterFinding(PROBLEM, "members", "none answers", start)
    elif status.active is None:
        hint = "A takeover takes seconds. If it does not end, read the logs of the members."
        yield ClusterFinding(PROBLEM, "members", "none is active", hint)
    if members and not any(each.role == "standby" for each in members):
        text = "there is no standby: nobody takes over, and the stream is not trimmed"
        yield ClusterFinding(PROBLEM, "members", text, start)
    for name, count in Counter(each.member for each in members).items():
        if count > 1:
            hint = "Give each member another name (--member), or end the process that is left over."
            yield ClusterFinding(PROBLEM, name, f"{count} processes have this name", hint)
    absent = {each.active for each in members} - {each.member for each in members} - {""}
    for name in sorted(absent):
        yield ClusterFinding(PROBLEM, name, "was active last, and does not answer", "Start it, or see its log.")


def _member_findings(member: MemberStatus) -> Iterator[ClusterFinding]:
    if member.role in ("starting", "copying"):
        hint = "It becomes a standby when that is done; until then it cannot take over."
        yield ClusterFinding(NOTE, member.member, f"is {member.role}", hint)
    if member.lag_s is not None and member.lag_s > LAG_S_MAX:
        yield ClusterFinding(
            PROBLEM,
            member.member,
            f"has not had all records for {member.lag_s:.0f} s",
            "See its log, its disk and its connection to the NATS servers; after a long absence it catches up.",
        )
    if member.role == "active" and not member.certain and member.version:
        hint = (
            "Most NATS servers must run and reach each other. It continues by itself, or another member does."
        )
        yield ClusterFinding(PROBLEM, member.member, "is active, and the stream confirms nothing", hint)
