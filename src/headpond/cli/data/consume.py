"""``headpond consume TOPIC --subscription S``: messages on stdout, settled once they are printed.

A batch is printed with one write and only then acknowledged, so unprinted messages are delivered again.
docs/json.md documents the JSON of a message.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headpond.cli.command import Node, command, with_near_names
from headpond.cli.completion import subscriptions
from headpond.cli.options import (
    Copies,
    FormatOption,
    KindOption,
    ModeOption,
    OutputFormat,
    RedeliveryOption,
    StartOption,
    SubscriptionKind,
    SubscriptionMode,
    TopicArgument,
    option,
    parse_start,
    tokens_for,
)
from headpond.cli.output import note, run
from headpond.cli.stdio import OutputWriter
from headpond.model.errors import HeadpondError, TopicNotFound
from headpond.model.names import TopicName
from headpond.model.policy import Policy
from headpond.shapes.message import batch_rows
from headpond.wire.typed.values import json_lines, value_json

if TYPE_CHECKING:
    from headpond.client.connect import Client
    from headpond.client.consume.batch import Batch
    from headpond.client.consume.consumer import Consumer
    from headpond.client.options import KindName, ModeName

CLOSE_SECONDS = 5.0
"""How long an interrupted command waits for an unreachable node."""
SUBSCRIPTION_HELP = "The subscription to read; it is created if it does not exist."
DEDUP_HELP = "With --copy: print a message that several nodes deliver only once."


@command()
def consume(
    node: Node,
    context: typer.Context,
    topic: TopicArgument,
    subscription: Annotated[
        str, option("--subscription", "S", SUBSCRIPTION_HELP, "-s", autocompletion=subscriptions)
    ],
    kind: KindOption = SubscriptionKind.unique,
    mode: ModeOption = SubscriptionMode.non_resilient,
    start: StartOption = "earliest",
    redelivery: RedeliveryOption = None,
    count: Annotated[int | None, option("--count", "N", "Stop after N messages.", "-n", min=0)] = None,
    idle: Annotated[
        float | None, option("--idle", "S", "Stop after S seconds without a message.", min=0)
    ] = None,
    format_: FormatOption = OutputFormat.value,
    copies: Copies = None,
    dedup: Annotated[bool, typer.Option("--dedup/--no-dedup", help=DEDUP_HELP)] = True,
) -> None:
    """Print the value of each message on a line, or the whole message as JSON, and acknowledge it.

    Only messages that were printed are acknowledged; all others are delivered again. Runs until --count,
    --idle or Ctrl-C.
    """
    import headpond

    place = parse_start(start, "--start")
    tokens = tokens_for(context, node.url, node.token, copies or [])

    async def main() -> None:
        async with headpond.connect(node.url, token=tokens) as client:
            await _note_if_missing(client, topic)
            await _note_if_paused(client, topic, subscription)
            async with client.consumer(
                topic,
                subscription=subscription,
                kind=cast("KindName", kind.value),
                mode=cast("ModeName", mode.value),
                start=place,
                policy=Policy(redelivery=redelivery),
                copies=copies or [],
                dedup=dedup,
                close_timeout=CLOSE_SECONDS,
            ) as consumer:
                await _print_messages(consumer, count, idle, OutputFormat.json if node.as_json else format_)
                await consumer.flush()
                _note_copies(consumer)

    run(main())


async def _print_messages(
    consumer: Consumer, count: int | None, idle: float | None, format_: OutputFormat
) -> None:
    writer = OutputWriter(sys.stdout.fileno())
    left = count
    async for batch in _until_idle(consumer, idle, wanted=count != 0):
        rows = len(batch) if left is None else min(left, len(batch))
        await writer.write(message_lines(batch, rows, format_))
        await consumer.ack(batch, rows=None if rows == len(batch) else list(range(rows)))
        if left is not None:
            left -= rows
            if not left:
                consumer.put_back(batch, rows=list(range(rows, len(batch))))
                return


async def _note_if_missing(client: Client, topic: str) -> None:
    """Without this note, a mistyped name would wait forever in silence."""
    try:
        await client.admin.show_topic(topic)
    except TopicNotFound as error:
        near = (await with_near_names(client.admin, error)).hint.partition("?")
        similar = f" {near[0]}?" if near[1] else ""
        note(f"topic {topic} is not there yet: it is created if the node allows it.{similar}")


async def _note_if_paused(client: Client, topic: str, subscription: str) -> None:
    """Without this note, a paused subscription would look like an empty one."""
    try:
        info = await client.admin.show_subscription(topic, subscription)
    except HeadpondError:  # the consumer itself raises what matters
        return
    if info.paused:
        name = f"{TopicName.parse(info.topic).short} {subscription}"
        note(f"subscription {subscription} is paused: `headpond sub resume {name}` lets messages flow again")


def _note_copies(consumer: Consumer) -> None:
    """Without this note, nobody would notice a mistyped URL of a copy."""
    for node in consumer.nodes:
        if node.state != "reading":
            why = f": {node.error.message}" if node.error else ""
            note(f"{node.url} did not answer and was not read{why}")


async def _until_idle(consumer: Consumer, idle: float | None, *, wanted: bool) -> AsyncIterator[Batch]:
    """The batches, until none came for ``idle`` seconds."""
    batches = consumer.batches()
    while wanted:
        try:
            yield await asyncio.wait_for(anext(batches), idle)
        except (TimeoutError, StopAsyncIteration):
            return


def message_lines(batch: Batch, rows: int, format_: OutputFormat) -> bytes:
    """The first messages of a batch, one per line."""
    if format_ is OutputFormat.json:
        return json_lines(list(batch_rows(batch, rows)))
    values = _values(batch, rows)
    if format_ is OutputFormat.keyed:
        keys: list[bytes | None] = batch.arrow.column("key")[:rows].to_pylist()
        values = [b"%b\t%b" % (key or b"", value) for key, value in zip(keys, values, strict=True)]
    values.append(b"")  # so that the last line ends too
    return b"\n".join(values)


def _values(batch: Batch, rows: int) -> list[bytes]:
    """The values as they are, or as JSON for a typed topic."""
    if batch.typed:
        return [value_json(message.value) for message in batch.messages()[:rows]]
    values: list[bytes | None] = batch.arrow.column("value")[:rows].to_pylist()
    return [value or b"" for value in values]
