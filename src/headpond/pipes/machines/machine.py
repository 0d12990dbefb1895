"""The shape of every machine of a pipe.

A machine is stepped: one input and the time go in, effects come out. It does no IO and has no clock. Its driver
passes ``now`` (seconds, any origin, never falling), carries its packets to the other side, and steps it with
``Wake`` at ``wake_at``. An early, late or needless ``Wake`` does no harm.

Inputs and effects carry runs of messages, because a step costs about the same for one message as for a
thousand.

1. ``Submit`` comes from the worker before. A machine takes as many payloads as it has ``room`` for:
   ``accepted`` names the numbers that it gave to the first of them, and the caller keeps the others. Every
   queue has a bound.
2. ``Arrive`` brings packets from the other side, late, repeated, out of order or never.
3. ``delivered`` are runs for the worker after. With ``confirm="settled"`` a receiver confirms them when that
   worker answers with ``Settle``; ``Fail`` means that it could not, and that the receiver is to pass on the
   next copy.
4. ``confirmed`` names to the worker before the numbers that have arrived, ``abandoned`` those that were given
   up.

The tables in the files of the pipes say what each event does in each state; tests/pipes/machines walks all of
them. A machine ignores and counts an event that its table leaves out, and no packet of a peer can raise; a
``Wake`` that a table leaves out does nothing.

**Sessions.** Each side has an epoch, a number that is larger each time it starts (a clock's reading at the
start, or a counter on disk). Numbers count from 0 in each session of a sender, and every packet names that
session. So number 0 of a restarted sender is a new message, and a confirm for an earlier session counts as
stale. An answer also names its writer's session, so a sender notices that its receiver has restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet, Run

Jitter = Callable[[], float]
"""Returns a number from 0 up to 1, a new one each call: ``random.random``, or a seeded one in the lab."""

ROOM_ENDLESS = 1 << 62


def no_jitter() -> float:
    return 0.0


# --- inputs -----------------------------------------------------------------------------------------


class Submit(NamedTuple):
    """Messages from the worker before."""

    payloads: Sequence[Any]


class Arrive(NamedTuple):
    """Packets from the other side."""

    packets: Sequence[Packet]


class Settle(NamedTuple):
    """The worker after is done with these."""

    epoch: int
    numbers: Sequence[int]


class Fail(NamedTuple):
    """The worker after could not process these: pass on their next copy."""

    epoch: int
    numbers: Sequence[int]


class Wake(NamedTuple):
    """Time has passed."""


WAKE = Wake()
Input = Submit | Arrive | Settle | Fail | Wake


# --- effects ----------------------------------------------------------------------------------------


class Token(NamedTuple):
    """Names messages to the machine that passed them on."""

    epoch: int
    numbers: Sequence[int]


class Notice(NamedTuple):
    """An event that a program should know of: what, in which session, which numbers."""

    what: str
    epoch: int
    numbers: Sequence[int]


NOTICES_MAX = 64


class Effects:
    """The actions that one step asks for. Empty lists mean nothing to do."""

    __slots__ = ("abandoned", "accepted", "confirmed", "delivered", "notices", "packets", "refused", "settled")

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        """To carry to the other side, in this order."""
        self.delivered: list[Run] = []
        """For the worker after, in this order."""
        self.confirmed: list[Token] = []
        """For the worker before: these have arrived."""
        self.abandoned: list[Token] = []
        """For the worker before: given up after their last try; some may have arrived."""
        self.settled: list[Token] = []
        """For the pipe beneath: done, passed on or dropped for good."""
        self.refused: list[Token] = []
        """For the pipe beneath: not taken, so they must not count as done. No pipe can bring again a message
        that a whole side refuses: it is lost, unless a storage has it."""
        self.accepted: range = range(0)
        """Numbers given to the first payloads of a ``Submit``; the caller keeps the others."""
        self.notices: list[Notice] = []

    def refuse(self, epoch: int, numbers: Sequence[int]) -> None:
        """Not taken, with a notice."""
        self.refused.append(Token(epoch, numbers))
        self.notify("refused", epoch, numbers)

    def notify(self, what: str, epoch: int, numbers: Sequence[int]) -> None:
        if len(self.notices) < NOTICES_MAX:
            self.notices.append(Notice(what, epoch, numbers))


@dataclass(slots=True)
class Counts:
    """Counts of one machine, under the words of the tables."""

    resent: int = 0
    """Sendings of a message after its first."""
    duplicate: int = 0
    """Copies of messages passed on before, or confirms of messages confirmed before."""
    late: int = 0
    """Messages that came after a later number was passed on."""
    stale: int = 0
    """From a session that is over."""
    unknown: int = 0
    """Names nothing that this side has, or a kind that this side does not take."""
    malformed: int = 0
    refused: int = 0
    """No room: not taken, not confirmed; the other side brings it again."""
    abandoned: int = 0
    """Given up for good, with a notice."""
    restarts: int = 0
    """Restarts of the other side."""
    gaps: int = 0
    """Numbers asked for again."""
    expired: int = 0
    """Timeouts."""

    @classmethod
    def sum(cls, parts: Iterable[Counts]) -> Counts:
        return cls(*map(sum, zip(*map(astuple, parts), strict=True)))


class Machine(Protocol):
    """One side of a pipe, or several sides in a row as one."""

    @property
    def counts(self) -> Counts: ...

    @property
    def state(self) -> StrEnum: ...

    @property
    def room(self) -> int:
        """How many payloads a ``Submit`` may bring now."""

    @property
    def wake_at(self) -> float | None:
        """When to step it with ``Wake``; None for when something else happens."""

    def step(self, input: Input, now: float) -> Effects: ...


# --- the sides of a pipe ----------------------------------------------------------------------------


class PipeMachine:
    """One side of one pipe. Its step passes each input to the method for it; by default a side takes none."""

    def __init__(self, *, epoch: int) -> None:
        self.epoch = epoch
        self.counts = Counts()

    @property
    def state(self) -> StrEnum:
        raise NotImplementedError

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def wake_at(self) -> float | None:
        return None

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Submit):
            self._submit(input.payloads, now, effects)
        elif isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, now, effects)
            self._arrived(now, effects)
        elif isinstance(input, Wake):
            self._wake(now, effects)
        elif isinstance(input, Settle):
            self._settle(input.epoch, input.numbers, effects)
        else:
            self._fail(input.epoch, input.numbers)
        return effects

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        self.counts.unknown += 1

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        self.counts.unknown += 1

    def _arrived(self, now: float, effects: Effects) -> None:
        """Runs after all packets of one ``Arrive``."""

    def _wake(self, now: float, effects: Effects) -> None:
        """Runs at every ``Wake``."""

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        self.counts.unknown += 1

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        self.counts.unknown += 1


class SenderMachine(PipeMachine):
    """The sending side of a pipe."""

    confirms: bool = False
    """Whether its receiver confirms what arrived."""

    @property
    def unconfirmed(self) -> int:
        """Messages taken whose arrival is not known, as far as it would know."""
        return 0

    def _send(self, numbers: Sequence[int], payloads: Sequence[Any], effects: Effects) -> None:
        """Sends them in packets that a wire can carry; mostly that is one."""
        if len(numbers) <= NUMBERS_MAX:
            effects.packets.append(Packet(Kind.DATA, self.epoch, 0, numbers, payloads))
            return
        for at in range(0, len(numbers), NUMBERS_MAX):
            end = at + NUMBERS_MAX
            effects.packets.append(Packet(Kind.DATA, self.epoch, 0, numbers[at:end], payloads[at:end]))


class ReceiverMachine(PipeMachine):
    """The receiving side of a pipe, or the storage of a stream."""

    settles: bool = False
    """Whether the worker after it has to answer with ``Settle`` or ``Fail``."""

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind != Kind.DATA:
            self.counts.unknown += 1
        elif packet.payloads is None or len(packet.payloads) != len(packet.numbers):
            self.counts.malformed += 1
        elif len(packet.numbers):
            self._take(packet, packet.payloads, now, effects)

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        """Handles data that is well formed and not empty."""
        raise NotImplementedError

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        """The worker after it is done with these: news only to a pipe that waits for it."""

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        """The worker after it failed on these: a pipe that can passes on their next copy."""

    def _confirm(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        effects.packets.append(Packet(Kind.CONFIRM, epoch, self.epoch, numbers))


class FollowingReceiver(ReceiverMachine):
    """A receiver with a position in its sender's numbering: it follows one session, and a later one ends it."""

    def __init__(self, *, epoch: int) -> None:
        super().__init__(epoch=epoch)
        self._session = -1
        """The session that it follows; -1 before the first packet."""

    def _follow(self, packet: Packet, effects: Effects) -> bool:
        """Whether the packet belongs to the session that it follows now."""
        if packet.epoch < self._session:
            self.counts.stale += len(packet.numbers)
            if packet.payloads is not None:
                effects.notify("stale", packet.epoch, packet.numbers)
            return False
        if packet.epoch > self._session:
            self.counts.restarts += self._session >= 0
            self._session = packet.epoch
            self._begin(packet, effects)
        return True

    def _begin(self, packet: Packet, effects: Effects) -> None:
        """The packet is the first of a session."""
        raise NotImplementedError
