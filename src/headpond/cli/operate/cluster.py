"""``headpond cluster``: the groups of nodes over NATS; docs/cluster.md."""

from __future__ import annotations

import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli.command import command, confirm, group
from headpond.cli.options import Yes, argument, option
from headpond.cli.output import Output, json_text, note, print_objects, print_report, run
from headpond.cli.processes import drop_settings, until_stopped
from headpond.model.errors import BadData, BadRequest, Unavailable
from headpond.model.names import Place
from headpond.shapes.cluster import group_object, stream_object

if TYPE_CHECKING:
    from headpond.cluster.apply import Position
    from headpond.cluster.groups import GroupMap
    from headpond.cluster.inquiry import GroupStatus, Switch
    from headpond.cluster.local import LocalCluster
    from headpond.cluster.member import MemberStatus
    from headpond.cluster.placing import GroupReport, Placed
    from headpond.node.data_folder import NodeDisk

CLUSTER_HELP = "The NATS servers, as in nats://a:4222,b:4222,c:4222."
GROUP_HELP = "The group of nodes with the same content."
Servers = Annotated[str, option("--cluster", "URL", CLUSTER_HELP, envvar="HEADPOND_CLUSTER")]
Group = Annotated[str, option("--group", "NAME", GROUP_HELP, envvar="HEADPOND_GROUP")]
SERVERS = "nats://127.0.0.1:4222"
GROUP = "main"

cluster_app = group("Groups of nodes with one content, over NATS.")


# --- show -------------------------------------------------------------------------------------------

COLUMNS = "member role epoch record=seq durable=durable_seq lag url"


@command(cluster_app)
def show(output: Output, cluster: Servers = SERVERS, group: Group = GROUP) -> None:
    """Show the members of a group and its stream.

    RECORD is the last record of the stream that the member's folder has, DURABLE the last one that it has
    synced, LAG how many it lacks.
    """
    status = run(_status(cluster, group))
    if not status.members:
        from headpond.cluster.inquiry import START_HINT

        raise Unavailable(
            f"no member of group {group} answers; its stream ends at record {status.stream.last_seq:,}",
            hint=START_HINT.format(group=group),
        )
    found = group_object(group, status)
    output.show(found, partial(_print_group, found))
    absent = {each.active for each in status.members} - {each.member for each in status.members} - {""}
    for name in sorted(absent):
        note(f"{name} was active last, and does not answer")


async def _status(servers: str, group: str) -> GroupStatus:
    from headpond.cluster.inquiry import inquire

    async with inquire(servers, group) as inquiry:
        return await inquiry.status()


def _share(stream: dict[str, Any]) -> float:
    return float(stream["bytes"] / stream["bytes_max"]) if stream["bytes_max"] > 0 else 0.0


def _print_group(found: dict[str, Any]) -> None:
    stream = found["stream"]
    replicas = ", ".join(f"{name} {state}" for name, state in sorted(stream["replicas"].items()))
    share = _share(stream)
    fields = [
        ("group", found["group"]),
        ("active", found["active"]),
        ("replicas", replicas),
        ("stream", f"{stream['bytes']:,} of {stream['bytes_max']:,} bytes ({share:.1%})"),
        ("records", f"{stream['first_seq']:,} to {stream['last_seq']:,}"),
    ]
    print_report(fields, (found["members"], COLUMNS))


# --- switch -----------------------------------------------------------------------------------------

TIMEOUT_HELP = "How long to wait for the next active member."


@command(cluster_app)
def switch(
    output: Output,
    cluster: Servers = SERVERS,
    group: Group = GROUP,
    timeout: Annotated[float, option("--timeout", "S", TIMEOUT_HELP, min=1.0, max=3600.0)] = 30.0,
) -> None:
    """Make a standby the active member, for example before maintenance of the machine that is active now.

    The active member stops serving, writes its last record and releases its place. Clients follow by
    themselves.
    """
    done = run(_switch(cluster, group, timeout))
    found = {"before": done.before.member, "active": done.after.member, "seconds": round(done.seconds, 3)}
    text = f"{done.after.member} is active after {done.seconds:.1f} s; it was {done.before.member}"
    output.show({"group": group, **found, "epoch": done.after.epoch}, text)


async def _switch(servers: str, group: str, timeout_s: float) -> Switch:
    from headpond.cluster.inquiry import inquire

    async with inquire(servers, group) as inquiry:
        return await inquiry.switch(timeout_s)


# --- groups -----------------------------------------------------------------------------------------

GROUP_COLUMNS = "group active members tenants fill"


@command(cluster_app)
def groups(output: Output, cluster: Servers = SERVERS) -> None:
    """List the groups of the cluster: their active members, their tenants, and how full their streams are.

    A tenant that is not placed is on group main. TENANTS are those that are placed on the group or have topics
    there.
    """
    groups, reports = run(_groups(cluster))
    found = [_group(each, groups) for each in reports]
    output.show(found, partial(_print_groups, found))


async def _groups(servers: str) -> tuple[GroupMap, list[GroupReport]]:
    from headpond.cluster.placing import inquire_groups

    async with inquire_groups(servers) as inquiry:
        return await inquiry.report()


def _group(report: GroupReport, groups: GroupMap) -> dict[str, Any]:
    placed = {tenant for tenant, group in groups.tenants.items() if group == report.name}
    active = report.status.active if report.status is not None else None
    return {
        "group": report.name,
        "active": active.member if active is not None else None,
        "url": report.entry.url or None,
        "members": sorted(report.entry.members),
        "tenants": [
            {"tenant": tenant, "topics": report.topics.get(tenant, 0), "group": groups.group_of(tenant)}
            for tenant in sorted(placed | report.topics.keys())
        ],
        "stream": stream_object(report.status.stream) if report.status is not None else None,
    }


def _print_groups(found: list[dict[str, Any]]) -> None:
    rows = [
        {
            **each,
            "members": ", ".join(each["members"]),
            "tenants": ", ".join(tenant["tenant"] for tenant in each["tenants"]),
            "fill": f"{_share(each['stream']):.1%}" if each["stream"] is not None else None,
        }
        for each in found
    ]
    print_objects(rows, GROUP_COLUMNS)


# --- place ------------------------------------------------------------------------------------------

PLACE = (
    "Place tenant {tenant} on group {group}? Programs that use its topics continue there; its tokens, settings "
    "and quotas are those of group {group}."
)


@command(cluster_app)
def place(
    output: Output,
    tenant: Annotated[str, argument("TENANT", "The tenant.")],
    group: Annotated[str, argument("GROUP", "The group that gets the topics of the tenant.")],
    cluster: Servers = SERVERS,
    yes: Yes = False,
) -> None:
    """Place a tenant on a group: all its topics are created and used there.

    Refused while another group has topics of the tenant. Members and clients need no restart.
    """
    tenant = str(Place.parse(tenant, "tenant"))
    if not yes:
        confirm(PLACE.format(tenant=tenant, group=group), refused="nothing was changed")
    done = run(_place(cluster, tenant, group))
    was = f"; it was on group {done.before}" if done.changed else " already"
    found = {"tenant": tenant, "group": group, "before": done.before, "changed": done.changed}
    output.show(found, f"tenant {tenant} is on group {group}{was}")


async def _place(servers: str, tenant: str, group: str) -> Placed:
    from headpond.cluster.placing import inquire_groups

    async with inquire_groups(servers) as inquiry:
        return await inquiry.place(tenant, group)


# --- up ---------------------------------------------------------------------------------------------

DATA_HELP = "The folder for all data. [default: a temporary one]"
NODES_HELP = "How many nodes."
PORT_HELP = "The port of the first node; the others have the next ones. 0 takes free ports."
NATS_PORT_HELP = "The port of the first nats-server. 0 takes free ports."


@command(cluster_app)
def up(
    output: Output,
    data: Annotated[Path | None, option("--data", "DIR", DATA_HELP)] = None,
    nodes: Annotated[int, option("--nodes", "N", NODES_HELP, min=1, max=9)] = 3,
    port: Annotated[int, option("--port", "PORT", PORT_HELP, min=0, max=65_000)] = 7411,
    nats_port: Annotated[int, option("--nats-port", "PORT", NATS_PORT_HELP, min=0, max=63_000)] = 4222,
) -> None:
    """Run a cluster on this machine until Ctrl-C, to try it: three nats-servers, and nodes.

    The command starts an ended process again after a second: kill one (kill -9) to see the effect on clients.
    Prints `ready URL` on stdout when the cluster accepts connections, then the processes.
    """
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headpond-cluster-")))
        drop_settings()
        run(until_stopped(partial(_up, output, data.absolute(), nodes, port, nats_port)))


async def _up(
    output: Output, folder: Path, nodes: int, port: int, nats_port: int, stack: AsyncExitStack
) -> None:
    from headpond.cluster.local import LocalCluster

    cluster = LocalCluster(folder, note, nodes=nodes, node_port=port, nats_port=nats_port)
    note(f"data in {folder}")
    stack.push_async_callback(cluster.stop)
    await cluster.start()
    _print_cluster(output, cluster)


def _print_cluster(output: Output, cluster: LocalCluster) -> None:
    found = local_cluster_object(cluster)
    if output.as_json:
        print(json_text(found), flush=True)
        return
    print(f"ready {cluster.url}\ncluster {cluster.servers_url}\n")
    rows = [{**each, "pid": str(each["pid"])} for each in found["processes"]]  # a number has commas
    print_objects(rows, "name pid address")
    sys.stdout.flush()


def local_cluster_object(cluster: LocalCluster) -> dict[str, Any]:
    children = [*cluster.nodes, *cluster.servers]
    processes = [{"name": each.name, "pid": each.pid, "address": each.address} for each in children]
    return {"ready": cluster.url, "cluster": cluster.servers_url, "processes": processes}


# --- reseed -----------------------------------------------------------------------------------------

MEMBER_DATA_HELP = "The data folder of the member whose content counts."


@command(cluster_app)
def reseed(
    output: Output,
    data: Annotated[Path, option("--data", "DIR", MEMBER_DATA_HELP, envvar="HEADPOND_DATA")],
    cluster: Servers = SERVERS,
    group: Group = GROUP,
    yes: Yes = False,
) -> None:
    """Make the folder of a stopped member the content of its group, after the stream lost records.

    Use it when no member becomes active because the stream does not fit their folders. The other members drop
    their content and copy this member's. Without --yes, the command first names the last record of the folder:
    compare the folders of all members, and choose the one with the highest record.
    """
    from headpond.cluster.apply import load_position
    from headpond.node.data_folder import lock_folder

    if not data.is_dir():
        raise BadData(f"there is no folder {data}", hint="Name the data folder of a member.")
    disk = lock_folder(data)
    try:
        position = load_position(disk)
        if position is None:
            raise BadData(
                f"{data} is not the folder of a cluster's member, or its copy was not finished",
                hint="Choose the folder of another member.",
            )
        status = run(_status(cluster, group))
        _check_reseed(status, group)
        if not yes:
            question = RESEED.format(data=data, group=group, position=position, stream=status.stream)
            confirm(question, refused="nothing was changed")
        found = run(_reseed(cluster, group, disk, position, status.members))
    finally:
        disk.unlock()
    text = f"the stream continues at record {found.seq + 1:,}; start this member now, then the others"
    output.show({"group": group, "seq": found.seq, "epoch": found.epoch}, text)


RESEED = (
    "{data} was synced at record {position.seq:,} of epoch {position.epoch}. The stream of group {group} has "
    "records {stream.first_seq:,} to {stream.last_seq:,}.\n"
    "Records that follow the folder are added to it, and all records are removed from the stream. The other "
    "members will drop their content and copy this folder. Continue?"
)


def _check_reseed(status: GroupStatus, group: str) -> None:
    if status.active is not None:
        raise BadRequest(
            f"{status.active.member} is active in group {group}: its folder fits the stream",
            hint="A reseed is only for a group in which no member becomes active; see `headpond cluster show`.",
        )


async def _reseed(
    servers: str, group: str, disk: NodeDisk, position: Position, members: list[MemberStatus]
) -> Position:
    from headpond.cluster.inquiry import inquire

    async with inquire(servers, group) as inquiry:
        return await inquiry.reseed(disk, position, members)
