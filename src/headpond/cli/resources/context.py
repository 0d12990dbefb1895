"""``headpond context add|use|list|show|remove``: nodes by name."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import note, print_fields, print_json, print_result, print_table, reports_errors
from headpond.client.contexts import Context, Contexts
from headpond.model.address import parse_addresses
from headpond.model.errors import BadContext

context_app = typer.Typer(
    help="Save the URL, token and certificates of a node under a name, in a file that only you can read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the context.")]


def _file(option: str, what: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(option, metavar="FILE", help=what, show_default=False)
    return info


@context_app.command()
@reports_errors
def add(
    name: Name,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The URL of the node.", show_default=False)],
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TEXT", help="The access token; - reads it from stdin.", show_default=False
        ),
    ] = None,
    ca: Annotated[Path | None, _file("--ca", "Trusted certificate authorities (PEM).")] = None,
    cert: Annotated[
        Path | None, _file("--cert", "The client certificate, for a node that asks for one.")
    ] = None,
    key: Annotated[Path | None, _file("--key", "The key of the client certificate.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add or replace a context. The first one is used from then on; HEADPOND_CONTEXT selects another."""
    parse_addresses(url)
    if token == "-":
        token = read_token()
    files = [None if path is None else str(path.expanduser().absolute()) for path in (ca, cert, key)]
    contexts = Contexts()
    contexts.add(name, Context(url, token or None, *files))
    contexts.save()
    used = " (in use)" if contexts.current == name else ""
    print_result(
        {"context": name, **contexts.get(name).shown()}, f"context {name} is {url}{used}", as_json=as_json
    )


@context_app.command()
@reports_errors
def use(name: Name, url: UnusedUrl = DEFAULT_URL, token: UnusedToken = None, as_json: AsJson = False) -> None:
    """Use this context for commands without --url."""
    contexts = Contexts()
    contexts.use(name)
    contexts.save()
    print_result(
        {"context": name, **contexts.get(name).shown()},
        f"using {name}: {contexts.get(name).url}",
        as_json=as_json,
    )


@context_app.command("list")
@reports_errors
def list_(url: UnusedUrl = DEFAULT_URL, token: UnusedToken = None, as_json: AsJson = False) -> None:
    """List the contexts, without the secrets of their tokens."""
    contexts = Contexts()
    items = [(name, name == contexts.current, each.shown()) for name, each in sorted(contexts.all.items())]
    if as_json:
        print_json([{"context": name, "in_use": used, **shown} for name, used, shown in items])
    elif not items:
        note("there are no contexts; `headpond context add NAME --url URL` adds one")
    else:
        rows = [(name, used, shown["url"], shown["token"]) for name, used, shown in items]
        print_table(("CONTEXT", "IN USE", "URL", "TOKEN"), rows)


@context_app.command()
@reports_errors
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the context. [default: the one in use]")
    ] = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Show a context, without the secret of its token."""
    contexts = Contexts()
    name = name or contexts.current
    shown = contexts.get(name).shown()
    if as_json:
        print_json({"context": name, "in_use": name == contexts.current, **shown})
    else:
        print_fields([("context", name), ("in use", name == contexts.current), *shown.items()])


@context_app.command()
@reports_errors
def remove(
    name: Name, url: UnusedUrl = DEFAULT_URL, token: UnusedToken = None, as_json: AsJson = False
) -> None:
    """Remove a context. The token stays valid until `headpond token revoke`."""
    contexts = Contexts()
    contexts.remove(name)
    contexts.save()
    print_result({"context": name, "removed": True}, f"removed context {name}", as_json=as_json)


def read_token() -> str:
    """Reads a token from stdin; a terminal prompts for it and does not show it."""
    text = (getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text.startswith("hpd_"):
        raise BadContext(
            "the text from stdin is not a token", hint="A token is one line, hpd_ID_SECRET. Nothing was added."
        )
    return text
