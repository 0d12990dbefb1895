"""A consumer in a separate process, for tests that stop and wake it. It reports on stdout.

URL TOPIC KIND MODE    takes one message, says "held ENTRY" and waits for a line on stdin; acknowledges it then,
                       and what else comes, with "got ENTRY ATTEMPT" for each, until nothing comes for a while:
                       "done", or "error CODE"
"""

from __future__ import annotations

import asyncio
import sys

import headpond

IDLE_S = 1.5


def say(text: str) -> None:
    print(text, flush=True)


async def work(url: str, topic: str, kind: str, mode: str) -> None:
    async with headpond.connect(url, name="stalled") as client:
        consumer = await client.consumer(topic, "s", kind=kind, mode=mode, name="stalled").open()
        held = await consumer.receive(20)
        assert held is not None
        say(f"held {held.entry}")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await consumer.ack(held)
            while (message := await consumer.receive(IDLE_S)) is not None:
                say(f"got {message.entry} {message.attempt}")
                await consumer.ack(message)
            await consumer.close()
            say("done")
        except headpond.HeadpondError as error:
            say(f"error {error.code}")


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
