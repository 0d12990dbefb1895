"""Messages that open, probe and end a conversation: HELLO, WELCOME, PING, PONG and ERROR."""

from __future__ import annotations

from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec

from headpond.model.bounds import Block, ByteCount, Count, Name, Number, Text, Uuid, Word
from headpond.model.errors import HeadpondError, NodeStopping, from_code
from headpond.wire.control.rule import ADMIN, CONSUME, UNDECLARED, Rule


class Control(msgspec.Struct, array_like=True, frozen=True):
    """The base of all messages: a frame's body, or an operation in a REQUEST."""


Result = TypeVar("Result")


class OperationOf(Control, Generic[Result], frozen=True):
    """An operation in a REQUEST, and the type of its answer: ``class ShowTopic(OperationOf[TopicInfo])``."""

    repeatable: ClassVar[bool] = True
    """Whether a client may ask again after a lost connection: a second time changes nothing further."""
    rule: ClassVar[Rule] = UNDECLARED
    """What it needs of the client's token."""


class SourceRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of requests from one node to another that has messages of a topic."""

    rule: ClassVar[Rule] = Rule(CONSUME, by_uuid=True, unbound=True)

    topic: Uuid


class SinkRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of requests from one node to another that stores copies for a topic."""

    rule: ClassVar[Rule] = Rule(ADMIN, by_uuid=True)

    topic: Uuid


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
    """From a node that stops: the URL of the node that replaces it."""

    def as_exception(self) -> HeadpondError:
        error = from_code(self.code, self.message, self.hint)
        if isinstance(error, NodeStopping):
            error.successor = self.successor
        return error


class Ping(Control, frozen=True):
    number: Number


class Pong(Control, frozen=True):
    number: Number
