"""``headpond producer create|list|show|delete`` and ``headpond writer list|show|delete``.

A producer is a name registered at a topic, which a client may hold by a lease. A writer stages batches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli import completion
from headpond.cli.command import Node, command, confirm, group
from headpond.cli.options import TopicArgument, TopicFilter, Yes, argument, option
from headpond.cli.output import picked, print_fields, print_report
from headpond.shapes.resources import producer_object, writer_object

if TYPE_CHECKING:
    from headpond.shapes.resources import WriterShape
    from headpond.wire.control.producing import ProducerInfo

producer_app = group("Register, list and delete producers of a topic.")
writer_app = group("List and delete writers of staged batches.")

NewProducer = Annotated[str, argument("NAME", "The name of the producer.")]
ProducerName = Annotated[str, argument("NAME", "The name of the producer.", completion.producers)]
WriterName = Annotated[str, argument("NAME", "The name of the writer.", completion.writers)]
ACCESS_HELP = "single (one instance at a time) or multiple."
Access = Annotated[str, option("--access", "ACCESS", ACCESS_HELP, autocompletion=completion.accesses)]


@command(producer_app)
def create(node: Node, topic: TopicArgument, producer: NewProducer, access: Access = "multiple") -> None:
    """Register the name of a producer at a topic."""
    info = node.ask(lambda admin: admin.create_producer(topic, producer, access=access))
    text = f"registered {info.producer} at {info.topic} with {info.access} access"
    node.show(producer_object(info), text)


@command(producer_app, "list")
def list_(node: Node, topic: TopicFilter = None) -> None:
    """List registered producers."""
    infos = node.ask(lambda admin: admin.list_producers(topic))
    columns = "topic producer access epoch connections last_seen=seen_at lease_holder"
    node.table([producer_object(info) for info in infos], columns, [_row(info) for info in infos])


@command(producer_app)
def show(node: Node, topic: TopicArgument, producer: ProducerName) -> None:
    """Show a producer: its access, when it was last connected, and which client holds its lease."""
    info = node.ask(lambda admin: admin.show_producer(topic, producer))
    names = "producer topic access registered=registered_at last_seen=seen_at clients epoch lease_holder"
    node.show(producer_object(info), lambda: print_fields(picked(_row(info), names)))


@command(producer_app)
def delete(node: Node, topic: TopicArgument, producer: ProducerName, yes: Yes = False) -> None:
    """Delete the registration of a producer that is not connected. Its messages stay."""
    if not yes:
        confirm(f"Delete the registration of {producer} at {topic}?")
    node.ask(lambda admin: admin.delete_producer(topic, producer))
    node.show({"deleted": producer, "topic": topic}, f"deleted {producer} of {topic}")


def _row(info: ProducerInfo) -> dict[str, Any]:
    """A producer as a person reads it."""
    lapses = info.lapses_in_s
    ends = "" if lapses is None else f" (disconnected, lease ends in {lapses:.1f} s)"
    return {
        **producer_object(info),
        "epoch": info.epoch or None,
        "connections": len(info.connections),
        "clients": ", ".join(info.clients) or None,
        "lease_holder": f"{info.holder}{ends}" if info.holder else None,
    }


# --- writers ----------------------------------------------------------------------------------------


@command(writer_app, "list")
def list_writers(node: Node) -> None:
    """List writers with their last batch and their staged data."""
    infos = node.ask(lambda admin: admin.list_writers())
    columns = "writer batch batches rows stages staged_bytes committed=committed_at"
    node.table([writer_object(info) for info in infos], columns)


@command(writer_app, "show")
def show_writer(node: Node, writer: WriterName) -> None:
    """Show a writer: its last batch, its counts, its topics and its stages."""
    shown = writer_object(node.ask(lambda admin: admin.show_writer(writer)), whole=True)
    node.show(shown, partial(_print_writer, shown))


@command(writer_app, "delete")
def delete_writer(node: Node, writer: WriterName, yes: Yes = False) -> None:
    """Delete a writer and its stages. Its messages stay, but a batch that is sent again is published again."""
    if not yes:
        confirm(f"Delete writer {writer} with its stages? A batch that it sends again is published again.")
    stages = node.ask(lambda admin: admin.delete_writer(writer))
    node.show({"deleted": writer, "stages": stages}, f"deleted {writer}, with {stages} stages")


def _print_writer(shown: WriterShape) -> None:
    names = (
        "writer batch committed=committed_at publishing holder batches rows bytes topics stages staged_bytes"
    )
    fields = picked({**shown, "topics": ", ".join(shown["topics"]) or None}, names)
    print_report(fields, (shown["stage_list"], "stage topic rows finished opened=opened_at"))
