"""How options and arguments are declared, and those that several commands take.

Without ``--url`` and HEADPOND_URL, a command uses the URL, token and certificates of the current context.
"""

from __future__ import annotations

import os
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.completion import Completer, starts, topics
from headpond.model.address import DEFAULT_URL as DEFAULT_URL

if TYPE_CHECKING:
    from headpond.client.connect import Tokens
    from headpond.client.contexts import NodeContext

_CONTEXT = "headpond.context"


def said(context: typer.Context, name: str, *, on_line: bool = False) -> bool:
    """Whether the command line or the environment gives this parameter; ``on_line``: the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", *([] if on_line else ["ENVIRONMENT"]))


def _url(context: typer.Context, value: str) -> str:
    if said(context, "url"):
        return value
    from headpond.client.contexts import TLS_NAMES, service_in_use
    from headpond.model.errors import HeadpondError

    try:
        active = service_in_use()
    except HeadpondError:
        if context.resilient_parsing:  # for completion: print nothing
            return value
        raise
    context.meta[_CONTEXT] = active
    for name, variable in TLS_NAMES.items():
        if (path := getattr(active, name)) is not None:
            os.environ.setdefault(variable, path)
    return active.url


def _token(context: typer.Context, value: str | None) -> str | None:
    active: NodeContext | None = context.meta.get(_CONTEXT)
    if said(context, "token") or active is None:
        return value
    return active.token


def tokens_for(context: typer.Context, url: str, token: str | None, copies: list[str]) -> Tokens:
    """A given token is for the copies too; that of a context only for its own URL, so copies use their own."""
    if not copies or said(context, "token"):
        return token
    from headpond.client.contexts import Contexts

    known: dict[str, str] = Contexts().tokens()
    return known if token is None else {**known, url: token}


def option(name: str, metavar: str, meaning: str, *more_names: str, **rest: Any) -> Any:
    """An option with a value."""
    return typer.Option(name, *more_names, metavar=metavar, help=meaning, **rest)


def flag(name: str, meaning: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=meaning, show_default=False)


def argument(metavar: str, meaning: str, complete: Completer | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=meaning, autocompletion=complete)


def wrong_use(name: str, message: str) -> typer.BadParameter:
    """The error of an option or argument."""
    return typer.BadParameter(message, param_hint=f"'{name}'")


def rate(name: str, meaning: str) -> Any:
    """A probability."""
    return option(name, "P", meaning, min=0.0, max=1.0)


# --- of every command -------------------------------------------------------------------------------

URL_HELP = "The node: headpond://HOST:PORT[,HOST:PORT…], or headponds:// for TLS."
Url = Annotated[
    str,
    # Eager, because it depends on the URL whether the token of a context is used.
    option("--url", "URL", URL_HELP, envvar="HEADPOND_URL", callback=_url, is_eager=True),
]
Token = Annotated[
    str | None, option("--token", "TEXT", "The access token.", envvar="HEADPOND_TOKEN", callback=_token)
]
UnusedUrl = Annotated[str, typer.Option("--url", envvar="HEADPOND_URL", hidden=True)]
UnusedToken = Annotated[str | None, typer.Option("--token", envvar="HEADPOND_TOKEN", hidden=True)]
AsJson = Annotated[bool, flag("--json", "Print JSON; errors on stderr are JSON too.")]

# --- of several commands ----------------------------------------------------------------------------

TOPIC_HELP = "NAME or tenant/product/component/NAME."
TopicArgument = Annotated[str, argument("TOPIC", TOPIC_HELP, topics)]
NewTopicArgument = Annotated[str, argument("TOPIC", TOPIC_HELP)]
TopicFilter = Annotated[str | None, argument("TOPIC", "Only this topic. [default: all topics]", topics)]
Copies = Annotated[
    list[str] | None,
    option("--copy", "URL", "Another node that holds the same messages. Can be repeated."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.", show_default=False)]

InputFormat = StrEnum("InputFormat", ["lines", "json", "csv"])
OutputFormat = StrEnum("OutputFormat", ["value", "keyed", "json"])
FORMAT_HELP = (
    "value: a value per line. keyed: the key, a tab and the value. json: the whole message, as --json."
)
FormatOption = Annotated[OutputFormat, typer.Option("--format", help=FORMAT_HELP)]

# --- subscriptions ----------------------------------------------------------------------------------

SubscriptionKind = StrEnum("SubscriptionKind", ["unique", "shared", "failover", "key_shared"])
SubscriptionMode = StrEnum("SubscriptionMode", ["resilient", "non_resilient"])
Redelivery = StrEnum("Redelivery", ["after_backlog", "after_backoff"])
KindOption = Annotated[
    SubscriptionKind, typer.Option("--kind", help="How the consumers share the subscription.")
]
ModeOption = Annotated[
    SubscriptionMode,
    typer.Option("--mode", help="resilient: the next message is delivered after the previous one is settled."),
]
RedeliveryOption = Annotated[
    Redelivery | None,
    typer.Option(
        "--redelivery",
        help="When a refused message is delivered again: after the backlog, or after its backoff.",
    ),
]
START_HELP = "Where a new subscription starts: earliest, latest, state, an entry number or an ISO 8601 time."
StartOption = Annotated[str, option("--start", "P", START_HELP, autocompletion=starts)]


def parse_start(text: str, option: str, *, new: bool = True) -> str | int:
    """``earliest``, ``latest``, an entry number or a time; for a ``new`` subscription also ``state``."""
    if text in ("earliest", "latest") or (new and text == "state"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        words = "earliest, latest, state" if new else "earliest, latest"
        message = f"give {words}, an entry number, or a time such as 2026-01-31T12:00:00+00:00"
        raise wrong_use(option, message) from None
    return text


def parse_place(text: str, option: str) -> tuple[int, int]:
    """``ENTRY`` or ``SHARD/ENTRY``, as (shard, entry)."""
    shard, _, entry = text.rpartition("/")
    numbers = [shard or "0", entry]
    if not all(each.isascii() and each.isdigit() and len(each) < 20 for each in numbers):
        raise wrong_use(option, f"{text!r} is not ENTRY or SHARD/ENTRY")
    return int(numbers[0]), int(numbers[1])
