"""Re-send, one unconfirmed: at least once.

One message is on its way at a time; others wait in a buffer behind it. It is sent again, under the same number,
until the receiver confirms it. Past ``buffer`` waiting messages a ``Submit`` is refused.
"""

from __future__ import annotations

from headpond.pipes.calculus.declarations import RESEND
from headpond.pipes.machines.confirming import PENDING_MAX, ConfirmingReceiver
from headpond.pipes.machines.machine import Jitter, no_jitter
from headpond.pipes.machines.sending import ResendingSender
from headpond.pipes.machines.timeout import TimeoutSettings

DECLARATION = RESEND


class Sender(ResendingSender):
    def __init__(
        self,
        *,
        epoch: int,
        buffer: int = 1024,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
        tries: int = 0,
    ) -> None:
        super().__init__(epoch=epoch, window=1, buffer=buffer, timeout=timeout, jitter=jitter, tries=tries)


class Receiver(ConfirmingReceiver):
    def __init__(self, *, epoch: int, confirm: str = "delivered", pending_max: int = PENDING_MAX) -> None:
        super().__init__(epoch=epoch, confirm=confirm, pending_max=pending_max)
