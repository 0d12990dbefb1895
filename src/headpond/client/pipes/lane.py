"""A lane: one sender as its receiver knows it. A machine, its clock, and the way back to the sender."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headpond.calculus.route import Route
from headpond.client.pipes.runner import Runner
from headpond.client.pipes.stored import STORED_MAX, StoredReceiver
from headpond.pipes.compose import receiver_of
from headpond.pipes.machine import Arrive, Counts, Effects, Fail, Machine, Notice, Settle, Token
from headpond.pipes.packet import Kind, Packet
from headpond.pipes.storage import Entries, Place

SESSIONS_BEFORE_ANEW = 1024
"""Sessions of one sender that are over need no remembering."""

Carry = Callable[[list[Packet]], None]
_DATA = int(Kind.DATA)


class ReceiverMachine(Machine, Protocol):
    @property
    def settles(self) -> bool: ...


class Delivery(NamedTuple):
    """A run of payloads for the program, in order. ``receiver.confirm(delivery)`` confirms all of them."""

    payloads: Sequence[bytes]
    sender: str
    """The sender's name."""
    epoch: int
    """The sender's session."""
    numbers: Sequence[int]
    """Their numbers in that session."""
    place: int
    """How many payloads this lane delivered before them."""
    lane: Lane


class Inbox(Protocol):
    """Where lanes deliver."""

    def deliver(self, deliveries: list[Delivery]) -> None: ...

    def notice(self, notices: list[Notice]) -> None: ...

    def refuse(self, lane: Lane, tokens: list[Token]) -> None:
        """A pipe had no room for these, and nothing beneath it can bring them again."""


def new_storage() -> tuple[Entries, Place]:
    """What a stream's storage beside its receiver keeps."""
    return Entries(capacity=STORED_MAX), Place()


def receiver_machine(route: Route, *, epoch: int, entries: Entries, place: Place) -> ReceiverMachine:
    """The receiving side of a route, with its storage if it is a stream."""
    receiver = receiver_of(route, epoch=epoch, jitter=random.random)
    if route.stages[0].pipe != "stream":
        return receiver
    return StoredReceiver(receiver, entries, place)


class LaneTotals(NamedTuple):
    """What lanes counted that are there no more."""

    senders: int = 0
    arrived: int = 0
    delivered: int = 0
    counts: Counts = Counts()

    def plus(self, lane: Lane) -> LaneTotals:
        counts = Counts()
        counts.add(self.counts)
        counts.add(lane.counts)
        return LaneTotals(
            self.senders + 1, self.arrived + lane.arrived, self.delivered + lane.delivered, counts
        )


class Lane:
    def __init__(
        self, name: str, make: Callable[[], ReceiverMachine], inbox: Inbox, carry: Carry = lambda _: None
    ) -> None:
        self.name = name
        self.carry = carry
        """Takes answers to the sender, or loses them while there is no way to it."""
        self.session = -1
        """The sender's present session, as far as it said."""
        self.arrived = 0
        self.delivered = 0
        self.absent_since = 0.0
        """When its sender was last there, by whoever keeps the lanes."""
        self._sessions = 0
        self._make = make
        self._inbox = inbox
        self._past = Counts()
        machine = make()
        self.settles = machine.settles
        """Whether the pipe waits for the program."""
        self.stored = isinstance(machine, StoredReceiver)
        """Whether what it is given stays in a storage until it is committed."""
        self._runner = Runner(machine, self._on_effects)

    @property
    def counts(self) -> Counts:
        total = Counts()
        total.add(self._past)
        total.add(self._runner.machine.counts)
        return total

    def meet(self, session: int) -> bool:
        """The sender says which session this is; False if a later one has been here."""
        if session < self.session:
            return False
        if session > self.session:
            self.session = session
            self._sessions += 1
            if self._sessions % SESSIONS_BEFORE_ANEW == 0 and not self.stored:
                self._past = self.counts
                self._past.restarts += 1
                self._runner.close()
                self._runner = Runner(self._make(), self._on_effects)
        return True

    def arrive(self, packets: list[Packet]) -> None:
        self.arrived += sum(len(each.numbers) for each in packets if each.kind == _DATA and not each.layer)
        self._runner.step(Arrive(packets))

    def settle(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """The program is done with these."""
        self._runner.step(Settle(epoch, numbers))

    def fail(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """The program could not: the next copy of these is welcome."""
        self._runner.step(Fail(epoch, numbers))

    def set_reading(self, reading: bool) -> None:
        """Whether the program has room for more; what comes meanwhile is left with the sender."""
        self.on_route(reading)

    def on_route(self, there: bool) -> None:
        if there:
            self._runner.go_on()
        else:
            self._runner.stand_still()

    def close(self) -> None:
        self._runner.close()

    def _on_effects(self, effects: Effects) -> None:
        if effects.notices:
            self._inbox.notice(effects.notices)
        if effects.refused:
            self._inbox.refuse(self, effects.refused)
        if effects.delivered:
            deliveries = []
            for run in effects.delivered:
                deliveries.append(
                    Delivery(run.payloads, self.name, run.epoch, run.numbers, self.delivered, self)
                )
                self.delivered += len(run.payloads)
            self._inbox.deliver(deliveries)
        if effects.packets:
            self.carry(effects.packets)
