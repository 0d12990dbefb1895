"""``headpond node``: runs a node until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import json_text, note, reports_errors


@reports_errors
def node(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The data folder. [default: ~/.local/share/headpond]"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The address to serve; port 0 picks a free port. [default: 127.0.0.1:7411]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="HOST:PORT", help="Serve HTTP at this address too, for example 127.0.0.1:7412."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE.toml", help="Settings from a file; options override them."),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(
            "--tls-cert", metavar="FILE", help="Serve TLS with this PEM certificate; SIGHUP reloads it."
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(
            "--tls-key", metavar="FILE", help="The key of the certificate, unless it is in the same file."
        ),
    ] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(
            "--tls-client-ca",
            metavar="FILE",
            help="Accept only clients with a certificate from these authorities.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow other machines to connect without a token or TLS.", show_default=False
        ),
    ] = False,
    successor: Annotated[
        str | None,
        typer.Option(
            "--successor", metavar="URL", help="The node that clients switch to when this node stops."
        ),
    ] = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Prints `ready URL` on stdout when the node accepts connections, and `http URL` if it serves HTTP. The log
    goes to stderr.
    """
    import logging

    import msgspec

    from headpond.broker.settings import Settings
    from headpond.node.process import run

    overrides = {
        "data": None if data is None else str(data),
        "listen": listen,
        "http": http,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "insecure": insecure or None,
        "successor": successor,
    }
    settings = Settings.load(None if config is None else str(config), overrides)
    if not settings.data:
        settings = msgspec.structs.replace(settings, data=str(default_data_folder()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    note(f"data in {settings.data}")

    def on_ready(url: str, http_url: str | None) -> None:
        if as_json:
            print(json_text({"ready": url, "http": http_url}), flush=True)
        else:
            print("\n".join([f"ready {url}", *([f"http {http_url}"] if http_url else [])]), flush=True)

    run(settings, on_ready)


def default_data_folder() -> Path:
    """The user's own data folder, as the XDG rules have it."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "headpond"
