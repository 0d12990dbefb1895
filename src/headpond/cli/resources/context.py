"""``headpond context add|use|list|show|remove``: nodes by name."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

from headpond.cli.command import command, group
from headpond.cli.options import argument, option
from headpond.cli.output import Output, note, print_fields
from headpond.client.contexts import Contexts, NodeContext
from headpond.model.address import parse_addresses
from headpond.model.errors import BadContext

context_app = group(
    "Save the URL, token and certificates of a node under a name, in a file that only you can read."
)

Name = Annotated[str, argument("NAME", "The name of the context.")]
CERT_HELP = "The client certificate, for a node that asks for one."


@command(context_app)
def add(
    output: Output,
    name: Name,
    url: Annotated[str, option("--url", "URL", "The URL of the node.")],
    token: Annotated[str | None, option("--token", "TEXT", "The access token; - reads it from stdin.")] = None,
    ca: Annotated[Path | None, option("--ca", "FILE", "Trusted certificate authorities (PEM).")] = None,
    cert: Annotated[Path | None, option("--cert", "FILE", CERT_HELP)] = None,
    key: Annotated[Path | None, option("--key", "FILE", "The key of the client certificate.")] = None,
) -> None:
    """Add or replace a context. The first one becomes the one in use; HEADPOND_CONTEXT selects another."""
    parse_addresses(url)
    if token == "-":
        token = read_token()
    files = [None if path is None else str(path.expanduser().absolute()) for path in (ca, cert, key)]
    contexts = Contexts()
    contexts.add(name, NodeContext(url, token or None, *files))
    contexts.save()
    used = " (in use)" if contexts.current == name else ""
    output.show({"context": name, **contexts.get(name).shown()}, f"context {name} is {url}{used}")


@command(context_app)
def use(output: Output, name: Name) -> None:
    """Use this context for commands without --url."""
    contexts = Contexts()
    contexts.use(name)
    contexts.save()
    used = contexts.get(name)
    output.show({"context": name, **used.shown()}, f"using {name}: {used.url}")


@command(context_app, "list")
def list_(output: Output) -> None:
    """List the contexts, without the secrets of their tokens."""
    contexts = Contexts()
    objects = [_object(contexts, name) for name in sorted(contexts.all)]
    if objects or output.as_json:
        output.table(objects, "context in_use url token")
    else:
        note("there are no contexts; `headpond context add NAME --url URL` adds one")


@command(context_app)
def show(
    output: Output,
    name: Annotated[str | None, argument("NAME", "The name of the context. [default: the one in use]")] = None,
) -> None:
    """Show a context, without the secret of its token."""
    contexts = Contexts()
    shown = _object(contexts, name or contexts.current)
    output.show(shown, lambda: print_fields([(key.replace("_", " "), each) for key, each in shown.items()]))


def _object(contexts: Contexts, name: str) -> dict[str, Any]:
    return {"context": name, "in_use": name == contexts.current, **contexts.get(name).shown()}


@command(context_app)
def remove(output: Output, name: Name) -> None:
    """Remove a context. The token stays valid until `headpond token revoke`."""
    contexts = Contexts()
    contexts.remove(name)
    contexts.save()
    output.show({"context": name, "removed": True}, f"removed context {name}")


def read_token() -> str:
    """Reads a token from stdin; a terminal prompts for it and does not show it."""
    text = (getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text.startswith("hpd_"):
        raise BadContext(
            "the text from stdin is not a token", hint="A token is one line, hpd_ID_SECRET. Nothing was added."
        )
    return text
