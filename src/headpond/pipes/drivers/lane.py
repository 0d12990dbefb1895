"""A lane: one sender as its receiver knows it. A machine, its clock, and the way back to the sender."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headpond.pipes.calculus.route import Route
from headpond.pipes.drivers.end import Prefix, Runner
from headpond.pipes.machines.compose import ReceiverStack, receiver_of
from headpond.pipes.machines.machine import Arrive, Counts, Effects, Fail, Notice, Settle, Token
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.stream import Entries, StoredStream

STORED_MAX = 1 << 20
"""Messages in the storage of one stream."""

SESSIONS_PER_MACHINE = 1024
"""A lane replaces its machine after so many sessions, to forget those that are over."""

Carry = Callable[[list[Packet]], None]


def lose(packets: list[Packet]) -> None:
    """There is no way to the sender now; its timers send again."""


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
    lane: SenderLane


class Inbox(Protocol):
    """Where lanes deliver."""

    def deliver(self, deliveries: list[Delivery]) -> None: ...

    def notice(self, notices: list[Notice]) -> None: ...

    def refuse(self, lane: SenderLane, tokens: list[Token]) -> None:
        """A pipe had no room for these, and nothing beneath it can bring them again."""


class LaneTotals(NamedTuple):
    """The counts of lanes that are closed."""

    senders: int = 0
    arrived: int = 0
    delivered: int = 0
    counts: Counts = Counts()

    def plus(self, lane: SenderLane) -> LaneTotals:
        counts = Counts.sum((self.counts, lane.counts))
        return LaneTotals(
            self.senders + 1, self.arrived + lane.arrived, self.delivered + lane.delivered, counts
        )


class SenderLane:
    """One sender. A stream without a node has its storage here: ``entries``, in memory unless given."""

    def __init__(
        self, name: str, route: Route, epoch: int, inbox: Inbox, entries: Entries | None = None
    ) -> None:
        self.name = name
        self.carry: Carry = lose
        """Takes answers to the sender, or loses them while there is no way to it."""
        self.session = -1
        """The sender's current session, as far as it said."""
        self.arrived = 0
        self.delivered = 0
        self.absent_since = 0.0
        """When its sender was last there; its source sets it."""
        self.stored = route.stages[0].pipe == "stream"
        """Whether its messages stay in a storage until they are committed."""
        self._route = route
        self._epoch = epoch
        self._inbox = inbox
        self._entries = entries or Entries(capacity=STORED_MAX)
        self._sessions = 0
        self._past = Counts()
        machine = self._new_machine()
        self.settles = machine.settles
        """Whether the pipe waits for the program."""
        self._runner = Runner(machine, self._on_effects)

    def _new_machine(self) -> ReceiverStack:
        commit = bool(self._route.stages[0].settings.get("commit"))
        stored = StoredStream(self._entries, commit=commit) if self.stored else None
        return receiver_of(self._route, epoch=self._epoch, jitter=random.random, stored=stored)

    @property
    def counts(self) -> Counts:
        return Counts.sum((self._past, self._runner.machine.counts))

    def meet(self, session: int) -> bool:
        """The sender says which session this is; False if a later one has been here."""
        if session < self.session:
            return False
        if session > self.session:
            self.session = session
            self._sessions += 1
            if self._sessions % SESSIONS_PER_MACHINE == 0 and not self.stored:
                self._past = self.counts
                self._past.restarts += 1
                self._runner.close()
                self._runner = Runner(self._new_machine(), self._on_effects)
        return True

    def arrive(self, packets: list[Packet]) -> None:
        self.arrived += sum(len(each.numbers) for each in packets if each.kind == Kind.DATA and not each.layer)
        self._runner.step(Arrive(packets))

    def settle(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """The program is done with these."""
        self._runner.step(Settle(epoch, numbers))

    def fail(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """The program failed on these: pass on their next copy."""
        self._runner.step(Fail(epoch, numbers))

    def set_reading(self, reading: bool) -> None:
        """Whether the program has room for more; meanwhile messages stay with the sender."""
        self.on_route(reading)

    def on_route(self, there: bool) -> None:
        if there:
            self._runner.resume()
        else:
            self._runner.pause()

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
        answers: list[Packet] = []
        for packet in effects.packets:
            if packet.kind == Kind.COMMIT:
                self._mark(packet.numbers[0])
            else:
                answers.append(packet)
        if answers:
            self.carry(answers)

    def _mark(self, index: int) -> None:
        """Entries of a stream below ``index`` were passed on: nobody asks for them again."""
        self._entries.trim(index)


class StreamLane(SenderLane):
    """A stream's lane whose commits wait until the program is done.

    The machine commits the index that it has passed on. Here that becomes a mark: *when the program is done
    with the first so many payloads, this index may be committed*. The program may finish in any order; the
    index follows the first payload that is not done.
    """

    def __init__(
        self,
        name: str,
        route: Route,
        epoch: int,
        inbox: Inbox,
        commit: Callable[[int], None],
        entries: Entries | None = None,
    ) -> None:
        """Calls ``commit`` when the program is done with every entry below an index."""
        super().__init__(name, route, epoch, inbox, entries)
        self._commit = commit
        self.settles = True
        self._exact = len(route.stages) == 1
        """Whether every delivered payload is one entry."""
        self._marks: deque[tuple[int, int]] = deque()
        """Payloads delivered so far, and the index to commit when the program is done with all of them."""
        self._done = Prefix()

    def settle(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        self._done.add(places)
        self._commit_reached()

    def fail(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """It is not done, so the index does not go past it, and it comes again to the next receiver."""

    def _mark(self, index: int) -> None:
        """The index may be committed when the program is done with all that was delivered up to now."""
        self._marks.append((self.delivered, index))
        self._commit_reached()

    def _commit_reached(self) -> None:
        done, marks = self._done.floor, self._marks
        index = None
        while marks and marks[0][0] <= done:
            index = marks.popleft()[1]
        if self._exact and marks:
            index = marks[0][1] - (marks[0][0] - done)
        if index is not None:
            self._commit(index)
