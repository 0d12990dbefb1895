"""One request to a node, and one question to the person at the terminal."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from headpond.cli.output import note, run
from headpond.model.errors import HeadpondError, SubscriptionNotFound, TopicNotFound
from headpond.model.names import TopicName

if TYPE_CHECKING:
    from headpond.client.admin import Admin


Result = TypeVar("Result")


def ask(url: str, token: str | None, question: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Connects to the node and makes one request."""
    import headpond

    async def main() -> Result:
        async with headpond.connect(url, token=token) as client:
            try:
                return await question(client.admin)
            except HeadpondError as error:
                raise await with_near_names(client.admin, error) from None

    return run(main())


def confirm(question: str) -> None:
    """Asks a person; a script has to give ``--yes``."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; give --yes", param_hint="'--yes'")
    if not typer.confirm(question, err=True):
        note("nothing was deleted")
        raise typer.Exit(1)


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
