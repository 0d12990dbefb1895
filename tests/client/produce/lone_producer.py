"""A producer in a separate process, for tests that kill it. It reports on stdout.

send URL TOPIC NAME COUNT [OPTION=VALUE ...]    sends numbers one by one, prints "OUTCOME SEGMENT" for each,
                                                then "done", and waits until it is killed
post URL TOPIC COUNT                            posts with the blocking twin and ends without closing anything
"""

from __future__ import annotations

import ast
import asyncio
import sys
from typing import Any

import headpond
import headpond.sync


def say(text: str) -> None:
    print(text, flush=True)


async def send(url: str, topic: str, name: str, count: int, options: dict[str, Any]) -> None:
    client = await headpond.connect(url, wait=False)
    producer = await client.producer(topic, name=name, **options).open()
    say(f"block {producer.block.hex()}")
    for number in range(count):
        receipt = await producer.send(b"%d" % number)
        say(f"{receipt.outcome} {receipt.identity.segment}")
    say("done")
    await asyncio.Event().wait()


def post(url: str, topic: str, count: int) -> None:
    producer = headpond.sync.connect(url, wait=False).producer(topic)
    for number in range(count):
        producer.post(b"%d" % number)


def main() -> None:
    what, url, topic, *rest = sys.argv[1:]
    if what == "post":
        post(url, topic, int(rest[0]))
    else:
        options = dict(option.split("=", 1) for option in rest[2:])
        read = {name: ast.literal_eval(value) for name, value in options.items()}
        asyncio.run(send(url, topic, rest[0], int(rest[1]), read))


if __name__ == "__main__":
    main()
