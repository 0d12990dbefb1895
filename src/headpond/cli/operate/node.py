"""``headpond node``: runs a node until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from headpond.cli.command import command
from headpond.cli.logs import NodeLogFormat, NodeLogLevel, start_log
from headpond.cli.options import flag, option
from headpond.cli.output import Output, json_text

DATA_HELP = "The data folder. [default: ~/.local/share/headpond]"
LISTEN_HELP = "The address to serve; port 0 picks a free port. [default: 127.0.0.1:7411]"
HTTP_HELP = "Serve HTTP at this address too, for example 127.0.0.1:7412."
CONFIG_HELP = "Settings from a file; options and variables override them."
CERT_HELP = "Serve TLS with this PEM certificate; SIGHUP reloads it."
KEY_HELP = "The key of the certificate, unless it is in the same file."
CLIENT_CA_HELP = "Accept only clients with a certificate from these authorities."
INSECURE_HELP = "Allow other machines to connect without a token or TLS."
SUCCESSOR_HELP = "The node that clients switch to when this node stops."
CLUSTER_HELP = "Be a member of a cluster over these NATS servers, for example nats://a:4222,b:4222,c:4222."
GROUP_HELP = "With --cluster: the group of nodes with the same content. [default: main]"
MEMBER_HELP = "With --cluster: the name of this node in its group. [default: its host and port]"
ADVERTISE_HELP = "With --cluster: the URL at which clients reach this node, if it is not the one of --listen."


@command()
def node(
    output: Output,
    data: Annotated[Path | None, option("--data", "DIR", DATA_HELP)] = None,
    listen: Annotated[str | None, option("--listen", "HOST:PORT", LISTEN_HELP)] = None,
    http: Annotated[str | None, option("--http", "HOST:PORT", HTTP_HELP)] = None,
    config: Annotated[
        Path | None, option("--config", "FILE.toml", CONFIG_HELP, envvar="HEADPOND_CONFIG")
    ] = None,
    tls_cert: Annotated[str | None, option("--tls-cert", "FILE", CERT_HELP)] = None,
    tls_key: Annotated[str | None, option("--tls-key", "FILE", KEY_HELP)] = None,
    tls_client_ca: Annotated[str | None, option("--tls-client-ca", "FILE", CLIENT_CA_HELP)] = None,
    insecure: Annotated[bool, flag("--insecure", INSECURE_HELP)] = False,
    successor: Annotated[str | None, option("--successor", "URL", SUCCESSOR_HELP)] = None,
    cluster: Annotated[str | None, option("--cluster", "URL", CLUSTER_HELP)] = None,
    group: Annotated[str | None, option("--group", "NAME", GROUP_HELP)] = None,
    member: Annotated[str | None, option("--member", "NAME", MEMBER_HELP)] = None,
    advertise: Annotated[str | None, option("--advertise", "URL", ADVERTISE_HELP)] = None,
    log_format: NodeLogFormat = None,
    log_level: NodeLogLevel = None,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Prints `ready URL` on stdout when the node accepts connections, and `http URL` if it serves HTTP; with
    --json, one object with both. The log goes to stderr. Every setting can also be a variable, such as
    HEADPOND_LISTEN: options override variables, and variables override the file.
    """
    import logging

    import msgspec

    from headpond.broker.settings import Settings

    overrides = {
        "data": None if data is None else str(data),
        "listen": listen,
        "http": http,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "insecure": insecure or None,
        "successor": successor,
        "cluster": cluster,
        "group": group,
        "member": member,
        "advertise": advertise,
        "log_format": "json" if log_format is None and output.as_json else log_format,
        "log_level": log_level,
    }
    settings = Settings.load(None if config is None else str(config), overrides, os.environ)
    if not settings.data:
        settings = msgspec.structs.replace(settings, data=str(default_data_folder()))
    start_log(settings.log_format, settings.log_level)
    logging.getLogger("headpond.node").info("data in %s", settings.data)

    def on_ready(url: str, http_url: str | None) -> None:
        lines = f"ready {url}" + (f"\nhttp {http_url}" if http_url else "")
        print(json_text({"ready": url, "http": http_url}) if output.as_json else lines, flush=True)

    if settings.cluster:
        from headpond.node.member import run_member as run  # a node that is alone loads nothing of NATS
    else:
        from headpond.node.process import run
    run(settings, on_ready)


def default_data_folder() -> Path:
    """The user's own data folder, as the XDG rules have it."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "headpond"
