"""One end of a pipe in a process of its own, for tests that kill it. It says on stdout what it does.

receive-tcp ROUTE PORT                    listens; prints each payload when it is done with it
send-tcp ROUTE PORT FIRST LAST NAME       sends numbers, prints "sent N" now and then and "flushed" at the end
receive-topic URL TOPIC SUBSCRIPTION N    prints each payload when it is done with it; after N it does nothing
"""

from __future__ import annotations

import asyncio
import sys

import penstock
from penstock.client.pipes import tcp, topic
from penstock.client.pipes.receiver import Receiver


def say(text: str) -> None:
    print(text, flush=True)


async def receive(receiver: Receiver, most: int = 1 << 62) -> None:
    async with receiver:
        say("ready")
        left = most
        async for item in receiver.items():
            say(item.payload.decode())
            receiver.confirm(item)
            left -= 1
            if not left:
                await asyncio.Event().wait()  # with messages in hand, until it is killed


async def send(route: str, port: int, first: int, last: int, name: str) -> None:
    async with tcp.connect(route, "127.0.0.1", port, name=name) as sender:
        for number in range(first, last):
            await sender.send(b"%d" % number)
            if number % 100 == 0:
                say(f"sent {number}")
                await asyncio.sleep(0.002)
        await sender.flush()
        say("flushed")


async def receive_topic(url: str, name: str, subscription: str, most: str) -> None:
    async with penstock.connect(url) as client:
        await receive(topic.receiver(client, name, subscription=subscription), int(most))


async def main(what: str, *given: str) -> None:
    if what == "receive-tcp":
        await receive(tcp.listen(given[0], "127.0.0.1", int(given[1])))
    elif what == "send-tcp":
        route, port, first, last, name = given
        await send(route, int(port), int(first), int(last), name)
    else:
        await receive_topic(*given)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
