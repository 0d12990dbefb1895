"""The bytes of a pipe over TCP: frames of ``wire/frame.py``, of three types.

========  ================  ==========================================================================
type      from              body
========  ================  ==========================================================================
64 HELLO  sender            msgpack array: version, shape of the route, the sender's name, its session
64 HELLO  receiver          the same of the receiver, with no name; then the highest session of this sender
                            that it knows. If that is above the sender's own, it is refused: ERROR follows
18 ERROR  receiver          why it refuses (``wire/control.py``); it then closes
65 PACKET both              one packet (``pipes/packet.py``)
========  ================  ==========================================================================

The sender greets first and sends no packet before it is greeted. The shape is what both sides must have in
common: the pipes, from the innermost out, with every setting on which the promise depends. Anything that is not
such a frame, with the right checksum and within its limit, ends the connection. A PACKET frame that holds no
packet is counted and passed over: the timers of the pipe make it good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from headpond.calculus.route import Route, Stage
from headpond.model.errors import BadFrame
from headpond.pipes.packet import Packet, encode_packet
from headpond.wire.frame import CONTROL_BYTES_MAX, SEGMENT_BYTES_MAX, FrameType, encode

VERSION = 1
NAME_MAX = 200
PIECE_BYTES = 256 * 1024
"""Payloads go out in packets of about this size."""


class PipeFrame(IntEnum):
    """Types of their own, so that a pipe and a node that meet by mistake know it at once."""

    HELLO = 64
    PACKET = 65


FROM_STRANGER: Mapping[int, int] = {PipeFrame.HELLO: 4096}
"""What a receiver takes before it was greeted."""
FROM_SENDER: Mapping[int, int] = {PipeFrame.PACKET: SEGMENT_BYTES_MAX}
FROM_RECEIVER: Mapping[int, int] = {
    PipeFrame.HELLO: 4096,
    PipeFrame.PACKET: SEGMENT_BYTES_MAX,
    FrameType.ERROR: CONTROL_BYTES_MAX,
}


class Hello(msgspec.Struct, array_like=True, frozen=True):
    version: int
    shape: str
    name: str
    epoch: int
    known: int = 0


_hello_decoder = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    return encode(PipeFrame.HELLO, msgspec.msgpack.encode(hello))


def decode_hello(body: bytes) -> Hello:
    try:
        hello = _hello_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"a greeting that cannot be read: {error}") from None
    if len(hello.name) > NAME_MAX or not all(0 <= each < 1 << 63 for each in (hello.epoch, hello.known)):
        raise BadFrame("a greeting with a name or a session out of bounds")
    return hello


def shape_of(route: Route) -> str:
    """What both sides of a pipe must have in common: all but the settings that are one side's own business."""
    return str(Route(tuple(_shared(stage) for stage in route.stages)))


def _shared(stage: Stage) -> Stage:
    local = {each.name: each.default for each in stage.declaration.parameters if each.local}
    return Stage(stage.declaration, {**stage.settings, **local})


def encode_packets(packets: Sequence[Packet]) -> list[bytes]:
    """Frames for packets; a packet with many payloads becomes several."""
    return [encode(PipeFrame.PACKET, encode_packet(piece)) for packet in packets for piece in _pieces(packet)]


def _pieces(packet: Packet) -> Iterator[Packet]:
    payloads = packet.payloads
    if payloads is None:
        yield packet
        return
    start = size = 0
    for at, payload in enumerate(payloads):
        length = payload_bytes(payload)
        if at > start and size + length > PIECE_BYTES:
            yield packet._replace(numbers=packet.numbers[start:at], payloads=payloads[start:at])
            start, size = at, 0
        size += length
    yield packet._replace(numbers=packet.numbers[start:], payloads=payloads[start:])


def payload_bytes(payload: Any) -> int:
    """The size of what is in an envelope, however deep."""
    while not isinstance(payload, bytes):
        payload = payload[2]
    return len(payload)
