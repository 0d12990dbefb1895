"""The part of the conversation that begins and ends it: HELLO, WELCOME, and ERROR."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import Block, ByteCount, Count, Name, Number, Text, Word
from headpond.model.errors import HeadpondError, NodeStopping, from_code


class Control(msgspec.Struct, array_like=True, frozen=True):
    """The base of all conversation frames."""


LongText = Annotated[str, msgspec.Meta(max_length=64 * 1024)]


class Hello(Control, frozen=True):
    """The client's first frame."""

    versions: Annotated[list[Count], msgspec.Meta(max_length=64)]
    client: Text
    token: LongText | None = None

    def __repr__(self) -> str:
        """Without the token, which is a secret."""
        shown = "None" if self.token is None else "'…'"
        return f"Hello(versions={self.versions!r}, client={self.client!r}, token={shown})"


class Welcome(Control, frozen=True):
    """The node's answer: the version both will speak, who the node is, and its limits."""

    version: Count
    node: Word
    software: Name
    segment_bytes_max: ByteCount
    control_bytes_max: ByteCount
    window_bytes_max: ByteCount
    """How many bytes of unacknowledged segments the node takes from one connection before it stops reading."""
    successor: Text = ""
    """The URL of the node that goes on in its place when it stops, if it names one."""


class Error(Control, frozen=True):
    """Something was refused. With no reference it concerns the connection, which then closes."""

    code: Word
    message: LongText
    hint: LongText
    retryable: bool
    request: Number | None = None
    consumer: Number | None = None
    block: Block | None = None
    successor: Text = ""
    """Of a node that stops: the URL of the one that goes on in its place."""

    def as_exception(self) -> HeadpondError:
        error = from_code(self.code, self.message, self.hint)
        if isinstance(error, NodeStopping):
            error.successor = self.successor
        return error


class Ping(Control, frozen=True):
    number: Number


class Pong(Control, frozen=True):
    number: Number
