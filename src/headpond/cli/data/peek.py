"""``headpond peek TOPIC``: messages by position, without a subscription."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import Node, command
from headpond.cli.data.consume import message_lines
from headpond.cli.options import FormatOption, OutputFormat, TopicArgument, option, wrong_use
from headpond.cli.stdio import OutputWriter

if TYPE_CHECKING:
    from headpond.client.admin import Admin

SHARD_HELP = "Only this shard. [default: all, one after the other]"
START_HELP = "The first entry of each shard: earliest, an entry number, or -N for the last N."
COUNT_HELP = "Print at most N messages of each shard."


@command()
def peek(
    node: Node,
    topic: TopicArgument,
    shard: Annotated[int | None, option("--shard", "N", SHARD_HELP, min=0)] = None,
    start: Annotated[str, option("--start", "P", START_HELP)] = "earliest",
    count: Annotated[int, option("--count", "N", COUNT_HELP, "-n", min=1)] = 10,
    format_: FormatOption = OutputFormat.value,
) -> None:
    """Print messages that a topic holds now. No subscription is needed or changed."""
    place = _parse_start(start)
    format_ = OutputFormat.json if node.as_json else format_

    async def read(admin: Admin) -> None:
        info = await admin.show_topic(topic)
        if shard is not None and shard >= info.shards:
            raise wrong_use("--shard", f"the last shard of {topic} is {info.shards - 1}")
        writer = OutputWriter(sys.stdout.fileno())
        for each in info.shard_list if shard is None else [info.shard_list[shard]]:
            first = place if place >= 0 else max(each.entry_first, each.entry_next + place)
            left = count
            async for batch in admin.browse(topic, shard=each.shard, entry=first):
                rows = min(left, len(batch))
                await writer.write(message_lines(batch, rows, format_))
                left -= rows
                if not left:
                    break

    node.ask(read)


def _parse_start(text: str) -> int:
    """An entry, or how many before the end if it is negative."""
    if text == "earliest":
        return 0
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20:
        return int(text)
    raise wrong_use("--start", "give earliest, an entry number, or -N for the last N")
