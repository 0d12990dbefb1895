from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import headpond
from headpond.client.connect import Client
from headpond.client.link.dialling import Backoff
from headpond.client.link.link import LinkOptions
from headpond.model.errors import (
    BadFrame,
    Closed,
    ConnectionLost,
    TimedOut,
    TopicNotFound,
    Unavailable,
    UnknownFrame,
    VersionUnsupported,
)
from headpond.wire.connection import NodeSide
from headpond.wire.control.catalog import DeleteTopic, ListTopics
from headpond.wire.control.codec import Request, Response, encode_control
from headpond.wire.control.consuming import Unsubscribe
from headpond.wire.control.greeting import Error, Ping
from headpond.wire.control.operation import Control
from tests.client.peer import Peer, listening, serving, until


async def closed_port() -> int:
    """A free port without a listener."""
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_every_address_that_was_tried_is_named_with_its_reason() -> None:
    first, second = await closed_port(), await closed_port()
    with pytest.raises(Unavailable) as caught:
        async with headpond.connect(f"headpond://127.0.0.1:{first},127.0.0.1:{second}"):
            pass
    assert f"127.0.0.1:{first}" in caught.value.message
    assert f"127.0.0.1:{second}" in caught.value.message
    assert "efused" in caught.value.message
    assert caught.value.hint


async def test_the_next_address_serves_where_the_first_does_not() -> None:
    nobody = await closed_port()
    async with (
        serving() as peer,
        headpond.connect([f"headpond://127.0.0.1:{nobody}", peer.url]) as client,
    ):
        assert client.connected


async def test_a_peer_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(say_nothing) as url:
        with pytest.raises(Unavailable, match=f"{url.removeprefix('headpond://')}: no answer within"):
            await headpond.connect(url, connect_timeout=0.05)


@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 4, BadFrame),
        (encode_control(Error("version-unsupported", "only 9", "", False)), VersionUnsupported),
    ],
)
async def test_a_refusal_at_the_door_is_raised_as_what_it_is(
    greeting: bytes, error: type[headpond.HeadpondError]
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)

    async with listening(greet) as url:
        with pytest.raises(error):
            await headpond.connect(url)


def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(Closed):
        headpond.connect("headpond://127.0.0.1:1").producer("t")


async def test_a_question_is_asked_again_after_a_loss_and_a_change_is_not() -> None:
    async with serving() as peer, quick(peer) as client:
        first = await peer.conversation()
        asked = asyncio.create_task(client.admin.list_topics())
        changed = asyncio.create_task(client.admin.delete_topic("t"))
        await first.next(Request)
        await first.next(Request)
        first.abort()
        second = await peer.conversation()
        request = await second.next(Request)
        assert isinstance(request.operation, ListTopics)
        second.say(Response(request.number, []))
        assert await asked == []
        with pytest.raises(ConnectionLost):
            await changed


async def test_an_error_of_a_request_is_raised_where_it_was_asked() -> None:
    async with serving() as peer, quick(peer) as client:
        conversation = await peer.conversation()
        asked = asyncio.create_task(client.admin.delete_topic("t"))
        request = await conversation.next(Request)
        assert request.operation == DeleteTopic("default/default/default/t")
        conversation.say(Error("topic-not-found", "no t", "make one", False, request=request.number))
        with pytest.raises(TopicNotFound, match="no t") as caught:
            await asked
        assert caught.value.hint == "make one"


async def test_a_node_that_falls_silent_is_left_for_a_new_connection() -> None:
    arrived: asyncio.Queue[None] = asyncio.Queue()

    async def greet_then_sulk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = NodeSide(node="n", software="s", window_bytes_max=2**20)
        side.receive(await reader.read(1000))
        writer.writelines(side.data_to_send())
        arrived.put_nowait(None)

    async with (
        listening(greet_then_sulk) as url,
        headpond.connect(url, backoff=Backoff(0.001, 0.001), ping_after=0.02, dead_after=0.06),
    ):
        await arrived.get()
        await arrived.get()


async def test_pings_keep_an_idle_connection() -> None:
    async with serving() as peer, headpond.connect(peer.url, ping_after=0.01, dead_after=0.2) as client:
        await asyncio.sleep(0.4)
        assert client.connected
        assert client.link.reconnects == 0


async def test_noise_in_mid_conversation_ends_that_connection_only() -> None:
    async with serving() as peer, quick(peer) as client:
        first = await peer.conversation()
        first.write(b"\xff" * 64)
        await peer.conversation()
        await client.link.wait_up()
        assert client.link.reconnects == 1


async def test_closing_the_client_ends_what_waits_for_a_node_that_is_away() -> None:
    async with serving() as peer:
        client = await quick(peer, min_s=60.0, random=1.0)
        conversation = await peer.conversation()
        waiting = asyncio.create_task(client.admin.list_topics())
        await conversation.next(Request)
        conversation.abort()
        await until(lambda: not client.connected)
        await client.close()
        with pytest.raises(Closed):
            await waiting


def test_backoff_grows_to_its_maximum_under_full_jitter() -> None:
    most = Backoff(0.05, 5.0, random=lambda: 1.0)
    assert [most.delay_s(attempt) for attempt in (0, 1, 2, 6, 7, 10_000)] == [0.05, 0.1, 0.2, 3.2, 5.0, 5.0]
    assert Backoff(0.05, 5.0, random=lambda: 0.0).delay_s(9) == 0.0


async def test_a_request_is_not_awaited_for_ever() -> None:
    async with serving() as peer, quick(peer) as client:
        with pytest.raises(TimedOut):
            await client.link.request(ListTopics(), timeout_s=0.02)


def greeting_then(*last: Control) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A node that sends WELCOME and another frame at once, and then closes."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = NodeSide(node="n", software="s", window_bytes_max=2**20)
        side.receive(await reader.read(1000))
        writer.write(b"".join([*side.data_to_send(), *map(encode_control, last)]))
        writer.close()

    return greet


FAREWELL = (Unsubscribe(1),)
"""A frame that a node may not send: the client closes the connection when it reads it."""


async def test_a_welcome_that_is_taken_back_at_once_is_no_connection() -> None:
    async with listening(greeting_then(*FAREWELL)) as url:
        with pytest.raises(UnknownFrame):
            await headpond.connect(url)


async def test_a_link_keeps_trying_after_a_node_took_its_welcome_back() -> None:
    greetings = iter([(), FAREWELL])

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (last := next(greetings, None)) is not None:
            await greeting_then(*last)(reader, writer)
            return
        side = NodeSide(node="n", software="s", window_bytes_max=2**20)
        while data := await reader.read(1000):
            for event in side.receive(data):
                if isinstance(event, Request):
                    writer.write(encode_control(Response(event.number, [])))
            writer.writelines(side.data_to_send())

    async with (
        listening(greet) as url,
        headpond.connect(url, backoff=Backoff(0.001, 0.001)) as client,
        asyncio.timeout(10),
    ):
        await until(lambda: not client.connected)
        assert await client.admin.list_topics() == []


class RecordingBackoff(Backoff):
    """Records the attempts, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[int] = []

    def delay_s(self, attempt: int) -> float:
        self.attempts.append(attempt)
        return 0.0


@pytest.mark.parametrize(("steady_after_s", "attempts"), [(60.0, [0, 1, 2, 3]), (0.0, [0, 0, 0, 0])])
async def test_only_a_connection_that_lasted_makes_the_next_loss_the_first_again(
    steady_after_s: float, attempts: list[int]
) -> None:
    backoff = RecordingBackoff()
    options = LinkOptions(backoff=backoff, steady_after_s=steady_after_s)
    async with listening(greeting_then()) as url, Client(url, None, "c", options):
        await until(lambda: len(backoff.attempts) >= 4)
    assert backoff.attempts[:4] == attempts


async def test_nothing_is_written_to_a_transport_that_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as peer, quick(peer) as client:
        connection = client.link._connection
        assert connection is not None
        assert connection._transport is not None
        connection._transport.abort()
        for number in range(20):
            client.link.send(Ping(number))
        await until(lambda: connection.ended is not None)
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []


def quick(peer: Peer, min_s: float = 0.001, random: float = 0.5) -> headpond.Client:
    return headpond.connect(peer.url, backoff=Backoff(min_s, min_s, random=lambda: random))
