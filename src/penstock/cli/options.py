"""The options that every command takes; one that talks to no node takes ``--url`` and ``--token`` unused."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.completion import starts, topics

DEFAULT_URL = "penstock://127.0.0.1:7411"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="PENSTOCK_URL", metavar="URL", help="The node: penstock://HOST:PORT[,HOST:PORT…]."
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="PENSTOCK_TOKEN", metavar="TEXT", help="The access token (not checked)."),
]
UnusedUrl = Annotated[str, typer.Option("--url", envvar="PENSTOCK_URL", hidden=True)]
UnusedToken = Annotated[str | None, typer.Option("--token", envvar="PENSTOCK_TOKEN", hidden=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; errors too, on stderr.", show_default=False)]
TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="NAME or tenant/product/component/NAME.", autocompletion=topics),
]
NewTopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="NAME or tenant/product/component/NAME.")
]
TopicFilter = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC]", help="One topic; all of them without.", autocompletion=topics),
]
StartOption = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="P",
        help="earliest, latest, state, an entry or a time (ISO 8601); used when the subscription is new.",
        autocompletion=starts,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]
