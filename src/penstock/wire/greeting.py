"""The part of the conversation that begins and ends it: HELLO, WELCOME, and ERROR."""

from __future__ import annotations

from penstock.model.errors import NodeStopping, PenstockError, from_code
from penstock.wire.conversation import Control


class Hello(Control, frozen=True):
    """The client's first frame."""

    versions: list[int]
    client: str
    token: str | None = None

    def __repr__(self) -> str:
        """Without the token, which is a secret."""
        shown = "None" if self.token is None else "'…'"
        return f"Hello(versions={self.versions!r}, client={self.client!r}, token={shown})"


class Welcome(Control, frozen=True):
    """The node's answer: the version both will speak, who the node is, and its limits."""

    version: int
    node: str
    software: str
    segment_bytes_max: int
    control_bytes_max: int
    window_bytes_max: int
    """How many bytes of unacknowledged segments the node takes from one connection before it stops reading."""
    successor: str = ""
    """The URL of the node that goes on in its place when it stops, if it names one."""


class Error(Control, frozen=True):
    """Something was refused. With no reference it concerns the connection, which then closes."""

    code: str
    message: str
    hint: str
    retryable: bool
    request: int | None = None
    consumer: int | None = None
    block: bytes | None = None
    successor: str = ""
    """Of a node that stops: the URL of the one that goes on in its place."""

    def as_exception(self) -> PenstockError:
        error = from_code(self.code, self.message, self.hint)
        if isinstance(error, NodeStopping):
            error.successor = self.successor
        return error
