"""``headpond produce TOPIC [MESSAGE]``: a message, or each line of stdin or of a file.

A block of lines becomes an Arrow table and is sent before the next block is read. Meanwhile stdin fills up,
so a fast input makes large blocks, and a slow one is sent line by line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import Node, command, confirm, did_you_mean, near_names
from headpond.cli.options import (
    Copies,
    InputFormat,
    TopicArgument,
    argument,
    flag,
    option,
    tokens_for,
    wrong_use,
)
from headpond.cli.output import live_line, note, run
from headpond.cli.stdio import LINE_BYTES_MAX, LineCutter, read_blocks
from headpond.model.errors import BadRequest, TopicNotFound
from headpond.model.names import TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from headpond.cli.data.input import InputReader
    from headpond.client.connect import Client
    from headpond.client.produce.producer import Producer
    from headpond.model.errors import HeadpondError

CLOSE_SECONDS = 30.0
"""How long the command waits at its end to deliver what earlier runs spilled."""
COMPLAINTS_MAX = 20
"""Reasons of rejected messages that are printed; all are counted."""
MESSAGE_HELP = "The message. [default: each line of stdin is a message]"
FILE_HELP = "Read messages from this file instead of stdin."
FORMAT_HELP = (
    "lines: a value per line, in a typed topic as a JSON object of its columns. json: a message per line, as "
    "`consume --json` prints it. csv: the first line names columns of a typed topic, or value, key and id."
)
KEY_HELP = "The key of every message that has none."
ID_HELP = "The id of the message."
HEADER_HELP = "A header of every message that has none. Can be repeated."
SEPARATOR_HELP = "Split each line at the first SEP into key and value; \\t is a tab."
EMPTY_HELP = "A line with an empty value deletes its key (state topics)."
PRODUCER_HELP = "The producer name to send as; needed if the token is bound to one."
CREATE_HELP = "Create the topic without a question, even if its name is similar to another."


@command()
def produce(
    node: Node,
    context: typer.Context,
    topic: TopicArgument,
    message: Annotated[str | None, argument("MESSAGE", MESSAGE_HELP)] = None,
    key: Annotated[str | None, option("--key", "TEXT", KEY_HELP, "-k")] = None,
    id_: Annotated[str | None, option("--id", "TEXT", ID_HELP)] = None,
    header: Annotated[list[str] | None, option("--header", "NAME=VALUE", HEADER_HELP, "-H")] = None,
    file: Annotated[Path | None, option("--file", "FILE", FILE_HELP, "-f")] = None,
    format_: Annotated[InputFormat, typer.Option("--format", help=FORMAT_HELP)] = InputFormat.lines,
    key_separator: Annotated[str | None, option("--key-separator", "SEP", SEPARATOR_HELP)] = None,
    empty_deletes: Annotated[bool, flag("--empty-deletes", EMPTY_HELP)] = False,
    create: Annotated[bool, flag("--create", CREATE_HELP)] = False,
    name: Annotated[str | None, option("--producer", "NAME", PRODUCER_HELP)] = None,
    copies: Copies = None,
) -> None:
    """Send a message, or each line of stdin or of a file, then print how many were stored.

    A message is the bytes of a line without its newline; an empty line is an empty message. Lines over 8 MiB
    are rejected. The topic is created if the node allows it; at a terminal the command asks first if a topic
    has a similar name. While the node is unreachable, messages are spilled to this disk and sent later. Exits
    with 1 unless every message was stored or spilled.
    """
    separator = _separator(key_separator)
    if empty_deletes and separator is None:
        raise wrong_use("--empty-deletes", "it needs --key-separator")
    if separator is not None and format_ is not InputFormat.lines:
        raise wrong_use("--key-separator", "it is for --format lines")
    if message is not None and file is not None:
        raise wrong_use("--file", "give MESSAGE or --file")
    if id_ is not None and message is None:
        raise wrong_use("--id", "it is for one MESSAGE; messages of --format json have their own")
    import headpond
    from headpond.cli.data.input import Given, make_reader

    given = Given(None if key is None else os.fsencode(key), id_, _headers(header))
    tally = Tally()
    tokens = tokens_for(context, node.url, node.token, copies or [])
    live = sys.stderr.isatty() and not node.as_json and message is None

    async def main() -> None:
        async with headpond.connect(node.url, token=tokens, wait=False) as client:
            schema = await _schema(client, topic, ask=not create)
            if not client.connected:
                if format_ is not InputFormat.lines:
                    hint = "Start the node, or send values with --format lines."
                    raise BadRequest(
                        f"no node answers at {node.url} and says which columns {topic} has", hint=hint
                    )
                note(f"no node answers at {node.url}: messages are spilled to this disk until one does")
            reader = make_reader(
                format_, schema, given, tally.reject_one, separator=separator, empty_deletes=empty_deletes
            )
            async with client.producer(
                topic, name, close_timeout=CLOSE_SECONDS, copies=copies or []
            ) as producer:
                with live_line(tally.line) if live else nullcontext():
                    await _send_all(producer, reader, tally, message, file)
        if tally.spilled and (left := producer.stats.refill_bytes):
            how = "the next producer of this topic delivers them, or `headpond refill send`"
            note(f"{left:,} bytes wait on this disk; {how}")

    def summary() -> None:
        note(tally.text())

    try:
        run(main())
    except BaseException:
        if tally.sent:  # after Ctrl-C the summary says how much was stored
            node.show(tally.summary(), summary)
        raise
    node.show(tally.summary(), summary, ok=tally.all_safe)


async def _schema(client: Client, topic: str, *, ask: bool) -> pa.Schema | None:
    """The columns of a typed topic. If the topic does not exist, a person at a terminal can stop here."""
    if not client.connected:
        return None
    try:
        info = await client.admin.show_topic(topic)
    except TopicNotFound:
        if ask and sys.stdin.isatty() and sys.stderr.isatty():
            names = [TopicName.parse(each.topic).short for each in await client.admin.list_topics()]
            if near := near_names(topic, names):
                confirm(
                    f"There is no topic {topic}. {did_you_mean(near)} Create {topic}?",
                    refused="nothing was sent",
                )
        return None
    if info.schema is None:
        return None
    from headpond.wire.typed.schema import decode_schema

    return decode_schema(info.schema)


def _headers(texts: Sequence[str] | None) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise wrong_use("--header", f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found or None


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise wrong_use("--key-separator", "it is empty")
    return None if text is None else text.replace("\\t", "\t").encode()


class Tally:
    """What became of the lines so far."""

    def __init__(self) -> None:
        self.sent = self.stored = self.duplicate = self.spilled = self.rejected = 0
        self.spill_reasons: dict[str, str] = {}
        """By code: why messages were spilled."""
        self._began = time.monotonic()
        self._complaints: set[str] = set()

    @property
    def all_safe(self) -> bool:
        return self.stored + self.duplicate + self.spilled == self.sent

    @property
    def rate(self) -> float:
        return self.sent / max(time.monotonic() - self._began, 1e-6)

    def reject(self, count: int, reason: str) -> None:
        """Counts rejected messages; each reason is printed once, up to a limit."""
        self.rejected += count
        if reason not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(reason)
            note(f"rejected: {reason}")

    def reject_one(self, reason: str) -> None:
        """Counts a record that cannot be read."""
        self.sent += 1
        self.reject(1, reason)

    def spill(self, count: int, reasons: list[HeadpondError]) -> None:
        """Counts spilled messages; each reason is printed once."""
        self.spilled += count
        for reason in reasons:
            if reason.code not in self.spill_reasons:
                self.spill_reasons[reason.code] = reason.message
                note(f"spilled: {reason.code}: {reason.message}")

    def summary(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "stored": self.stored,
            "duplicate": self.duplicate,
            "spilled": self.spilled,
            "spill_reasons": self.spill_reasons,
            "rejected": self.rejected,
            "seconds": round(time.monotonic() - self._began, 6),
        }

    def line(self) -> str:
        return f"sent {self.sent:,}  stored {self.stored:,}  {self.rate:,.0f}/s"

    def text(self) -> str:
        unknown = self.sent - self.stored - self.duplicate - self.spilled - self.rejected
        why = f"; spilled because of {', '.join(self.spill_reasons)}" if self.spill_reasons else ""
        return (
            f"sent {self.sent}, stored {self.stored}, duplicate {self.duplicate}, "
            f"spilled {self.spilled}, rejected {self.rejected} ({self.rate:,.0f}/s){why}"
            + (f"; {unknown} not confirmed" if unknown else "")
        )


async def _send_all(
    producer: Producer, reader: InputReader, tally: Tally, message: str | None, file: Path | None
) -> None:
    """Sends the message, or splits the input into lines and sends them block by block, so in order."""
    if message is not None:
        await _send(producer, reader.read([(1, os.fsencode(message))]), tally)
    elif file is not None:
        with file.open("rb", buffering=0) as source:
            await _send_lines(producer, reader, tally, source.fileno())
    else:
        await _send_lines(producer, reader, tally, sys.stdin.fileno())
    await _send(producer, reader.finish(), tally)


async def _send_lines(producer: Producer, reader: InputReader, tally: Tally, fd: int) -> None:
    cutter = LineCutter(LINE_BYTES_MAX)

    async def send(cut: Callable[[], list[bytes]]) -> None:
        first = cutter.count + 1
        lines = cut()
        too_long = cutter.take_too_long()
        for number in too_long:
            tally.reject_one(f"line {number:,} is longer than {LINE_BYTES_MAX:,} bytes")
        numbers = (number for number in range(first, cutter.count + 1) if number not in too_long)
        await _send(producer, reader.read(list(zip(numbers, lines, strict=True))), tally)

    async for block in read_blocks(fd):
        await send(partial(cutter.feed, block))
    await send(cutter.finish)


async def _send(producer: Producer, rows: pa.Table | pa.RecordBatch | None, tally: Tally) -> None:
    if rows is None:
        return
    tally.sent += rows.num_rows
    receipt = await producer.send_batch(rows)
    tally.stored += receipt.stored
    tally.duplicate += receipt.duplicate
    tally.spill(receipt.spilled, receipt.reasons)
    if receipt.rejected:
        tally.reject(receipt.rejected, "; ".join(sorted({str(error) for error in receipt.errors})))
