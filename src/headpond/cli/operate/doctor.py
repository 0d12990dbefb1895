"""``headpond doctor [URL]``: which addresses answer, what the token allows there, and advice.

With ``--cluster`` also the NATS servers of a cluster, the stream of a group and its members.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import Node, command
from headpond.cli.operate.cluster import GROUP, Group
from headpond.cli.options import argument, option, said
from headpond.cli.output import print_fields, print_objects, print_parts, run, size
from headpond.client.checkup import check_up

if TYPE_CHECKING:
    from headpond.client.checkup import Checkup
    from headpond.cluster.checkup import ClusterReport

CLUSTER_HELP = "Also check this cluster: its NATS servers, as in nats://a:4222,b:4222,c:4222."
MONITOR_HELP = "The monitoring port of a NATS server. Can be repeated. [default: port 8222 of each]"


@command()
def doctor(
    node: Node,
    context: typer.Context,
    where: Annotated[str | None, argument("URL", "The URL of the node, instead of --url.")] = None,
    cluster: Annotated[str | None, option("--cluster", "URL", CLUSTER_HELP, envvar="HEADPOND_CLUSTER")] = None,
    group: Group = GROUP,
    monitor: Annotated[list[str] | None, option("--monitor", "URL", MONITOR_HELP)] = None,
) -> None:
    """Check every address of a node: does it answer, is the token valid, are clock and disk fine.

    With --cluster also the NATS servers, the stream of the group and its members; without a URL the addresses
    are those of the members. Prints advice for each problem. Exits with 1 if no address serves, or the cluster
    has a problem.
    """
    report = _check_cluster(cluster, group, monitor) if cluster is not None else None
    if report is not None and where is None and not said(context, "url"):
        where = report.url or None
    # The token of a context is only for its own URL.
    own = where is None or where == node.url or said(context, "token")
    found = run(check_up(where or node.url, node.token if own else None))
    serves = any(each.serves for each in found)
    ok = serves and (report is None or report.ok)
    objects = {
        "ok": ok,
        "addresses": [each.as_object() for each in found],
        "cluster": None if report is None else _cluster_object(report),
    }
    node.show(objects, partial(_print_all, found, report), ok=ok)


def _print_all(found: list[Checkup], report: ClusterReport | None) -> None:
    if report is not None:
        _print_cluster(report)
        print()
    print_parts(found, _print)


# --- a cluster --------------------------------------------------------------------------------------


def _check_cluster(servers: str, group: str, monitors: list[str] | None) -> ClusterReport:
    from headpond.cluster.checkup import check_cluster

    return run(check_cluster(servers, group, monitors or ()))


def _cluster_object(report: ClusterReport) -> dict[str, Any]:
    from headpond.shapes.cluster import group_object

    return {
        "ok": report.ok,
        "servers": [each.as_object() for each in report.servers],
        "group": None if report.status is None else group_object(report.group, report.status),
        "findings": [each.as_object() for each in report.findings],
    }


def _print_cluster(report: ClusterReport) -> None:
    found = _cluster_object(report)
    rows = [{**each, "answer": each["error"] or "yes"} for each in found["servers"]]
    print_objects(rows, "server=name address answer version jetstream sync_always")
    if found["group"] is not None:
        stream = found["group"]["stream"]
        print(f"\nstream: {stream['bytes']:,} of {stream['bytes_max']:,} bytes\n")
        print_objects(found["group"]["members"], "member role lag lag_s version url")
    for each in report.findings:
        print(f"\n{each.level}: {each.subject}: {each.problem}\nhint: {each.hint}")


# --- an address -------------------------------------------------------------------------------------


def _print(checkup: Checkup) -> None:
    fields: list[tuple[str, object]] = [("address", checkup.address.url)]
    if checkup.standby:
        assert checkup.error is not None
        fields += [("answer", checkup.error.message), ("active", checkup.successor or "unknown")]
    elif checkup.error is not None:
        fields += [("answer", "none"), ("error", f"{checkup.error.code}: {checkup.error.message}")]
    else:
        assert checkup.answered_in_s is not None and checkup.skew_s is not None
        fields += [
            ("answer", f"in {checkup.answered_in_s * 1000:.0f} ms{', serves' if checkup.serves else ''}"),
            ("node", checkup.node),
            ("software", checkup.software),
            ("tls", checkup.address.tls),
            *_certificate(checkup),
            *([("successor", checkup.successor)] if checkup.successor else []),
            ("clock", f"{checkup.skew_s:+.3f} s compared with this machine"),
            *_access(checkup),
        ]
    print_fields([*fields, *(("advice", advice) for advice in checkup.advice)])


def _certificate(checkup: Checkup) -> list[tuple[str, object]]:
    shown = checkup.certificate
    if shown is None:
        return []
    days = shown.ends_in_s / 86_400
    return [("certificate", f"{', '.join(shown.names)} by {shown.issuer}, ends in {days:,.0f} days")]


def _access(checkup: Checkup) -> list[tuple[str, object]]:
    access = checkup.access
    assert access is not None
    if not access.guarded:
        fields: list[tuple[str, object]] = [("access", "open: this node has no tokens")]
    else:
        fields = [
            ("token", f"{access.token} ({access.name})"),
            ("rights", ", ".join(access.rights)),
            ("scopes", ", ".join(access.scopes)),
        ]
        if access.producer:
            fields.append(("producer", f"only {access.producer}"))
        if access.subscription:
            fields.append(("subscription", f"only {access.subscription}"))
        if checkup.expires_in_s is not None:
            fields.append(("expires", f"in {checkup.expires_in_s:,.0f} s"))
    if access.free_bytes is not None:
        full = "; full: sends are refused" if access.disk_full else ""
        fields.append(("disk free", f"{size(access.free_bytes)}{full}"))
    if access.last_stop:
        fields.append(("last stop", access.last_stop.replace("_", " ")))
    return [*fields, *(("recovery", line) for line in access.recovered)]
