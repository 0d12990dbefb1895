"""Which node a pipeline is run against, and which token that node is given."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headpond.cli.options import DEFAULT_URL, Token, Url
from headpond.cli.spark.pipeline import _node
from headpond.client.contexts import Contexts, NodeContext
from headpond.spark.pipeline import Pipeline

FILE, LINE, ENVIRONMENT, CONTEXT = (
    f"headpond://{name}:1" for name in ("file", "line", "environment", "context")
)


@pytest.mark.parametrize(
    ("file", "arguments", "environment", "found"),
    [
        ({}, [], {}, (CONTEXT, "context's")),
        ({"url": FILE}, [], {}, (FILE, None)),
        ({"url": FILE, "token": "file's"}, [], {}, (FILE, "file's")),
        ({"url": FILE, "token": "file's"}, [], {"HEADPOND_TOKEN": "environment's"}, (FILE, "file's")),
        ({"url": FILE}, [], {"HEADPOND_TOKEN": "environment's"}, (FILE, "environment's")),
        ({"url": FILE, "token": "file's"}, ["--token", "line's"], {}, (FILE, "line's")),
        ({"url": FILE}, ["--url", LINE], {}, (LINE, None)),
        ({}, [], {"HEADPOND_URL": ENVIRONMENT}, (ENVIRONMENT, None)),
    ],
)
def test_the_line_goes_first_then_the_file_and_a_contexts_token_goes_to_its_own_node_alone(
    file: dict[str, Any],
    arguments: list[str],
    environment: dict[str, str],
    found: tuple[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HEADPOND_URL", "HEADPOND_TOKEN", "HEADPOND_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    contexts = Contexts()
    contexts.add("here", NodeContext(CONTEXT, "context's"))
    contexts.save()
    pipeline = Pipeline("p", **file).source("a", topic="a").sink("b", from_="a", topic="b")
    nodes = []
    app = typer.Typer()

    @app.command()
    def run(context: typer.Context, url: Url = DEFAULT_URL, token: Token = None) -> None:
        nodes.append(_node(context, pipeline.plan, url, token))

    assert CliRunner().invoke(app, arguments, env=environment).exit_code == 0
    (node,) = nodes
    assert (node.url, node.token) == found
    assert node.token is None or node.token not in repr(node)
