"""``headpond produce TOPIC``: each line of stdin is a message.

A block of lines becomes an Arrow table and is sent before the next block is read. Meanwhile stdin fills up,
so a fast input makes large blocks, and a slow one is sent line by line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import Node, command
from headpond.cli.options import Copies, TopicArgument, flag, option, tokens_for, wrong_use
from headpond.cli.output import live_line, note, run
from headpond.cli.stdio import LineCutter, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

    from headpond.client.produce.producer import Producer
    from headpond.model.errors import HeadpondError

Cut = Callable[[list[bytes]], "pa.Table"]
"""Makes a table from lines."""
CLOSE_SECONDS = 30.0
"""How long the command waits at its end to deliver what earlier runs spilled."""
LINE_BYTES_MAX = 8 * 1024 * 1024 - 8192
"""A segment holds 8 MiB, the other columns of its row and its framing included."""
SEPARATOR_HELP = "Split each line at the first SEP into key and value; \\t is a tab."
EMPTY_HELP = "A line with an empty value deletes its key (state topics)."
PRODUCER_HELP = "The producer name to send as; needed if the token is bound to one."


@command()
def produce(
    node: Node,
    context: typer.Context,
    topic: TopicArgument,
    key_separator: Annotated[str | None, option("--key-separator", "SEP", SEPARATOR_HELP)] = None,
    empty_deletes: Annotated[bool, flag("--empty-deletes", EMPTY_HELP)] = False,
    name: Annotated[str | None, option("--producer", "NAME", PRODUCER_HELP)] = None,
    copies: Copies = None,
) -> None:
    """Send each line of stdin as a message, then print how many were stored.

    A message is the bytes of a line without its newline; an empty line is an empty message. Lines over 8 MiB
    are rejected. The topic is created if the node allows it. While the node is unreachable, messages are
    spilled to this disk and sent later. Exits with 1 unless every message was stored or spilled.
    """
    separator = _separator(key_separator)
    if empty_deletes and separator is None:
        raise wrong_use("--empty-deletes", "it needs --key-separator")
    import headpond

    cut = partial(_table, separator=separator, empty_deletes=empty_deletes)
    tally = Tally()
    tokens = tokens_for(context, node.url, node.token, copies or [])
    live = sys.stderr.isatty() and not node.as_json

    async def main() -> None:
        async with (
            headpond.connect(node.url, token=tokens, wait=False) as client,
            client.producer(topic, name, close_timeout=CLOSE_SECONDS, copies=copies or []) as producer,
        ):
            if not client.connected:
                note(f"no node answers at {node.url}: messages are spilled to this disk until one does")
            with live_line(tally.line) if live else nullcontext():
                await _send_all(producer, cut, tally)
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
        """Counts rejected messages; each reason is printed once."""
        self.rejected += count
        if reason not in self._complaints:
            self._complaints.add(reason)
            note(f"rejected: {reason}")

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


async def _send_all(producer: Producer, cut: Cut, tally: Tally) -> None:
    """Splits stdin into lines and sends them block by block, so that they are stored in order."""
    cutter = LineCutter(LINE_BYTES_MAX)
    async for block in read_blocks(sys.stdin.fileno()):
        await _send(producer, cutter, cutter.feed(block), cut, tally)
    await _send(producer, cutter, cutter.finish(), cut, tally)


async def _send(producer: Producer, cutter: LineCutter, lines: list[bytes], cut: Cut, tally: Tally) -> None:
    for number in cutter.take_too_long():
        tally.sent += 1
        tally.reject(1, f"line {number:,} is longer than {LINE_BYTES_MAX:,} bytes")
    if not lines:
        return
    tally.sent += len(lines)
    receipt = await producer.send_batch(cut(lines))
    tally.stored += receipt.stored
    tally.duplicate += receipt.duplicate
    tally.spill(receipt.spilled, receipt.reasons)
    if receipt.rejected:
        tally.reject(receipt.rejected, "; ".join(sorted({str(error) for error in receipt.errors})))


def _table(lines: list[bytes], *, separator: bytes | None, empty_deletes: bool) -> pa.Table:
    import pyarrow as pa

    if separator is None:
        return pa.table({"value": pa.array(lines, pa.binary())})
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for line in lines:
        key, found, value = line.partition(separator)
        keys.append(key if found else None)
        values.append((None if empty_deletes and not value else value) if found else line)
    return pa.table({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())})
