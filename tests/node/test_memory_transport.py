"""A connection in memory: bytes go over in order, and each end stops its writer as a socket does."""

from __future__ import annotations

import asyncio
from typing import cast

from headpond.node.memory_transport import HIGH_BYTES, MemoryTransport, connect_in_memory


class End(asyncio.Protocol):
    """Notes what happens to it."""

    transport: MemoryTransport

    def __init__(self) -> None:
        self.notes: list[str | bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(MemoryTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.notes.append(data)

    def pause_writing(self) -> None:
        self.notes.append("pause")

    def resume_writing(self) -> None:
        self.notes.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.notes.append("lost")


def ends() -> tuple[End, End]:
    client, node = End(), End()
    connect_in_memory(client, node)
    return client, node


async def test_the_nodes_bytes_wait_for_the_next_turn_and_the_clients_do_not() -> None:
    client, node = ends()
    client.transport.write(b"ask")
    assert node.notes == [b"ask"]
    node.transport.writelines([b"an", b"swer"])
    node.transport.write(b"!")
    assert client.notes == []
    await asyncio.sleep(0)
    assert client.notes == [b"answer!"]


async def test_bytes_for_an_end_that_does_not_read_wait_in_order_and_stop_the_writer() -> None:
    client, node = ends()
    node.transport.pause_reading()
    client.transport.write(b"a")
    client.transport.write(b"b" * HIGH_BYTES)
    await asyncio.sleep(0)
    assert (node.notes, client.notes) == ([], ["pause"])
    assert client.transport.get_write_buffer_size() == HIGH_BYTES + 1
    node.transport.resume_reading()
    client.transport.write(b"c")
    await asyncio.sleep(0)
    assert node.notes == [b"a" + b"b" * HIGH_BYTES + b"c"]
    assert client.notes == ["pause", "resume"]


async def test_an_end_that_closes_is_heard_to_its_last_byte_and_one_that_aborts_is_not() -> None:
    client, node = ends()
    node.transport.write(b"goodbye")
    node.transport.close()
    client.transport.write(b"too late")
    await asyncio.sleep(0)
    assert (client.notes, node.notes) == ([b"goodbye", "lost"], ["lost"])
    client, node = ends()
    node.transport.write(b"goodbye")
    node.transport.abort()
    await asyncio.sleep(0)
    assert (client.notes, node.notes) == (["lost"], ["lost"])


async def test_the_end_of_a_connection_ends_a_wait_for_its_reader() -> None:
    client, node = ends()
    node.transport.pause_reading()
    waiting = asyncio.ensure_future(node.transport.wait_reading())
    await asyncio.sleep(0)
    assert not waiting.done()
    client.transport.close()
    await asyncio.wait_for(waiting, 1)
