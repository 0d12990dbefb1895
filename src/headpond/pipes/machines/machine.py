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

A machine ignores and counts packets that make no sense in its state; no packet of a peer can raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from headpond.pipes.machines.packet import Kind, Packet, Run

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

    def add(self, other: Counts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


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


# --- tables -----------------------------------------------------------------------------------------


class Event(StrEnum):
    """The columns of every table: each input, and each kind of packet that ``Arrive`` may bring."""

    SUBMIT = "submit"
    DATA = "data"
    CONFIRM = "confirm"
    GAP = "gap"
    PROGRESS = "progress"
    FLOOR = "floor"
    PROBE = "probe"
    FETCH = "fetch"
    FETCHED = "fetched"
    READ = "read"
    POSITION = "position"
    COMMIT = "commit"
    SETTLE = "settle"
    FAIL = "fail"
    WAKE = "wake"


EVENT_OF_KIND: Mapping[int, Event] = {int(kind): Event(kind.name.lower()) for kind in Kind}


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of an event in a state: in words, and the states it may end in."""

    words: str
    states: frozenset[StrEnum] = field(default_factory=frozenset)
    counted: bool = False
    """Whether it leaves no trace but a count."""


Table = Mapping[tuple[StrEnum, Event], Transition]


def complete_table(
    states: type[StrEnum], rows: Mapping[tuple[StrEnum | None, Event], tuple[str, Sequence[StrEnum]]]
) -> Table:
    """A table with an outcome for every pair: rows as given (None stands for every state), the rest ignored.

    A pair that no row names is an event that this side never asks for: it changes nothing and is counted.
    """
    table: dict[tuple[StrEnum, Event], Transition] = {}
    for state in states:
        for event in Event:
            row = rows.get((state, event)) or rows.get((None, event))
            if row is not None:
                table[state, event] = Transition(row[0], frozenset(row[1] or (state,)))
            else:
                table[state, event] = Transition("ignored and counted", frozenset((state,)), counted=True)
    return table
