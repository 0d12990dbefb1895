"""One end of a pipe in its own process, for tests that kill it. It reports on stdout.

receive-tcp ROUTE PORT                    listens; prints each payload when it is done with it
send-tcp ROUTE PORT FIRST LAST NAME       sends numbers, prints "sent N" now and then and "flushed" at the end
store-tcp ROUTE PORT FOLDER               listens with a store, and reads nothing
relay-tcp ROUTE PORT ROUTE PORT [FOLDER]  a relay from the one to the other
receive-topic URL TOPIC SUBSCRIPTION N    prints each payload when it is done with it; after N it does nothing
"""

from __future__ import annotations

import asyncio
import sys

import headpond
from headpond.pipes.drivers import tcp, topic
from headpond.pipes.drivers.receiver import PipeReceiver
from headpond.pipes.drivers.relay import relay


def say(text: str) -> None:
    print(text, flush=True)


async def receive(receiver: PipeReceiver, most: int = 1 << 62) -> None:
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
    async with headpond.connect(url) as client:
        await receive(topic.receiver(client, name, subscription=subscription), int(most))


async def main(what: str, *given: str) -> None:
    if what == "receive-tcp":
        await receive(tcp.listen(given[0], "127.0.0.1", int(given[1])))
    elif what == "send-tcp":
        route, port, first, last, name = given
        await send(route, int(port), int(first), int(last), name)
    elif what == "store-tcp":
        async with tcp.listen(given[0], "127.0.0.1", int(given[1]), store=given[2]):
            await asyncio.Event().wait()
    elif what == "relay-tcp":
        route, port, next_route, next_port, *folder = given
        receiver = tcp.listen(route, "127.0.0.1", int(port), store=folder[0] if folder else None)
        await relay(receiver, tcp.connect(next_route, "127.0.0.1", int(next_port)))
    else:
        await receive_topic(*given)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
