"""All the commands: where each lives, and the line that ``headpond --help`` prints for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer._click.exceptions import BadParameter, NoSuchOption, UsageError
from typer.core import TyperGroup

from headpond.cli.output import pipe_may_close

COMMON_OPTIONS = ("--url", "--token", "--json")
"""Those that every command has."""


class Entry(NamedTuple):
    """A command, or a group of commands: ``where`` is MODULE:NAME below this package."""

    where: str
    summary: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Messages": {
        "node": Entry("operate.node:node", "Run a node."),
        "produce": Entry("data.produce:produce", "Send a message, or each line of stdin or of a file."),
        "consume": Entry("data.consume:consume", "Print messages, and acknowledge them."),
        "peek": Entry("data.peek:peek", "Print messages by position, without a subscription."),
        "run": Entry("operate.run:run_app", "Run the handlers of a Python program."),
    },
    "Topics and their users": {
        "topic": Entry("resources.topic:topic_app", "Create, list, change and delete topics."),
        "sub": Entry("resources.sub:sub_app", "Create, list, move, pause and delete subscriptions."),
        "dead": Entry("resources.sub:dead_app", "List and redeliver messages that failed too often."),
        "producer": Entry("resources.producer:producer_app", "Register, list and delete producers of a topic."),
        "writer": Entry("resources.producer:writer_app", "List and delete writers of staged batches."),
        "refill": Entry("data.refill:refill_app", "Messages on this disk that wait for a node."),
        "agent": Entry("data.agent:agent", "Deliver the messages that wait on this disk, until it is stopped."),
        "tenant": Entry("resources.places:tenant_app", "Create, list, change and delete tenants."),
        "product": Entry("resources.places:product_app", "The same for products (TENANT/PRODUCT)."),
        "component": Entry(
            "resources.places:component_app", "The same for components (TENANT/PRODUCT/COMPONENT)."
        ),
    },
    "Access and other nodes": {
        "token": Entry("resources.token:token_app", "Create, list and revoke access tokens."),
        "context": Entry("resources.context:context_app", "Save the URL and token of a node under a name."),
        "peer": Entry("resources.peer:peer_app", "Copy topics from and to other nodes."),
        "cluster": Entry("operate.cluster:cluster_app", "Groups of nodes with one content, over NATS."),
        "log": Entry("resources.token:log_app", "Print the log of administration."),
    },
    "Monitoring and diagnosis": {
        "top": Entry("operate.top:top", "Watch throughput and lag."),
        "ledger": Entry("operate.ledger:ledger", "Account for every message of a topic."),
        "doctor": Entry("operate.doctor:doctor", "Check a node: addresses, token, clock, disk."),
        "inspect": Entry("operate.inspect:inspect", "Show the contents of a data file, and verify it."),
        "backup": Entry("operate.backup:backup", "Copy the data of a running node."),
        "restore": Entry("operate.backup:restore", "Copy a backup to an empty data folder."),
        "errors": Entry("operate.errors:errors", "Explain an error code, or list all codes."),
    },
    "Spark": {
        "spark": Entry("spark.jobs:spark_app", "Run pipelines and jobs on Spark."),
    },
    "Delivery over faulty links": {
        "explain": Entry("operate.explain:explain", "Predict what a route of pipes delivers."),
        "sim": Entry("operate.sim:sim_app", "Simulate whole systems under faults, and check every promise."),
        "lab": Entry("operate.lab:lab_app", "Simulate a route under faults, and measure it."),
        "up": Entry("up.up:up", "Run a node with a console and traffic to look at, until Ctrl-C."),
        "demo": Entry("operate.demo:demo", "Send 100,000 messages over a bad link, and kill the node."),
    },
}


class Commands(Mapping[str, Any]):
    """The table above as typer wants it. A command's module is imported when the command is looked up."""

    def __init__(self) -> None:
        self.entries = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

    def __getitem__(self, name: str) -> Any:
        return _load(self.entries[name].where)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@cache
def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    found = getattr(import_module(f"headpond.cli.{module}"), name)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    info = typer.models.CommandInfo(callback=found)
    return typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)


class Sections(TyperGroup):
    """Lists the commands by section, without loading them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands()  # type: ignore[assignment]  # typer only reads it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def make_context(self, *args: Any, **options: Any) -> Any:
        with pipe_may_close():  # help and the version are printed here
            return super().make_context(*args, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            if error.option_name in COMMON_OPTIONS:
                raise UsageError(f"{error.option_name} comes after the command.", ctx) from None
            raise

    def invoke(self, ctx: Any) -> Any:
        with pipe_may_close():
            try:
                return super().invoke(ctx)
            except BadParameter as error:
                error.message = error.message.removeprefix("Value error, ")  # pydantic adds it
                raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), each.summary) for name, each in entries.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        entries = Commands().entries.items()
        items = [(name, each.summary) for name, each in entries if name.startswith(incomplete)]
        found = [CompletionItem(name, help=summary) for name, summary in items]
        return found or super().shell_complete(ctx, incomplete)


app = typer.Typer(
    name="headpond",
    cls=Sections,
    help="Durable messaging for Python: run a node, send messages to it, read them, and look into its data.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts twice as fast and can be searched
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """The tree of commands."""
    return typer.main.get_command(app)
