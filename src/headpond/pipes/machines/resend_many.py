"""Re-send with many unconfirmed: at least once, a window of messages on their way at a time.

The sender gives every message a number, sends it, and sends it again under the same number until the receiver
confirms it. ``window`` messages may be unconfirmed; ``buffer`` more may wait behind it; past that a ``Submit``
is refused.
"""

from __future__ import annotations

from headpond.pipes.calculus.declarations import RESEND_MANY
from headpond.pipes.machines.confirming import PENDING_MAX, ConfirmingReceiver
from headpond.pipes.machines.machine import Jitter, no_jitter
from headpond.pipes.machines.sending import ResendingSender
from headpond.pipes.machines.timeout import TimeoutSettings

DECLARATION = RESEND_MANY


class Sender(ResendingSender):
    def __init__(
        self,
        *,
        epoch: int,
        window: int = 1024,
        buffer: int = 0,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
        tries: int = 0,
    ) -> None:
        super().__init__(epoch=epoch, window=window, buffer=buffer, timeout=timeout, jitter=jitter, tries=tries)


class Receiver(ConfirmingReceiver):
    def __init__(self, *, epoch: int, confirm: str = "delivered", pending_max: int = PENDING_MAX) -> None:
        super().__init__(epoch=epoch, confirm=confirm, pending_max=pending_max)
