"""``headpond log admin``: who changed what on a node, and the result."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli.ask import ask
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url
from headpond.cli.output import iso_time, print_json, print_table, reports_errors
from headpond.shapes.resources import administered_object

log_app = typer.Typer(help="Print the log of administration.", no_args_is_help=True, rich_markup_mode=None)


@log_app.callback()
def _log() -> None:
    pass


@log_app.command()
@reports_errors
def admin(
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="Print the last N records.")
    ] = 100,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Print who changed what on the node, oldest first."""
    records = ask(url, token, lambda asked: asked.list_admin_log(count))
    if as_json:
        for each in records:
            print_json(administered_object(each))
        return
    rows = [
        (
            iso_time(each.at_us),
            each.token or "-",
            each.client,
            each.operation,
            each.what,
            each.result,
            each.detail,
        )
        for each in records
    ]
    print_table(("AT", "TOKEN", "CLIENT", "OPERATION", "WHAT", "RESULT", "DETAIL"), rows)
