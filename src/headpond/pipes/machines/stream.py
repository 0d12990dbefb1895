"""Stream: a pipe with persistent storage in the middle. At least once, and the receiver may restart.

Three machines, or four: the sender sends until the *storage* confirms (``StreamStorage``); the receiver
fetches from the storage by index, and with ``commit`` keeps its position in an *index storage*
(``IndexStorage``), which it reads first when it starts. Without one it starts from the beginning.

The state that survives a crash is in ``Entries`` and ``ReaderPosition``, which the next machine takes over. In
a node that is a log on disk; here it is a list. The machine itself holds only the reader that waits.

Storage:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       empty, open                      appended, confirmed; a waiting reader is answered
data       full                             refused, counted, with a notice; not confirmed: it will come again
fetch      any                              answered at once, with the entries there are; if there are none,
                                            again when something comes. Where it asks for trimmed entries,
                                            the answer begins behind that
=========  ===============================  =================================================================

Where the storage and its receiver stand in one worker (``StoredStream``), that worker trims the entries below
the committed index, because their only reader is done with them. Otherwise ``capacity`` is the bound.

Index storage: *read* is answered with the position, *commit* moves it, forwards only; the rest is ignored and
counted.

The storage appends each copy that arrives, as in the directory: put ``dedup`` over the stream to read each
message once.

Receiver:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
wake       reading                          the position is asked for, again if it is time
wake       fetching                         entries are asked for, again if it is time
position   reading                          fetching from there
position   fetching                         ignored and counted: it was a repeat
fetched    fetching                         entries from the index on are passed on, the index moves and
                                            is committed, more is asked for; earlier ones are counted. Another
                                            incarnation of the storage: from its beginning.
                                            Entries further on: those before them were trimmed; a notice.
                                            None: asked again later, in case the answer to come is lost
fetched    reading                          ignored and counted
=========  ===============================  =================================================================

The next fetch, answer or commit makes up for a lost one: the receiver always has a timer running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import Effects, Jitter, ReceiverMachine, no_jitter
from headpond.pipes.machines.packet import NUMBER_MAX, NUMBERS_MAX, Kind, Packet, Run
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

TRIM_MIN = 1024
"""Entries to trim at a time, or all there are: each trimming moves the rest."""
FETCH_MAX = 1024
ASK_AGAIN = TimeoutSettings(initial_s=1.0, min_s=0.01, max_s=10.0)
POLL_MIN_S = 1.0
POLL_MAX_S = 10.0
"""The storage answers when something comes; the receiver asks again in case that answer is lost."""


@dataclass(slots=True)
class Entries:
    """The entries of a storage on disk. A new ``incarnation`` lacks entries that the one before had."""

    incarnation: int = 1
    capacity: int = 1 << 24
    first: int = 0
    """The index of the first payload; earlier ones are trimmed."""
    payloads: list[Any] = field(default_factory=list)

    def fitting(self, payloads: Sequence[Any]) -> int:
        """How many of these there is room for."""
        return min(len(payloads), max(self.capacity - len(self.payloads), 0))

    def append(self, payloads: Sequence[Any]) -> None:
        self.payloads.extend(payloads)

    def trim(self, index: int) -> int:
        """Drops the entries below the index, in large pieces; returns how many."""
        count = min(index - self.first, len(self.payloads))
        if count < min(TRIM_MIN, len(self.payloads)) or count <= 0:
            return 0
        del self.payloads[:count]
        self.first += count
        return count


@dataclass(slots=True)
class ReaderPosition:
    """The state of an index storage on disk: how far a reader has come, in which incarnation."""

    incarnation: int = 0
    index: int = 0


class StorageState(StrEnum):
    EMPTY = "empty"
    OPEN = "open"
    FULL = "full"


class StreamStorage(ReceiverMachine):
    def __init__(self, entries: Entries) -> None:
        super().__init__(epoch=entries.incarnation)
        self.entries = entries
        self._reported_full = False
        self._waiting: Packet | None = None
        """The last fetch that found nothing; a later one takes its place."""

    @property
    def state(self) -> StorageState:
        if not self.entries.payloads:
            return StorageState.EMPTY
        full = len(self.entries.payloads) >= self.entries.capacity
        return StorageState.FULL if full else StorageState.OPEN

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind != Kind.FETCH or len(packet.numbers) != 2:
            super()._arrive(packet, now, effects)
            return
        self._waiting = packet
        if not self._found(packet)[1]:
            # An empty answer distinguishes a storage with nothing new from one that is away.
            effects.packets.append(Packet(Kind.FETCHED, self.epoch, packet.origin, (), ()))

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        room = self.entries.fitting(payloads)
        refused = packet.numbers[room:]
        self.counts.refused += len(refused)
        if len(refused) and not self._reported_full:
            effects.notify("storage full", packet.epoch, refused)
        self._reported_full = len(refused) > 0
        if room:
            self.entries.append(payloads[:room])
            self._confirm(packet.epoch, packet.numbers[:room], effects)

    def _arrived(self, now: float, effects: Effects) -> None:
        """Answers the reader that waits, if there is something for it."""
        if self._waiting is not None:
            numbers, payloads = self._found(self._waiting)
            if payloads:
                effects.packets.append(
                    Packet(Kind.FETCHED, self.epoch, self._waiting.origin, numbers, payloads)
                )
                self._waiting = None

    def _found(self, fetch: Packet) -> tuple[range, list[Any]]:
        first, most = fetch.numbers
        if fetch.epoch not in (0, self.epoch):
            first = 0  # an index of another incarnation says nothing about this one
        first = max(first, self.entries.first)
        at = first - self.entries.first
        payloads = self.entries.payloads[at : at + min(most, NUMBERS_MAX)]
        return range(first, first + len(payloads)), payloads


class StoredStream(StreamStorage):
    """The storage of a stream and its receiver in one worker, where no packet between them can be lost.

    It passes on each entry as soon as it is stored; with ``pace`` so many at a time, and more when ``asked`` is
    set again. It commits the index that it has passed on, for its driver to keep: entries below it may be
    trimmed. Without ``commit`` none are, and past its capacity the storage is full.
    """

    def __init__(self, entries: Entries, *, commit: bool = True, pace: int = 0) -> None:
        super().__init__(entries)
        self.asked = True
        """Whether the worker after takes more."""
        self._commits = commit
        self._pace = pace
        self._index = entries.first

    @property
    def wake_at(self) -> float | None:
        end = self.entries.first + len(self.entries.payloads)
        return float("-inf") if self.asked and self._index < end else None

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        ReceiverMachine._arrive(self, packet, now, effects)  # nobody else fetches from it

    def _arrived(self, now: float, effects: Effects) -> None:
        start = self._index - self.entries.first
        payloads = self.entries.payloads[start : start + self._pace if self._pace else None]
        if not self.asked or not payloads:
            return
        numbers = range(self._index, self._index + len(payloads))
        effects.delivered.append(Run(self.epoch, numbers, payloads))
        self._index = numbers.stop
        self.asked = not self._pace
        if self._commits:
            effects.packets.append(Packet(Kind.COMMIT, self.epoch, self.epoch, (self._index,)))

    def _wake(self, now: float, effects: Effects) -> None:
        self._arrived(now, effects)


class IndexStorageState(StrEnum):
    READY = "ready"


class IndexStorage(ReceiverMachine):
    def __init__(self, position: ReaderPosition) -> None:
        super().__init__(epoch=0)
        self.position = position

    @property
    def state(self) -> IndexStorageState:
        return IndexStorageState.READY

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        position = self.position
        if packet.kind == Kind.READ:
            answer = Packet(Kind.POSITION, position.incarnation, packet.origin, (position.index,))
            effects.packets.append(answer)
        elif packet.kind != Kind.COMMIT or not 0 <= packet.numbers[0] <= NUMBER_MAX:
            self.counts.unknown += 1
        elif (packet.epoch, packet.numbers[0]) > (position.incarnation, position.index):
            position.incarnation, position.index = packet.epoch, packet.numbers[0]
        elif packet.epoch < position.incarnation:
            self.counts.stale += 1
        else:
            self.counts.duplicate += 1


class StreamState(StrEnum):
    READING = "reading"
    """Its position is not known yet."""
    FETCHING = "fetching"


class StreamReceiver(ReceiverMachine):
    def __init__(
        self,
        *,
        epoch: int,
        commit: bool = True,
        jitter: Jitter = no_jitter,
    ) -> None:
        super().__init__(epoch=epoch)
        self._commits = commit
        self._reading = commit
        self._index = 0
        self._incarnation = 0
        """Of the storage, as far as it is known."""
        self._timeout = Timeout(ASK_AGAIN, jitter)
        self._asked_at = float("-inf")
        self._ask_at = float("-inf")
        """At once: it has a question from the start."""
        self._poll_s = POLL_MIN_S
        self._asked_once = False
        self._answered = False

    @property
    def state(self) -> StreamState:
        return StreamState.READING if self._reading else StreamState.FETCHING

    @property
    def wake_at(self) -> float | None:
        return self._ask_at

    def _wake(self, now: float, effects: Effects) -> None:
        if self._ask_at <= now:
            if self._asked_at > float("-inf"):
                self._timeout.ran_out(self._asked_at, now)
                self.counts.expired += 1
            self._ask(now, effects)

    def _ask(self, now: float, effects: Effects) -> None:
        if self._reading:
            effects.packets.append(Packet(Kind.READ, 0, self.epoch, (0,)))
        else:
            question = (self._index, FETCH_MAX)
            effects.packets.append(Packet(Kind.FETCH, self._incarnation, self.epoch, question))
        self._asked_once = self._ask_at == float("-inf") or self._answered
        self._answered = False
        self._asked_at = now
        self._ask_at = self._timeout.deadline(now)

    def _heard(self, now: float) -> None:
        """An answer came; if the question was put once, it says how long a round trip takes (Karn's rule)."""
        if self._asked_once and not self._answered:
            self._timeout.measured(now - self._asked_at, now)
        else:
            self._timeout.heard(now)
        self._answered = True

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind not in (Kind.FETCHED, Kind.POSITION):
            self.counts.unknown += 1
        elif packet.origin != self.epoch:
            self.counts.stale += 1  # an answer to an earlier session of this side
        elif packet.kind == Kind.POSITION:
            self._start(packet, now, effects)
        elif self._reading:
            self.counts.unknown += 1
        elif not _is_run(packet):
            self.counts.malformed += 1
        else:
            self._fetched(packet, now, effects)

    def _start(self, packet: Packet, now: float, effects: Effects) -> None:
        if not self._reading:
            self.counts.duplicate += 1
            return
        self._reading = False
        self._index = packet.numbers[0]
        self._incarnation = packet.epoch
        self._heard(now)
        self._ask(now, effects)

    def _fetched(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.epoch < self._incarnation:
            self.counts.stale += len(packet.numbers)
            return
        if packet.epoch > self._incarnation > 0:
            self.counts.restarts += 1
            effects.notify("storage lost", packet.epoch, range(self._index))
            self._index = 0
        self._incarnation = packet.epoch
        if not packet.numbers:
            self._heard(now)
            self._ask_at = now + self._poll_s
            self._poll_s = min(self._poll_s * 2, POLL_MAX_S)
            return
        skip = self._index - packet.numbers[0]
        if skip >= len(packet.numbers):
            self.counts.duplicate += len(packet.numbers)
            return
        if skip < 0:
            # The storage answers with the first entry that it has: earlier ones were trimmed, or are lost.
            self.counts.abandoned -= skip
            effects.notify("trimmed", packet.epoch, range(self._index, packet.numbers[0]))
            self._index, skip = packet.numbers[0], 0
        self.counts.duplicate += skip
        payloads = (packet.payloads or ())[skip:]
        effects.delivered.append(Run(packet.epoch, packet.numbers[skip:], payloads))
        self._index += len(payloads)
        self._poll_s = POLL_MIN_S
        if self._commits:
            effects.packets.append(Packet(Kind.COMMIT, packet.epoch, self.epoch, (self._index,)))
        self._heard(now)
        self._ask(now, effects)


def _is_run(packet: Packet) -> bool:
    """Whether it holds entries that follow each other."""
    numbers = packet.numbers
    if packet.payloads is None or len(packet.payloads) != len(numbers):
        return False
    if isinstance(numbers, range) or not numbers:
        return True
    return list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
