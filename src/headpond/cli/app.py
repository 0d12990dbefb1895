"""All the commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headpond.cli.data.consume import consume
from headpond.cli.data.produce import produce
from headpond.cli.data.refill import refill_app
from headpond.cli.operate.demo import demo
from headpond.cli.operate.doctor import doctor
from headpond.cli.operate.errors import errors
from headpond.cli.operate.explain import explain
from headpond.cli.operate.inspect import inspect
from headpond.cli.operate.lab import lab_app, sweep
from headpond.cli.operate.ledger import ledger
from headpond.cli.operate.log import log_app
from headpond.cli.operate.node import node
from headpond.cli.operate.top import top
from headpond.cli.output import pipe_may_close
from headpond.cli.resources.context import context_app
from headpond.cli.resources.dead import dead_app
from headpond.cli.resources.peer import peer_app
from headpond.cli.resources.places import component_app, product_app, tenant_app
from headpond.cli.resources.producer import producer_app
from headpond.cli.resources.sub import sub_app
from headpond.cli.resources.token import token_app
from headpond.cli.resources.topic import topic_app
from headpond.cli.resources.writer import writer_app
from headpond.cli.spark.archive import archive, compact
from headpond.cli.spark.audit import audit
from headpond.cli.spark.pipeline import spark_app
from headpond.cli.spark.prepare import prepare
from headpond.cli.spark.replay import replay, reshard

MESSAGES = "Messages"
TOPICS = "Topics and who uses them"
ACCESS = "Access and other nodes"
LOOKING = "Looking into it"
SPARK = "Spark"
PIPES = "Pipes, and a demonstration"
ORDER = (MESSAGES, TOPICS, ACCESS, LOOKING, SPARK, PIPES)


class Sections(TyperGroup):
    """Lists commands under the section that each was added with: ``rich_help_panel``, here in plain text."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with pipe_may_close():  # help and the version are printed here
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with pipe_may_close():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ORDER}
        width = max(map(len, self.commands))
        for name, command in self.commands.items():
            line = command.get_short_help_str(formatter.width - width - 6)
            sections[str(getattr(command, "rich_help_panel", None))].append((name.ljust(width), line))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


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
