"""Messages that open, probe and end a conversation: HELLO, WELCOME, PING, PONG and ERROR."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import Block, ByteCount, Count, Name, Number, Text, Word
from headpond.model.errors import HeadpondError, NodeStopping, WrongGroup, from_code
from headpond.wire.control.operation import Control

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
    """The node's answer: the version that both sides use, the node's id, and its limits."""

    version: Count
    node: Word
    software: Name
    segment_bytes_max: ByteCount
    control_bytes_max: ByteCount
    window_bytes_max: ByteCount
    """Bytes of unacknowledged segments after which the node stops reading from a connection."""
    successor: Text = ""
    """The URL of the node that replaces it when it stops, if it names one."""
    group: Text = ""
    """In a cluster, the group of nodes with the same content: to a client, they are one node."""


class Error(Control, frozen=True):
    """The node refused a request, a consumer or a block; or else the connection, which then closes."""

    code: Word
    message: LongText
    hint: LongText
    retryable: bool
    request: Number | None = None
    consumer: Number | None = None
    block: Block | None = None
    successor: Text = ""
    """From a node that stops: the URL of the node that replaces it; for ``wrong-group``: of the other group."""

    def as_exception(self) -> HeadpondError:
        error = from_code(self.code, self.message, self.hint)
        if isinstance(error, NodeStopping | WrongGroup):
            error.successor = self.successor
        return error


class Ping(Control, frozen=True):
    number: Number


class Pong(Control, frozen=True):
    number: Number
