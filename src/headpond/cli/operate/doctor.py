"""``headpond doctor [URL]``: which addresses answer, what the token allows there, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.command import Node, command
from headpond.cli.options import argument, said
from headpond.cli.output import print_fields, print_parts, run
from headpond.client.checkup import check_up

if TYPE_CHECKING:
    from headpond.client.checkup import Checkup


@command()
def doctor(
    node: Node,
    context: typer.Context,
    where: Annotated[str | None, argument("URL", "The URL of the node, instead of --url.")] = None,
) -> None:
    """Check every address of a node: does it answer, is the token valid, are clock and disk fine.

    Prints advice for each problem. Exits with 1 if no address serves.
    """
    # The token of a context is only for its own URL.
    own = where is None or where == node.url or said(context, "token")
    found = run(check_up(where or node.url, node.token if own else None))
    serves = any(each.serves for each in found)
    objects = {"ok": serves, "addresses": [each.as_object() for each in found]}
    node.show(objects, lambda: print_parts(found, _print), ok=serves)


def _print(checkup: Checkup) -> None:
    fields: list[tuple[str, object]] = [("address", checkup.address.url)]
    if checkup.error is not None:
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
        fields.append(("disk free", f"{access.free_bytes:,} bytes{full}"))
    if access.last_stop:
        fields.append(("last stop", access.last_stop.replace("_", " ")))
    return [*fields, *(("recovery", line) for line in access.recovered)]
