"""A lane: one sender as its receiver knows it. A machine, its clock, and the way back to the sender.

The machine of a ``stream`` without a node is a ``StoredReceiver``: the storage, the index storage and the
receiver in one worker.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from headpond.pipes.calculus.route import Route
from headpond.pipes.drivers.end import Prefix, Runner
from headpond.pipes.machines.compose import ReceiverStack, receiver_of
from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Fail,
    Input,
    Notice,
    Settle,
    Token,
)
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.stream import Entries, IndexStorage, ReaderPosition, StreamStorage

STORED_MAX = 1 << 20
"""Messages in the storage of one stream."""

_TO_STORAGE = frozenset((Kind.DATA, Kind.FETCH))
_TO_INDEX = frozenset((Kind.READ, Kind.COMMIT))
_TO_RECEIVER = frozenset((Kind.FETCHED, Kind.POSITION))


class StoredReceiver:
    """The storage of a stream towards the sender, its receiver towards the program.

    The messages live as long as ``entries`` and ``position``: pass the same ones to the next receiver. For
    storage that outlives the process, give the listener a store (store.py), or put the stream over a topic.

    The storage trims the messages below the committed index, because its only reader is done with them.
    Without ``commit`` it trims nothing; past ``STORED_MAX`` messages it is full, which a notice reports
    (``storage full``), and the sender waits. Where a pipe over the stream refuses a message, the receiver
    commits nothing more, so that message and all behind it stay stored.
    """

    def __init__(
        self, receiver: ReceiverStack, entries: Entries, position: ReaderPosition, *, paced: bool = False
    ) -> None:
        """``paced``: after each delivery it asks its storage for more only when ``ask`` says so."""
        self._paced = paced
        self._questions: list[Packet] = []
        self._receiver = receiver
        self._storage = StreamStorage(entries)
        self._index = IndexStorage(position)

    @property
    def counts(self) -> Counts:
        return Counts.sum((self._receiver.counts, self._storage.counts, self._index.counts))

    @property
    def state(self) -> StrEnum:
        return self._receiver.state

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def settles(self) -> bool:
        return self._receiver.settles

    @property
    def wake_at(self) -> float | None:
        return self._receiver.wake_at

    def step(self, input: Input, now: float) -> Effects:
        out = Effects()
        packets = list(input.packets) if isinstance(input, Arrive) else self._receive(input, now, out)
        while packets:
            packets = self._route_packets(packets, now, out)
            if self._paced and out.delivered:
                self._questions += [each for each in packets if each.kind == Kind.FETCH]
                packets = [each for each in packets if each.kind != Kind.FETCH]
        return out

    def ask(self) -> Arrive | None:
        """The input for the next delivery; None where it has asked already."""
        questions, self._questions = self._questions, []
        return Arrive(questions) if questions else None

    def _receive(self, input: Input, now: float, out: Effects) -> list[Packet]:
        effects = self._receiver.step(input, now)
        out.refused += effects.refused
        out.delivered += effects.delivered
        out.notices += effects.notices
        return effects.packets

    def _route_packets(self, packets: list[Packet], now: float, out: Effects) -> list[Packet]:
        """Packets between the three stay here, and their answers come back; the others go to the sender."""
        to_storage = [each for each in packets if each.kind in _TO_STORAGE and not each.layer]
        to_index = [each for each in packets if each.kind in _TO_INDEX and not each.layer]
        # From the sender for an outer layer; the rest are answers of the receiver's outer layers.
        to_receiver = [each for each in packets if each.kind in _TO_RECEIVER or _is_forwards(each)]
        inside = {id(each) for part in (to_storage, to_index, to_receiver) for each in part}
        out.packets += [each for each in packets if id(each) not in inside]
        answers: list[Packet] = []
        if to_storage:
            stored = self._storage.step(Arrive(to_storage), now)
            out.notices += stored.notices
            answers += stored.packets
        if to_index:
            answers += self._index.step(Arrive(to_index), now).packets
            if self._index.position.incarnation == self._storage.entries.incarnation:
                self._storage.entries.trim(self._index.position.index)
        if to_receiver:
            answers += self._receive(Arrive(to_receiver), now, out)
        return answers


def _is_forwards(packet: Packet) -> bool:
    return packet.layer > 0 and packet.kind in (Kind.DATA, Kind.FLOOR, Kind.PROBE)


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
    def __init__(self, name: str, route: Route, epoch: int, inbox: Inbox) -> None:
        self.name = name
        self.carry: Carry = lose
        """Takes answers to the sender, or loses them while there is no way to it."""
        self.session = -1
        """The sender's current session, as far as it said."""
        self.arrived = 0
        self.delivered = 0
        self.absent_since = 0.0
        """When its sender was last there; its source sets it."""
        self._route = route
        self._epoch = epoch
        self._inbox = inbox
        self._sessions = 0
        self._past = Counts()
        machine = self._new_machine()
        self.settles = machine.settles
        """Whether the pipe waits for the program."""
        self.stored = isinstance(machine, StoredReceiver)
        """Whether its messages stay in a storage until they are committed."""
        self._runner = Runner(machine, self._on_effects)

    def _new_machine(self) -> ReceiverStack | StoredReceiver:
        """The receiving side of the route, with its storage if it is a stream."""
        receiver = receiver_of(self._route, epoch=self._epoch, jitter=random.random)
        if self._route.stages[0].pipe != "stream":
            return receiver
        return StoredReceiver(receiver, Entries(capacity=STORED_MAX), ReaderPosition())

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
        if effects.packets:
            self.carry(effects.packets)


class CommitLane(SenderLane):
    """A stream's lane whose commits wait until the program is done.

    The machine commits the index that it has passed on. Here that becomes a mark: *when the program is done
    with the first so many payloads, this index may be committed*. The program may finish in any order; the
    index follows the first payload that is not done.
    """

    def __init__(
        self, name: str, route: Route, epoch: int, inbox: Inbox, commit: Callable[[int], None]
    ) -> None:
        """Calls ``commit`` when the program is done with every entry below an index."""
        super().__init__(name, route, epoch, inbox)
        self._commit = commit
        self.settles = self.stored = True
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
        """``index`` may be committed when the program is done with all that was delivered up to now."""
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
