"""All the commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer

from headpond.cli.component import component_app
from headpond.cli.consume import consume
from headpond.cli.context import context_app
from headpond.cli.dead import dead_app
from headpond.cli.demo import demo
from headpond.cli.doctor import doctor
from headpond.cli.errors import errors
from headpond.cli.explain import explain
from headpond.cli.inspect import inspect
from headpond.cli.lab import lab_app
from headpond.cli.lab_sweep import sweep
from headpond.cli.ledger import ledger
from headpond.cli.log import log_app
from headpond.cli.node import node
from headpond.cli.peer import peer_app
from headpond.cli.produce import produce
from headpond.cli.producer import producer_app
from headpond.cli.product import product_app
from headpond.cli.refill import refill_app
from headpond.cli.sections import ACCESS, LOOKING, MESSAGES, PIPES, SPARK, TOPICS, Sections
from headpond.cli.spark import spark_app
from headpond.cli.spark_archive import archive
from headpond.cli.spark_audit import audit
from headpond.cli.spark_compact import compact
from headpond.cli.spark_prepare import prepare
from headpond.cli.spark_replay import replay
from headpond.cli.spark_reshard import reshard
from headpond.cli.sub import sub_app
from headpond.cli.tenant import tenant_app
from headpond.cli.token import token_app
from headpond.cli.top import top
from headpond.cli.topic import topic_app
from headpond.cli.writer import writer_app

app = typer.Typer(
    name="headpond",
    cls=Sections,
    help="Durable messaging for Python: run a node, send it messages, read them, look at what is stored.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts twice as fast and can be searched
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

lab_app.command()(sweep)
for job in (audit, archive, compact, replay, reshard, prepare):
    spark_app.command()(job)

app.command(rich_help_panel=MESSAGES)(node)
app.command(rich_help_panel=MESSAGES, short_help="Send each line of stdin as a message.")(produce)
app.command(rich_help_panel=MESSAGES, short_help="Print messages, and acknowledge what was printed.")(consume)
app.add_typer(topic_app, name="topic", rich_help_panel=TOPICS)
app.add_typer(sub_app, name="sub", rich_help_panel=TOPICS)
app.add_typer(dead_app, name="dead", rich_help_panel=TOPICS)
app.add_typer(producer_app, name="producer", rich_help_panel=TOPICS)
app.add_typer(writer_app, name="writer", rich_help_panel=TOPICS)
app.add_typer(
    refill_app,
    name="refill",
    rich_help_panel=TOPICS,
    short_help="What waits on this disk for a node that is away.",
)
app.add_typer(tenant_app, name="tenant", rich_help_panel=TOPICS)
app.add_typer(product_app, name="product", rich_help_panel=TOPICS)
app.add_typer(
    component_app,
    name="component",
    rich_help_panel=TOPICS,
    short_help="The same for components (TENANT/PRODUCT/COMPONENT).",
)
app.add_typer(token_app, name="token", rich_help_panel=ACCESS)
app.add_typer(
    context_app,
    name="context",
    rich_help_panel=ACCESS,
    short_help="Nodes by name: URL, token and certificates.",
)
app.add_typer(peer_app, name="peer", rich_help_panel=ACCESS)
app.add_typer(log_app, name="log", rich_help_panel=ACCESS)
app.command(rich_help_panel=LOOKING)(top)
app.command(rich_help_panel=LOOKING, short_help="What became of every segment and entry of a topic.")(ledger)
app.command(rich_help_panel=LOOKING, short_help="Check a node: addresses, token, clocks, disk.")(doctor)
app.command(rich_help_panel=LOOKING, short_help="Show what a file of a node holds, checksums verified.")(
    inspect
)
app.command(rich_help_panel=LOOKING)(errors)
app.add_typer(spark_app, name="spark", rich_help_panel=SPARK)
app.command(rich_help_panel=PIPES, short_help="What a route of pipes promises over a faulty channel.")(explain)
app.add_typer(lab_app, name="lab", rich_help_panel=PIPES)
app.command(rich_help_panel=PIPES, short_help="100,000 messages over a bad link, with a kill of the node.")(
    demo
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"headpond {version('headpond')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@cache
def command() -> Callable[..., object]:
    """The whole tree of commands; building it is most of what a short command does."""
    return typer.main.get_command(app)
