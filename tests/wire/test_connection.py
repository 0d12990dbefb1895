"""Each side of a connection has a defined answer to every frame in every state, and to noise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headpond.model.errors import BadFrame, ProtocolError, UnknownFrame, VersionUnsupported
from headpond.wire.connection import (
    FROM_CLIENT,
    FROM_NODE,
    ClientSide,
    ConnectionFault,
    ConnectionState,
    NodeSide,
)
from headpond.wire.control.codec import CONTROL_TYPES, PROTOCOL_VERSION, decode_control, encode_control
from headpond.wire.control.greeting import Error, Hello, Welcome
from headpond.wire.control.operation import Control
from headpond.wire.frame import CONTROL_BYTES_MAX, Frame, FrameType, decode_at, encode
from tests.wire.samples import MESSAGES

HELLO = Hello([PROTOCOL_VERSION], "test")
WELCOME = Welcome(PROTOCOL_VERSION, "n", "s", 1, 1, 1)
LAST_ERROR = Error("stopping", "the node stops", "wait", True)
RAW = (FrameType.TITLE, FrameType.SEGMENT, FrameType.SNAPSHOT, FrameType.STAGE, FrameType.PEER)

SAMPLE: dict[int, bytes] = {CONTROL_TYPES[type(message)]: encode_control(message) for message in MESSAGES}
SAMPLE |= {kind: encode(kind, b"body") for kind in FrameType if kind < 16 or kind in RAW}
SAMPLE[FrameType.HELLO] = encode_control(HELLO)
SAMPLE[FrameType.WELCOME] = encode_control(WELCOME)
SAMPLE[FrameType.ERROR] = encode_control(LAST_ERROR)

Side = NodeSide | ClientSide


def node_side() -> NodeSide:
    return NodeSide(node="n", software="s", window_bytes_max=1)


def client_side() -> ClientSide:
    side = ClientSide(client="test")
    side.data_to_send()
    return side


def open_node() -> NodeSide:
    side = node_side()
    side.receive(SAMPLE[FrameType.HELLO])
    side.data_to_send()
    return side


def open_client() -> ClientSide:
    side = client_side()
    side.receive(SAMPLE[FrameType.WELCOME])
    return side


def closed(make: Callable[[], Side]) -> Side:
    side = make()
    side.receive(b"\xff" * 20)
    side.data_to_send()
    return side


def last_error(side: Side) -> Error:
    (data,) = side.data_to_send()
    frame = decode_at(data, 0, CONTROL_BYTES_MAX)
    assert frame is not None
    message = decode_control(frame.type, frame.body)
    assert isinstance(message, Error)
    return message


def test_a_greeting_opens_both_sides() -> None:
    client, node = ClientSide(client="test", token="t"), node_side()
    (hello,) = node.receive(b"".join(client.data_to_send()))
    assert hello == Hello([PROTOCOL_VERSION], "test", "t")
    (welcome,) = client.receive(b"".join(node.data_to_send()))
    assert isinstance(welcome, Welcome)
    assert (welcome.node, welcome.software, welcome.window_bytes_max) == ("n", "s", 1)
    assert (client.state, node.state) == (ConnectionState.OPEN, ConnectionState.OPEN)


@pytest.mark.parametrize("kind", list(FrameType), ids=lambda kind: kind.name)
def test_a_node_that_waits_for_a_greeting_takes_only_hello(kind: FrameType) -> None:
    side = node_side()
    (event,) = side.receive(SAMPLE[kind])
    if kind is FrameType.HELLO:
        assert event == HELLO
        assert side.state is ConnectionState.OPEN
        return
    assert isinstance(event, ConnectionFault)
    assert isinstance(event.error, ProtocolError if kind in FROM_CLIENT else UnknownFrame)
    assert side.state is ConnectionState.CLOSED
    assert last_error(side).code == event.error.code


@pytest.mark.parametrize("kind", list(FrameType), ids=lambda kind: kind.name)
def test_a_client_that_waits_for_a_greeting_takes_welcome_or_an_error(kind: FrameType) -> None:
    side = client_side()
    (event,) = side.receive(SAMPLE[kind])
    if kind is FrameType.WELCOME:
        assert event == WELCOME
        assert side.state is ConnectionState.OPEN
        return
    assert isinstance(event, ConnectionFault)
    if kind is FrameType.ERROR:
        assert event.error.code == "stopping"
    else:
        assert isinstance(event.error, ProtocolError if kind in FROM_NODE else UnknownFrame)
    assert side.state is ConnectionState.CLOSED
    assert side.data_to_send() == []


@pytest.mark.parametrize("kind", list(FrameType), ids=lambda kind: kind.name)
def test_an_open_node_takes_a_clients_frames_and_ends_at_any_other(kind: FrameType) -> None:
    side = open_node()
    (event,) = side.receive(SAMPLE[kind])
    if kind in FROM_CLIENT:
        assert isinstance(event, Frame if kind in RAW else Control)
        assert side.state is ConnectionState.OPEN
        return
    assert isinstance(event, ConnectionFault)
    assert isinstance(event.error, ProtocolError if kind is FrameType.HELLO else UnknownFrame)
    assert side.state is ConnectionState.CLOSED
    assert last_error(side).code == event.error.code


@pytest.mark.parametrize("kind", list(FrameType), ids=lambda kind: kind.name)
def test_an_open_client_takes_a_nodes_frames_and_ends_at_any_other(kind: FrameType) -> None:
    side = open_client()
    (event,) = side.receive(SAMPLE[kind])
    if kind in FROM_NODE and kind is not FrameType.ERROR:
        assert isinstance(event, Frame if kind in RAW else Control)
        assert side.state is ConnectionState.OPEN
        return
    assert isinstance(event, ConnectionFault)
    if kind is FrameType.ERROR:
        assert event.error.code == "stopping"
    else:
        assert isinstance(event.error, ProtocolError if kind is FrameType.WELCOME else UnknownFrame)
    assert side.state is ConnectionState.CLOSED


@pytest.mark.parametrize("make", [node_side, client_side])
@pytest.mark.parametrize("kind", list(FrameType), ids=lambda kind: kind.name)
def test_a_closed_side_drops_everything(make: Callable[[], Side], kind: FrameType) -> None:
    side = closed(make)
    assert side.receive(SAMPLE[kind]) == []
    assert side.data_to_send() == []
    assert side.state is ConnectionState.CLOSED


@pytest.mark.parametrize("field", [{"request": 1}, {"consumer": 1}, {"block": b"b" * 16}])
def test_an_error_about_one_thing_leaves_the_connection_open(field: dict[str, int]) -> None:
    side = open_client()
    error = Error("gap", "m", "h", True, **field)  # type: ignore[arg-type]
    assert side.receive(encode_control(error)) == [error]
    assert side.state is ConnectionState.OPEN


def test_a_client_of_another_version_is_refused() -> None:
    side = node_side()
    (event,) = side.receive(encode_control(Hello([99], "test")))
    assert isinstance(event, ConnectionFault)
    assert isinstance(event.error, VersionUnsupported)
    assert last_error(side).code == "version-unsupported"


def test_a_client_offers_several_versions_and_the_node_picks_its_own() -> None:
    side = node_side()
    side.receive(encode_control(Hello([99, PROTOCOL_VERSION], "test")))
    assert side.state is ConnectionState.OPEN


def test_a_client_leaves_a_node_that_picks_a_version_it_did_not_offer() -> None:
    side = client_side()
    (event,) = side.receive(encode_control(Welcome(99, "n", "s", 1, 1, 1)))
    assert isinstance(event, ConnectionFault)
    assert isinstance(event.error, VersionUnsupported)


def test_events_before_a_fault_are_returned_with_it() -> None:
    side = open_node()
    ping = SAMPLE[FrameType.PING]
    first, second, fault = side.receive(ping + SAMPLE[FrameType.SEGMENT] + SAMPLE[FrameType.HELLO] + ping)
    assert isinstance(first, Control)
    assert isinstance(second, Frame)
    assert isinstance(fault, ConnectionFault)


def test_a_refusal_is_sent_once() -> None:
    side = open_node()
    side.refuse(BadFrame("why"))
    side.refuse(BadFrame("again"))
    assert last_error(side).message == "why"
    assert side.receive(SAMPLE[FrameType.PING]) == []


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", bytes.fromhex("160301020001000100fc0303"), b"\x00" * 64],
    ids=["http", "tls", "zeros"],
)
def test_another_protocol_is_answered_with_a_reason(noise: bytes) -> None:
    side = node_side()
    (event,) = side.receive(noise)
    assert isinstance(event, ConnectionFault)
    assert isinstance(event.error, BadFrame)
    assert last_error(side).code == event.error.code
