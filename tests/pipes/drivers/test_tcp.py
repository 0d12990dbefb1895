"""A pipe over TCP: greetings, lost connections, noise on the port, and several senders."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from headpond.model.errors import (
    AddressInUse,
    BadRequest,
    RouteMismatch,
    SessionOver,
    Unavailable,
    UnknownFrame,
)
from headpond.pipes.calculus.route import parse_route
from headpond.pipes.drivers import tcp
from headpond.pipes.drivers import tcp as tcp_listener
from headpond.pipes.drivers.connection import (
    VERSION,
    PipeFrame,
    PipeHello,
    encode_hello,
    encode_packets,
    shape_of,
)
from headpond.pipes.drivers.end import new_epoch
from headpond.pipes.drivers.sender import PAYLOAD_BYTES_MAX
from headpond.pipes.machines.packet import Kind, Packet, decode_packet
from headpond.wire.frame import FrameReader, encode
from tests.client.peer import listening, until
from tests.client.test_connecting import closed_port
from tests.pipes.drivers.ends import QUICK, reading, send_in_bursts
from tests.pipes.drivers.mischief import LIMITS, proxy

ROUTE = "resend_many | dedup"


async def test_messages_sent_without_a_connection_arrive_when_it_is_back() -> None:
    async with (
        tcp.listen(ROUTE) as receiver,
        proxy(receiver.address) as between,
        tcp.connect(ROUTE, "127.0.0.1", between.port, backoff=QUICK) as sender,
        reading(receiver) as got,
    ):
        await send_in_bursts(sender, range(10))
        await sender.flush()
        home, between.target = between.target, ("127.0.0.1", await closed_port())
        between.cut()
        await send_in_bursts(sender, range(10, 500))
        assert len(got) == 10
        assert sender.stats.transmissions < 50, "it sends nothing more into a route that is away"
        between.target = home
        await sender.flush()
        await until(lambda: len(got) == 500)
        assert sorted(got) == list(range(500))
        assert sender.stats.reconnects >= 1


async def test_a_pipe_that_keeps_nothing_waits_for_the_route_rather_than_send_into_the_void() -> None:
    async with (
        tcp.listen("index") as receiver,
        proxy(receiver.address) as between,
        tcp.connect("index", "127.0.0.1", between.port, backoff=QUICK) as sender,
        reading(receiver) as got,
    ):
        await sender.send(b"1")
        await until(lambda: got == [1])
        home, between.target = between.target, ("127.0.0.1", await closed_port())
        between.cut()
        await until(lambda: not sender.connected)
        waiting = asyncio.create_task(sender.send(b"2"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        between.target = home
        await waiting
        await sender.send(b"3")
        await until(lambda: got == [1, 2, 3])


async def test_a_slow_reader_slows_the_sender_and_gets_everything_once() -> None:
    payload = bytes(64 * 1024)
    async with (
        tcp.listen("resend_many(window=2000)") as receiver,
        tcp.connect("resend_many(window=2000)", *receiver.address) as sender,
    ):
        sending = asyncio.create_task(sender.send_many([payload] * 1000))
        await until(lambda: receiver.stats.delivered >= 256)
        await asyncio.sleep(0.1)
        assert receiver.stats.delivered < 600
        for _ in range(1000):
            assert await receiver.receive() is not None
        await sending
        await sender.flush()


async def test_a_payload_as_large_as_may_be_arrives() -> None:
    payload = random.Random(1).randbytes(PAYLOAD_BYTES_MAX)
    async with tcp.listen(ROUTE) as receiver, tcp.connect(ROUTE, *receiver.address) as sender:
        await sender.send_many([payload, b"small"])
        assert [(await anext(receiver.items())).payload for _ in range(2)] == [payload, b"small"]


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        bytes(64),
        encode(PipeFrame.PACKET, b"before any greeting"),
        encode(PipeFrame.HELLO, b"\xc1 no msgpack"),
        encode_hello(PipeHello(VERSION, ROUTE.replace(" ", " "), "x" * 1000, 1)),
        encode_hello(PipeHello(VERSION, ROUTE, "twice", 1)) * 2,
        encode_hello(PipeHello(VERSION, ROUTE, "torn", 1))[:-1] + b"!",
    ],
    ids=["http", "zeros", "packet first", "bad hello", "long name", "two greetings", "bad checksum"],
)
async def test_noise_on_the_port_ends_that_connection_and_is_counted(noise: bytes) -> None:
    async with (
        tcp.listen(ROUTE) as receiver,
        tcp.connect(ROUTE, *receiver.address, name="good") as sender,
        reading(receiver) as got,
    ):
        reader, writer = await asyncio.open_connection(*receiver.address)
        writer.write(noise)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        await until(lambda: receiver.stats.faults == 1)
        await sender.send(b"1")
        await sender.flush()
        await until(lambda: got == [1])
        assert sender.stats.reconnects == 0


async def test_a_frame_without_a_packet_is_counted_and_the_connection_stays() -> None:
    async with tcp.listen("resend_many") as receiver, reading(receiver) as got:
        reader, writer = await asyncio.open_connection(*receiver.address)
        writer.write(encode_hello(PipeHello(VERSION, "resend_many", "raw", 5)))
        await reader.readexactly(1)
        writer.write(encode(PipeFrame.PACKET, b"no packet"))
        writer.writelines(encode_packets([Packet(Kind.DATA, 5, 0, range(2), [b"1", b"2"])]))
        await until(lambda: got == [1, 2])
        assert (receiver.stats.malformed, receiver.stats.faults) == (1, 0)
        writer.close()


@pytest.mark.parametrize(
    ("route", "payload"),
    [
        ("resend_many", (1, 2, b"3")),
        ("resend_many | dedup", (5, 0, (5, 0, b"3"))),
        ("resend_many | dedup(window=1)", (5, 2**64 - 1, b"3")),
        ("resend_many | continuous", (5, 2**64 - 1, b"3")),
        ("resend_many | sequential", (5, 2**64 - 1, b"3")),
        ("resend_many | index", (-1, 0, b"3")),
    ],
)
async def test_a_payload_in_a_wrong_envelope_is_counted_and_reaches_no_program(
    route: str, payload: object
) -> None:
    good: object = (5, 0, b"1") if "|" in route else b"1"
    async with tcp.listen(route) as receiver, reading(receiver) as got:
        reader, writer = await asyncio.open_connection(*receiver.address)
        writer.write(encode_hello(PipeHello(VERSION, shape_of(parse_route(route)), "raw", 5)))
        await reader.readexactly(1)
        for number, each in enumerate((good, payload)):
            writer.writelines(encode_packets([Packet(Kind.DATA, 5, 0, range(number, number + 1), [each])]))
        await until(lambda: receiver.stats.malformed == 1)
        assert got == [1]
        assert not writer.is_closing() and receiver.stats.faults == 0
        writer.close()


async def test_a_sender_that_meets_another_protocol_says_so() -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(speak_http) as url:
        with pytest.raises(UnknownFrame):
            await tcp.connect(ROUTE, "127.0.0.1", int(url.rpartition(":")[2]))


async def test_a_missing_listener_is_unavailable_after_the_timeout() -> None:
    with pytest.raises(Unavailable, match="no receiver at"):
        await tcp.connect(ROUTE, "127.0.0.1", await closed_port(), connect_timeout=0.1, backoff=QUICK)


async def test_a_sender_may_be_started_before_its_receiver() -> None:
    port = await closed_port()
    opening = asyncio.ensure_future(tcp.connect(ROUTE, "127.0.0.1", port, backoff=QUICK).open())
    await asyncio.sleep(0.05)
    async with tcp.listen(ROUTE, "127.0.0.1", port) as receiver, reading(receiver) as got:
        async with await opening as sender:
            await sender.send(b"1")
        assert got == [1]


async def test_ends_with_different_routes_refuse_each_other_by_name() -> None:
    async with tcp.listen("resend_many | dedup") as receiver:
        with pytest.raises(RouteMismatch, match=r"resend_many \| dedup"):
            await tcp.connect("resend_many | index", *receiver.address)
        # What is one side's own business may differ.
        own = "resend_many(buffer=3, timeout=50) | dedup(sessions=7)"
        async with tcp.connect(own, *receiver.address) as sender:
            await sender.send(b"1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("resend_many | dedup", "resend_many(window=8192) | dedup"),
        ("resend_many | dedup", "resend_many | dedup(window=16384)"),
        ("resend_many | dedup", "resend_many | dedup(by=index)"),
        ("resend_many", "resend_many(confirm=settled)"),
        ("continuous", "continuous(strict=false)"),
        ("resend | continuous(gaps=false)", "resend | continuous(gaps=false, queue=1)"),
        ("index", "index(strict=false)"),
        ("stream", "stream(commit=false)"),
    ],
)
async def test_ends_with_settings_that_change_the_promise_refuse_each_other(one: str, other: str) -> None:
    async with tcp.listen(one) as receiver:
        with pytest.raises(RouteMismatch):
            await tcp.connect(other, *receiver.address)


async def test_senders_with_different_names_do_not_disturb_each_other() -> None:
    async with tcp.listen("continuous") as receiver:
        async with (
            tcp.connect("continuous", *receiver.address, name="a") as a,
            tcp.connect("continuous", *receiver.address, name="b") as b,
        ):
            await asyncio.gather(
                a.send_many([b"a%d" % n for n in range(50)]), b.send_many([b"b%d" % n for n in range(50)])
            )
            got = [await anext(receiver.items()) for _ in range(100)]
        for name in ("a", "b"):
            mine = [item.payload.decode() for item in got if item.sender == name]
            assert mine == [f"{name}{n}" for n in range(50)]
        assert receiver.stats.senders == 2
        assert receiver.stats.sender_restarts == 0


async def test_a_later_session_of_a_name_ends_the_earlier_one_and_an_earlier_one_is_refused() -> None:
    async with tcp.listen("continuous") as receiver, reading(receiver) as got:
        zombie = await tcp.connect("continuous", *receiver.address, name="till", epoch=10, backoff=QUICK)
        await zombie.send_many([b"1", b"2"])
        await zombie.flush()
        async with tcp.connect("continuous", *receiver.address, name="till", epoch=11) as sender:
            await sender.send(b"3")
            await sender.flush()
            assert got == [1, 2, 3], "numbers count from the beginning in a new session"
            assert receiver.stats.sender_restarts == 1
            with pytest.raises(SessionOver):
                while True:
                    await zombie.send(b"99")
                    await asyncio.sleep(0.01)
            await zombie.close()
            with pytest.raises(SessionOver):
                await tcp.connect("continuous", *receiver.address, name="till", epoch=10)
        assert 99 not in got


async def test_a_sender_that_starts_again_and_again_is_never_refused() -> None:
    async with tcp.listen(ROUTE) as receiver, reading(receiver) as got:
        for session in range(150):
            async with tcp.connect(ROUTE, *receiver.address, epoch=session + 1) as sender:
                await sender.send(b"%d" % session)
        assert got == list(range(150))
        assert receiver.stats.sender_restarts >= 149
        assert (receiver.stats.senders, receiver.stats.refused) == (1, 0)


async def test_a_sender_whose_clock_went_back_starts_above_its_earlier_session() -> None:
    ahead = new_epoch() + 3_600_000_000
    async with tcp.listen(ROUTE) as receiver, reading(receiver) as got:
        async with tcp.connect(ROUTE, *receiver.address, name="till", epoch=ahead) as sender:
            await sender.send(b"1")
        async with tcp.connect(ROUTE, *receiver.address, name="till") as sender:
            await sender.send(b"2")
            assert sender.epoch == ahead + 1
        assert got == [1, 2]


async def test_a_session_that_was_numbered_by_hand_is_refused_with_the_number_to_use() -> None:
    async with tcp.listen(ROUTE) as receiver:
        async with tcp.connect(ROUTE, *receiver.address, name="till", epoch=10):
            pass
        with pytest.raises(SessionOver) as raised:
            await tcp.connect(ROUTE, *receiver.address, name="till", epoch=9)
        assert "epoch=11" in raised.value.hint


async def test_senders_that_left_make_room_for_others_the_longest_gone_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp_listener, "SENDERS_MAX", 3)
    async with tcp.listen(ROUTE) as receiver, reading(receiver) as got:
        async with tcp.connect(ROUTE, *receiver.address, name="stays") as stays:
            for number in range(20):
                async with tcp.connect(ROUTE, *receiver.address, name=f"guest-{number}") as guest:
                    await guest.send(b"%d" % number)
                await until(lambda number=number: len(got) == number + 1)  # type: ignore[misc]
            await stays.send(b"99")
            await stays.flush()
            assert stays.stats.reconnects == 0
        await until(lambda: len(got) == 21)
        assert (receiver.stats.senders, receiver.stats.delivered) == (21, 21)
        assert [notice.what for notice in receiver.notices] == ["retired"] * 18
        kept = [lane.name for lane in receiver._source.lanes]
        assert kept == ["stays", "guest-18", "guest-19"]


async def test_a_further_sender_is_refused_while_all_known_ones_are_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp_listener, "SENDERS_MAX", 1)
    async with (
        tcp.listen(ROUTE) as receiver,
        tcp.connect(ROUTE, *receiver.address, name="here"),
    ):
        with pytest.raises(Unavailable, match="are connected"):
            await tcp.connect(ROUTE, *receiver.address, name="late", connect_timeout=0.2, backoff=QUICK)


async def test_a_restarted_receiver_is_noticed_by_its_sender() -> None:
    async with tcp.listen("resend_many", epoch=1) as receiver, reading(receiver) as got:
        address = receiver.address
        sender = await tcp.connect("resend_many", *address, backoff=QUICK)
        await sender.send(b"1")
        await sender.flush()
        assert got == [1]
    async with tcp.listen("resend_many", *address, epoch=2) as receiver, reading(receiver) as got:
        await sender.send(b"2")
        await sender.flush()
        await until(lambda: got == [2])
        assert sender.stats.receiver_restarts == 1
        await sender.close()


async def test_a_port_that_is_taken_is_named() -> None:
    async with tcp.listen(ROUTE) as receiver:
        with pytest.raises(AddressInUse, match=str(receiver.address[1])):
            await tcp.listen(ROUTE, *receiver.address)


def test_arguments_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadRequest):
        tcp.connect(ROUTE, "127.0.0.1", 1, name="x" * 1000)
    with pytest.raises(BadRequest):
        tcp.listen("dedup | stream")
    for epoch in (-1, 2**63):
        with pytest.raises(BadRequest, match="epoch"):
            tcp.connect(ROUTE, "127.0.0.1", 1, epoch=epoch)
        with pytest.raises(BadRequest, match="epoch"):
            tcp.listen(ROUTE, epoch=epoch)


def test_packets_with_many_payloads_are_cut_into_frames_that_hold_them_all() -> None:
    payloads = [(1, number, bytes(1000)) for number in range(2000)]
    frames = encode_packets([Packet(Kind.DATA, 3, 0, range(5, 2005), payloads)])
    reader = FrameReader(LIMITS)
    packets = [decode_packet(frame.body) for piece in frames for frame in reader.feed(piece)]
    assert len(packets) > 5
    assert [number for packet in packets if packet for number in packet.numbers] == list(range(5, 2005))
    assert [tuple(each) for packet in packets if packet for each in packet.payloads or ()] == payloads
    assert max(map(len, frames)) < 300_000
