"""A relay leads new connections to where it then points, and copies bytes both ways until one side ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headpond.node.relay import Relay

BIG = b"tea" * 1_000_000


async def serve(name: bytes) -> asyncio.Server:
    """A server that answers with its name and what it read."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(await reader.readline())
        writer.write(name + await reader.readexactly(size))
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def ask(relay: Relay, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(relay.address.host, relay.address.port)
    try:
        writer.write(b"%d\n" % len(text) + text)
        return await reader.read()
    finally:
        writer.close()


def port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def test_it_leads_to_where_it_points() -> None:
    async def play() -> list[bytes]:
        async with (
            await serve(b"1 ") as first,
            await serve(b"2 ") as second,
            Relay("127.0.0.1", port(first)) as relay,
        ):
            answers = [await ask(relay, b"a")]
            relay.port = port(second)
            return [*answers, await ask(relay, BIG)]

    assert asyncio.run(play()) == [b"1 a", b"2 " + BIG]


def test_where_nothing_listens_it_ends_the_connection() -> None:
    async def play() -> bytes:
        async with Relay("127.0.0.1", 1) as relay:
            with suppress(ConnectionResetError):
                return await ask(relay, b"a")
        return b""

    assert asyncio.run(play()) == b""


def test_it_ends_open_connections_when_it_closes() -> None:
    async def play() -> bytes:
        waiting = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            waiting.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
            async with Relay("127.0.0.1", port(server)) as relay:
                reader, writer = await asyncio.open_connection(relay.address.host, relay.address.port)
                await waiting.wait()
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(play()) == b""
