"""A relay: messages of one pipe go into the next, and confirms cascade.

A sender gets a confirm when the pipe behind the relay has confirmed the message, over any number of relays;
so a relay may die at any moment and nothing is lost. A message that the next pipe gives up (``tries``) fails
here, and comes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import check_cascade
from headpond.pipes.drivers.receiver import PipeItem, PipeReceiver
from headpond.pipes.drivers.sender import PipeSender
from headpond.pipes.machines.compose import parse_drivable


async def relay(receiver: PipeReceiver, sender: PipeSender) -> None:
    """Opens both ends, passes on until the receiver is closed, and closes them.

    The receiver's route must wait for its program (``confirm=settled``, or a ``stream`` that is stored), the
    sender's must confirm; else ``BadRequest``. An error of either end is raised: messages that are not
    confirmed by then come again to the next relay.
    """
    _check(receiver, sender)
    async with receiver, sender:
        cascade = _Cascade(receiver, sender)
        async for item in receiver.items():
            if not item.lane.settles:
                raise _too_early(receiver)
            await cascade.pass_on(item)


def _too_early(receiver: PipeReceiver) -> BadRequest:
    return BadRequest(
        f"{receiver.route} confirms before the next pipe does",
        hint="Write confirm=settled in its route, or give tcp.listen a store.",
    )


def _check(receiver: PipeReceiver, sender: PipeSender) -> None:
    before, after = parse_drivable(receiver.route), parse_drivable(sender.route)
    if not before.settles and before.stages[0].pipe != "stream":
        raise _too_early(receiver)
    if not after.confirms:
        check_cascade([parse_drivable("resend(confirm=settled)"), after])


class _Cascade:
    """Remembers the name that each message of the next pipe had in the one before."""

    def __init__(self, receiver: PipeReceiver, sender: PipeSender) -> None:
        self._receiver = receiver
        self._sender = sender
        self._items: dict[int, PipeItem] = {}
        self._number_next = 0
        sender.on_done = self._done

    async def pass_on(self, item: PipeItem) -> None:
        self._items[self._number_next] = item
        self._number_next += 1
        await self._sender.send(item.payload)

    def _done(self, numbers: Sequence[int], confirmed: bool) -> None:
        answer = self._receiver.confirm if confirmed else self._receiver.fail
        for number in numbers:
            if (item := self._items.pop(number, None)) is not None:
                answer(item)
