"""What all commands have in common: three options, one request to a node, and one question to a person."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperGroup

from headpond.cli.logs import warnings_as_json
from headpond.cli.options import DEFAULT_URL, AsJson, Token, UnusedToken, UnusedUrl, Url, wrong_use
from headpond.cli.output import Output, check_streams, errors_reported, note, run
from headpond.model.errors import HeadpondError, SubscriptionNotFound, TopicNotFound
from headpond.model.names import TopicName

if TYPE_CHECKING:
    from headpond.client.admin import Admin

Result = TypeVar("Result")
Command = Callable[..., None]

LINE_MAX = 1000
"""More characters than any first sentence has."""


@dataclass(frozen=True)
class Node(Output):
    """The node that a command asks, and the form of its output."""

    url: str
    token: str | None

    def ask(self, question: Callable[[Admin], Awaitable[Result]]) -> Result:
        """Connects to the node and makes one request."""
        import headpond

        async def main() -> Result:
            async with headpond.connect(self.url, token=self.token) as client:
                try:
                    return await question(client.admin)
                except HeadpondError as error:
                    raise await with_near_names(client.admin, error) from None

        return run(main())


class Group(TyperGroup):
    """Its help has the first sentence of each command, whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(LINE_MAX)) for name in names])


def group(help_text: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(cls=Group, help=help_text, no_args_is_help=True, rich_markup_mode=None)


def command(
    of: typer.Typer | None = None, name: str | None = None, *, help_text: str | None = None
) -> Callable[[Command], Command]:
    """Makes a function a command with ``--url``, ``--token`` and ``--json``, in a group if it has one.

    The function gets the three as its first argument: a ``Node``; or an ``Output``, if it connects to no node
    and therefore ignores a URL and a token. An option that the function takes itself is not added.
    """

    def decorate(function: Command) -> Command:
        made = _with_common_options(function)
        if of is not None:
            of.command(name, help=help_text)(made)
        return made

    return decorate


def _with_common_options(function: Command) -> Command:
    first, *own = inspect.signature(function, eval_str=True).parameters.values()
    kind: type[Output] = first.annotation
    asks = issubclass(kind, Node)
    common = {
        "url": (Url if asks else UnusedUrl, DEFAULT_URL),
        "token": (Token if asks else UnusedToken, None),
        "as_json": (AsJson, False),
    }
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=default)
        for name, (option, default) in common.items()
        if name not in {each.name for each in own}
    ]

    @functools.wraps(function)
    def run_command(**given: Any) -> None:
        values = {each.name: given.pop(each.name) for each in added}
        if values["as_json"]:
            warnings_as_json()
        with errors_reported(as_json=values["as_json"]):
            check_streams()
            function(kind(**values) if asks else kind(values["as_json"]), **given)

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run_command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # for typer
    return run_command


def confirm(question: str, *, refused: str = "nothing was deleted") -> None:
    """Asks a person; a script has to give ``--yes``."""
    need_terminal()
    if not typer.confirm(question, err=True):
        note(refused)
        raise typer.Exit(1)


def need_terminal() -> None:
    if not sys.stdin.isatty():
        raise wrong_use("--yes", "there is no terminal to ask at; give --yes")


NAMES_MAX = 10_000
"""Names beyond these are not searched, which bounds the time."""
_QUOTED = re.compile(r"'([^']+)'")
_OF_TOPIC = re.compile(r"topic (\S+) has no subscription")


async def with_near_names(admin: Admin, error: HeadpondError) -> HeadpondError:
    """The error, with similar names that exist at the start of its hint."""
    quoted = _QUOTED.findall(error.message)
    if not quoted or not isinstance(error, TopicNotFound | SubscriptionNotFound):
        return error
    try:
        names = await _names(admin, error)
    except HeadpondError:
        return error
    near = near_names(quoted[-1], names)
    return type(error)(error.message, hint=f"{did_you_mean(near)} {error.hint}") if near else error


async def _names(admin: Admin, error: HeadpondError) -> list[str]:
    if isinstance(error, TopicNotFound):
        return [TopicName.parse(info.topic).short for info in await admin.list_topics()]
    topic = _OF_TOPIC.search(error.message)
    if topic is None:
        return []
    return [info.subscription for info in await admin.list_subscriptions(topic[1])]


def near_names(word: str, names: list[str]) -> list[str]:
    return difflib.get_close_matches(word, names[:NAMES_MAX], n=3, cutoff=0.6)


def did_you_mean(near: list[str]) -> str:
    return f"Did you mean {' or '.join(near)}?"
