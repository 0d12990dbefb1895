"""What a link tells those who talk through it."""

from __future__ import annotations

from typing import Protocol

from headpond.model.errors import HeadpondError
from headpond.wire.control import Ack, Deliver, Lost, Settled, Subscribed, Unsubscribed
from headpond.wire.frame import Frame


class Handler(Protocol):
    """What producers and consumers hear from the link."""

    def on_up(self) -> None:
        """A new connection is there; nothing of the old one will be answered."""

    def on_down(self) -> None:
        """The connection is gone; the link makes a new one."""

    def on_error(self, error: HeadpondError) -> None:
        """The node refused something of this handler's."""

    def on_writable(self) -> None:
        """Writing was paused and may go on."""


class BlockHandler(Handler, Protocol):
    """A producer: it hears of the link itself, and the answers to the blocks it registered."""

    def on_ack(self, ack: Ack) -> None: ...


class ConsumerHandler(Handler, Protocol):
    def on_deliver(self, deliver: Deliver, frames: list[Frame]) -> None: ...

    def on_control(self, message: Subscribed | Unsubscribed | Settled | Lost) -> None: ...
