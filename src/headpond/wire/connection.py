"""The state machine of a connection, one per side, without IO.

Feed it bytes and it returns events in order; ``data_to_send()`` returns the bytes to write. The states, and the
frames that each accepts:

====================  ===============================================  ==================
state                 the node's side takes                            the client's side takes
====================  ===============================================  ==================
GREETING              HELLO                                            WELCOME, ERROR
OPEN                  the client's frames (``FROM_CLIENT``)            the node's (``FROM_NODE``)
CLOSED                nothing: bytes are dropped                       nothing
====================  ===============================================  ==================

An unexpected frame, a wrong checksum or a size over the limit ends the connection, because the stream can no
longer be trusted. The node's side gives the reason in a last ERROR frame. A REQUEST, SUBSCRIBE or SETTLE with a
field beyond its bounds (model/bounds.py) is a ``Misfit``: the node refuses it by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from headpond.model.errors import BadFrame, HeadpondError, NodeStopping, ProtocolError, VersionUnsupported
from headpond.wire.control.codec import (
    CLIENT_MESSAGES,
    CONTROL_TYPES,
    NODE_MESSAGES,
    PROTOCOL_VERSION,
    Misfit,
    decode_control,
    encode_control,
    read_misfit,
)
from headpond.wire.control.greeting import Error, Hello, Welcome
from headpond.wire.control.operation import Control
from headpond.wire.control.staging import STAGE_FRAME_BYTES_MAX
from headpond.wire.frame import (
    CONTROL_BYTES_MAX,
    FILE_BODY_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    TITLE_BYTES_MAX,
    Frame,
    FrameReader,
    FrameType,
)

FROM_CLIENT: Final[Mapping[int, int]] = {
    FrameType.TITLE: TITLE_BYTES_MAX,
    FrameType.SEGMENT: SEGMENT_BYTES_MAX,
    FrameType.SNAPSHOT: SEGMENT_BYTES_MAX,
    **{CONTROL_TYPES[kind]: CONTROL_BYTES_MAX for kind in CLIENT_MESSAGES},
    FrameType.STAGE: STAGE_FRAME_BYTES_MAX,
    FrameType.PEER: FILE_BODY_BYTES_MAX,
}
"""Frames that a client may send after WELCOME, with the largest body of each."""

FROM_NODE: Final[Mapping[int, int]] = {
    FrameType.SEGMENT: FILE_BODY_BYTES_MAX,
    **{CONTROL_TYPES[kind]: CONTROL_BYTES_MAX for kind in NODE_MESSAGES},
    FrameType.RESPONSE: RESPONSE_BYTES_MAX,
}
"""Frames that a node may send after WELCOME, with the largest body of each."""

_RAW = frozenset((FrameType.TITLE, FrameType.SEGMENT, FrameType.SNAPSHOT, FrameType.STAGE, FrameType.PEER))


class ConnectionState(Enum):
    GREETING = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    """The connection ended, by this side or by an ERROR from the other."""

    error: HeadpondError


Event = Frame | Control | Misfit | ConnectionFault
"""TITLE, SEGMENT, SNAPSHOT, STAGE and PEER are frames, other messages structs, the end a ConnectionFault."""


class _Side:
    """What both sides share: reading frames, and ending the connection on a fault."""

    def __init__(self, greeting: Mapping[int, int], traffic: Mapping[int, int]) -> None:
        self.state = ConnectionState.GREETING
        self._traffic = traffic
        self.reader = FrameReader({**greeting, **traffic})
        self._out: list[bytes] = []

    def data_to_send(self) -> list[bytes]:
        """The bytes to write, in order; each is returned once."""
        out, self._out = self._out, []
        return out

    def receive(self, data: bytes) -> list[Event]:
        """The events that ``data`` completes; the last may be a ``ConnectionFault``."""
        if self.state is ConnectionState.CLOSED:
            return []
        events: list[Event] = []
        try:
            for frame in self.reader.feed(data):
                if self.state is ConnectionState.OPEN:
                    if frame.type not in self._traffic:
                        raise ProtocolError(f"a {FrameType(frame.type).name} frame in an open connection")
                    events.append(frame if frame.type in _RAW else self._decode(frame))
                elif (event := self._read_greeting(frame)) is not None:
                    events.append(event)
            if self.reader.fault is not None:
                raise self.reader.fault
        except HeadpondError as error:
            events.append(self._end(error))
        return events

    def _read_greeting(self, frame: Frame) -> Event | None:
        if frame.type in self._traffic and frame.type != FrameType.ERROR:
            raise ProtocolError(f"a {FrameType(frame.type).name} frame before the greeting")
        return self._on_greeting(decode_control(frame.type, frame.body))

    def _decode(self, frame: Frame) -> Control | Misfit:
        raise AssertionError("each side decodes in its own way")

    def _on_greeting(self, message: Control) -> Event | None:
        raise AssertionError("each side greets in its own way")

    def _end(self, error: HeadpondError) -> ConnectionFault:
        self.state = ConnectionState.CLOSED
        self.reader.clear()
        return ConnectionFault(error)


class NodeSide(_Side):
    """The node's side: waits for HELLO, answers WELCOME or ERROR."""

    def __init__(
        self,
        *,
        node: str,
        software: str,
        window_bytes_max: int,
        successor: str = "",
        group: str = "",
        greet: Callable[[Hello], None] = lambda hello: None,
    ) -> None:
        """``greet`` raises an error to refuse a client, which gets that error instead of WELCOME."""
        super().__init__({FrameType.HELLO: CONTROL_BYTES_MAX}, FROM_CLIENT)
        limits = (SEGMENT_BYTES_MAX, CONTROL_BYTES_MAX, window_bytes_max)
        self._welcome = Welcome(PROTOCOL_VERSION, node, software, *limits, successor, group)
        self._greet = greet

    def _on_greeting(self, message: Control) -> Event | None:
        assert isinstance(message, Hello), "only HELLO passes the reader here"
        if PROTOCOL_VERSION not in message.versions:
            raise VersionUnsupported(
                f"the client speaks versions {message.versions[:8]}, this node {PROTOCOL_VERSION}"
            )
        self._greet(message)
        self.state = ConnectionState.OPEN
        self._out.append(encode_control(self._welcome))
        return message

    def _decode(self, frame: Frame) -> Control | Misfit:
        """An invalid request or consumer is refused by itself; the connection stays open."""
        try:
            return decode_control(frame.type, frame.body)
        except BadFrame:
            if (misfit := read_misfit(frame.type, frame.body)) is None:
                raise
            return misfit

    def refuse(self, error: HeadpondError) -> None:
        """Queues an ERROR as the last frame and closes this side."""
        if self.state is not ConnectionState.CLOSED:
            self._end(error)

    def _end(self, error: HeadpondError) -> ConnectionFault:
        successor = error.successor if isinstance(error, NodeStopping) else ""
        last = Error(error.code, error.message, error.hint, error.retryable, successor=successor)
        self._out.append(encode_control(last))
        return super()._end(error)


class ClientSide(_Side):
    """The client's side: sends HELLO, waits for WELCOME."""

    def __init__(self, *, client: str, token: str | None = None) -> None:
        super().__init__({FrameType.WELCOME: CONTROL_BYTES_MAX}, FROM_NODE)
        self._out.append(encode_control(Hello([PROTOCOL_VERSION], client, token)))

    def _decode(self, frame: Frame) -> Control | Misfit:
        message = decode_control(frame.type, frame.body)
        if type(message) is Error:
            _raise_if_final(message)
        return message

    def _on_greeting(self, message: Control) -> Event | None:
        if isinstance(message, Error):
            _raise_if_final(message)
            return message
        assert isinstance(message, Welcome), "only WELCOME and ERROR pass the reader here"
        if message.version != PROTOCOL_VERSION:
            raise VersionUnsupported(f"the node chose version {message.version}")
        self.state = ConnectionState.OPEN
        return message


def _raise_if_final(error: Error) -> None:
    """Raises an error that refuses the connection itself, not a request, a consumer or a block."""
    if (error.request, error.consumer, error.block) == (None, None, None):
        raise error.as_exception()
