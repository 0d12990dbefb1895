"""A client made by hand: the test chooses every byte."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from headpond.model.errors import HeadpondError
from headpond.wire.connection import ClientSide, ConnectionFault, Event
from headpond.wire.control.codec import Operation, Request, Response, encode_control
from headpond.wire.control.greeting import Error, Welcome
from headpond.wire.control.operation import Control
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.title import Title, encode_title

Kind = TypeVar("Kind", bound=Event)

WAIT_S_MAX = 20.0


class RawClient:
    """A blocking socket with the client's half of the conversation; ``greet=False`` sends no HELLO."""

    def __init__(self, address: tuple[str, int], *, greet: bool = True, token: str | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=WAIT_S_MAX)
        self._side = ClientSide(client="raw", token=token)
        self._events: list[Event] = []
        self._requests = 0
        self.closed = False
        if greet:
            self.send(*self._side.data_to_send())
            self.until(Welcome)

    def send(self, *pieces: bytes | Control) -> None:
        """Writes bytes, and messages as frames. A connection closed by the node is not an error here."""
        data = b"".join(piece if isinstance(piece, bytes) else encode_control(piece) for piece in pieces)
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def next_event(self) -> Event | None:
        """The node's next event; None after it has closed the connection."""
        deadline = time.monotonic() + WAIT_S_MAX
        while not self._events:
            if self.closed:
                return None
            assert time.monotonic() < deadline, "the node said nothing"
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.closed = True
                return None
            self._events += self._side.receive(data)
        return self._events.pop(0)

    def until(self, kind: type[Kind]) -> Kind:
        """The next event of a kind; skips others, and fails if the connection ends."""
        while (event := self.next_event()) is not None:
            if isinstance(event, kind):
                return event
            assert not isinstance(event, ConnectionFault), (
                f"the node ended it: {event.error.code}: {event.error}"
            )
        raise AssertionError(f"the node closed before any {kind.__name__}")

    def end(self) -> str:
        """Reads until the node has closed the connection; returns its error code, or ''."""
        code = ""
        while (event := self.next_event()) is not None:
            if isinstance(event, ConnectionFault):
                code = event.error.code
            elif isinstance(event, Error):
                code = event.code
        return code

    def request(self, operation: Operation) -> Any:
        """The result of a request; raises its error."""
        self._requests += 1
        self.send(Request(self._requests, operation))
        while True:
            event = self.next_event()
            if isinstance(event, Response) and event.number == self._requests:
                return event.result
            if isinstance(event, Error) and event.request == self._requests:
                raise event.as_exception()
            if isinstance(event, ConnectionFault):
                raise event.error
            if event is None:
                raise HeadpondError("the node closed the connection")

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def title_frame(block: bytes, uuid: bytes, *, power: int = 0, topic: str = "t", **fields: Any) -> bytes:
    return encode(FrameType.TITLE, encode_title(block, power, Title(topic, uuid, **fields)))


def segment_frame(values: list[bytes], *, shard: int = 0, segment: int = 0) -> bytes:
    return encode(FrameType.SEGMENT, segment_body(values), shard=shard, segment=segment)


def encode_chunk(stage: bytes, shard: int, number: int, segment: bytes) -> bytes:
    return encode(FrameType.STAGE, stage + segment, shard=shard, segment=number)


def encode_peer(topic: bytes, segment: int, record: bytes) -> bytes:
    return encode(FrameType.PEER, topic + record, segment=segment)


def segment_body(values: list[bytes]) -> bytes:
    batch: pa.RecordBatch = rows_to_batch(list(values), None, None, None, [1_700_000_000_000_000] * len(values))
    return encode_plain(batch)
