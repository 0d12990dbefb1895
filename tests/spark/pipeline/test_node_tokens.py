"""Which node gets which token: a token for a URL goes to no other node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import typer
from click.core import ParameterSource

from headpond.cli.spark.pipeline import _node
from headpond.spark.connection import NodeConnection
from headpond.spark.jobs.feed import Feed, FeedKind
from headpond.spark.options import read_sink_options, read_source_options
from headpond.spark.pipeline.frames import Frames, node_options
from headpond.spark.pipeline.plan import SinkTable, SourceTable

HERE, THERE = "headpond://here:1", "headpond://there:1"


def chosen(
    plan_url: str | None, plan_token: str | None, url: str, token: str | None, on_line: str = ""
) -> NodeConnection:
    """The node of a pipeline file, if the command line, the environment or a context also name a ``url``."""
    command: Any = click.Command("run")
    context: Any = typer.Context(command)
    if on_line:
        context.set_parameter_source(on_line, ParameterSource.COMMANDLINE)
    plan: Any = SimpleNamespace(url=plan_url, token=plan_token)
    return _node(context, plan, url, token)


def test_a_contexts_token_does_not_go_to_the_url_of_a_file() -> None:
    assert chosen(None, None, HERE, "mine") == NodeConnection(HERE, "mine")
    assert chosen(HERE, None, HERE, "mine") == NodeConnection(HERE, "mine")
    assert chosen(THERE, None, HERE, "mine") == NodeConnection(THERE, None)
    assert chosen(THERE, "theirs", HERE, "mine") == NodeConnection(THERE, "theirs")
    assert chosen(THERE, None, HERE, "said", "token") == NodeConnection(THERE, "said")


def test_a_files_token_does_not_go_to_the_url_of_the_command_line() -> None:
    assert chosen(THERE, "theirs", HERE, None, "url") == NodeConnection(HERE, None)
    assert chosen(None, "theirs", HERE, None, "url") == NodeConnection(HERE, "theirs")


def test_a_source_or_sink_elsewhere_gets_its_own_token_or_none() -> None:
    node = NodeConnection(HERE, "mine")
    for url, token, gets in (
        (None, None, "mine"),
        (HERE, None, "mine"),
        (THERE, None, "none"),
        (THERE, "theirs", "theirs"),
    ):
        wanted = {"url": url or HERE, "token": gets}
        assert node_options(node, SourceTable(topic="t", url=url, token=token)) == wanted
        assert node_options(node, SinkTable(from_="s", topic="t", url=url, token=token)) == wanted


def test_a_sink_passes_on_repeat_to_its_options() -> None:
    frames: Any = Frames(None, None, None, NodeConnection(HERE))  # type: ignore[arg-type]
    sink = SinkTable(from_="s", topic="t", sink_id="i", on_repeat="drop")
    options = read_sink_options(frames.sink_options(sink), streaming=True)
    assert (options.sink, options.on_repeat) == ("i", "drop")


def test_the_text_of_an_object_never_contains_its_token() -> None:
    options = read_source_options({"url": HERE, "token": "SECRET", "topic": "t"}, streaming=False)
    feed = Feed(FeedKind.TOPIC, "t", NodeConnection(HERE, "SECRET"))
    assert "SECRET" not in f"{NodeConnection(HERE, 'SECRET')}{feed!r}{options}"
