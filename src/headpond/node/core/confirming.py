"""Confirmations: a consumer hears that its settlements are durable, once for all that went with one write.

SETTLED says that everything up to its number is on the disk, so one stands for those before it. While a write
is under way a busy consumer settles many times; all of that goes with the next write, and is told in one frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headpond.model.errors import HeadpondError
from headpond.node.core.attachment import Attachment
from headpond.node.core.commits import Lane
from headpond.node.core.session import Session
from headpond.wire.control import Settled, encode_control


@dataclass(slots=True)
class Confirmation:
    """What one consumer is to hear when a write is done."""

    behind: int
    """How many writes had begun before it."""
    number: int = 0
    late: int = 0
    cost_bytes: int = 0

    def take_in(self, number: int, late: int, cost_bytes: int) -> None:
        self.number = max(self.number, number)
        self.late += late
        self.cost_bytes += cost_bytes


class Confirming:
    def __init__(self, lane: Lane, send: Callable[[int, list[bytes]], None]) -> None:
        self._lane = lane
        self._send = send

    def settled(
        self, session: Session, attachment: Attachment, number: int, late: int, cost_bytes: int
    ) -> None:
        """Tells the consumer once what is staged now is durable; until then it counts as memory of its own."""
        session.unacked_bytes += cost_bytes
        staged, known = self._lane.stage.staged_bytes > 0, attachment.confirmation
        if staged and known is not None and known.behind == self._lane.writes:
            known.take_in(number, late, cost_bytes)
            return
        made = Confirmation(self._lane.writes)
        made.take_in(number, late, cost_bytes)
        attachment.confirmation = made if staged else None  # if nothing is, its write has begun or is done
        self._lane.wait(partial(self._tell, session, attachment.consumer, made))

    def _tell(self, session: Session, consumer: int, told: Confirmation, error: HeadpondError | None) -> None:
        session.unacked_bytes -= told.cost_bytes
        self._send(session.connection, [encode_control(Settled(consumer, told.number, told.late))])
