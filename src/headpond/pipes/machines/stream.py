"""Stream: a pipe with persistent storage in the middle. At least once, and the receiver may start again.

Three machines, or four: the sender sends until the *storage* confirms (``storage.Storage``); the receiver
fetches from the storage by index, and with ``commit`` keeps its place in an *index storage*
(``storage.IndexStorage``), which it reads first when it starts. Without one it starts from the beginning.

Receiver:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
wake       reading                          the place is asked for, again if it is time
wake       fetching                         entries are asked for, again if it is time
position   reading                          fetching from there
position   fetching                         ignored and counted: it was a repeat
fetched    fetching                         entries from the index on are passed on, the index moves, the place
                                            is committed, more is asked for; earlier ones are counted. Another
                                            incarnation of the storage: from its beginning.
                                            Entries further on: what is before them was trimmed; told.
                                            None: asked again later, in case the answer to come is lost
fetched    reading                          ignored and counted
others     any                              ignored and counted
=========  ===============================  =================================================================

A lost fetch, answer or commit is made good by the next: the receiver always has a timer running.
"""

from __future__ import annotations

from enum import StrEnum

from headpond.pipes.calculus.declarations import STREAM
from headpond.pipes.machines.epoch import Follower, Session
from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Input,
    Jitter,
    Table,
    Wake,
    closed,
    no_jitter,
)
from headpond.pipes.machines.packet import Kind, Packet, Run
from headpond.pipes.machines.sending import ResendingSender
from headpond.pipes.machines.storage import Entries, IndexStorage, Place, Storage
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

__all__ = ["DECLARATION", "Entries", "IndexStorage", "Place", "Receiver", "Sender", "Storage"]

DECLARATION = STREAM

FETCH_MAX = 1024
ASK_AGAIN = TimeoutSettings(initial_s=1.0, min_s=0.01, max_s=10.0)
POLL_MIN_S = 1.0
POLL_MAX_S = 10.0
"""The storage speaks up by itself when something comes; asking again is in case that is lost."""

_FETCHED = int(Kind.FETCHED)
_POSITION = int(Kind.POSITION)


class Sender(ResendingSender):
    def __init__(
        self,
        *,
        epoch: int,
        window: int = 1024,
        buffer: int = 0,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
    ) -> None:
        super().__init__(epoch=epoch, window=window, buffer=buffer, timeout=timeout, jitter=jitter)


class ReceiverState(StrEnum):
    READING = "reading"
    """Its place is not known yet."""
    FETCHING = "fetching"


RECEIVER_TABLE: Table = closed(
    ReceiverState,
    {
        (ReceiverState.READING, Event.POSITION): ("fetching from there", (ReceiverState.FETCHING,)),
        (ReceiverState.FETCHING, Event.FETCHED): ("passed on, committed, more is asked for", ()),
        (None, Event.WAKE): ("asked again, if it is time", ()),
    },
)


class Receiver:
    TABLE = RECEIVER_TABLE
    settles = False

    def __init__(
        self,
        *,
        epoch: int,
        commit: bool = True,
        timeout: TimeoutSettings = ASK_AGAIN,
        jitter: Jitter = no_jitter,
    ) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self._commits = commit
        self._reading = commit
        self._index = 0
        self._storage = Follower()
        self._timeout = Timeout(timeout, jitter)
        self._asked_at = float("-inf")
        self._ask_at = float("-inf")
        """It has something to ask from the start."""
        self._poll_s = POLL_MIN_S
        self._asked_once = False
        self._answered = False

    @property
    def state(self) -> ReceiverState:
        return ReceiverState.READING if self._reading else ReceiverState.FETCHING

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def wake_at(self) -> float | None:
        return self._ask_at

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, now, effects)
        elif isinstance(input, Wake):
            if self._ask_at <= now:
                if self._asked_at > float("-inf"):
                    self._timeout.ran_out(self._asked_at, now)
                    self.counts.expired += 1
                self._ask(now, effects)
        else:
            self.counts.unknown += 1
        return effects

    def _ask(self, now: float, effects: Effects) -> None:
        if self._reading:
            effects.packets.append(Packet(int(Kind.READ), 0, self.epoch, (0,)))
        else:
            known = max(self._storage.epoch, 0)
            effects.packets.append(Packet(int(Kind.FETCH), known, self.epoch, (self._index, FETCH_MAX)))
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
        if packet.kind not in (_FETCHED, _POSITION):
            self.counts.unknown += 1
        elif packet.origin != self.epoch:
            self.counts.stale += 1  # an answer to an earlier session of this side
        elif packet.kind == _POSITION:
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
        if packet.epoch:
            self._storage.meet(packet.epoch)
        self._heard(now)
        self._ask(now, effects)

    def _fetched(self, packet: Packet, now: float, effects: Effects) -> None:
        was_new = self._storage.is_new
        session = self._storage.meet(packet.epoch)
        if session is Session.STALE:
            self.counts.stale += len(packet.numbers)
            return
        if session is Session.NEW and not was_new:
            self.counts.restarts += 1
            effects.tell("storage lost", packet.epoch, range(self._index))
            self._index = 0
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
            # The storage answers with the first that it has: what is before it was trimmed, or is gone.
            self.counts.abandoned -= skip
            effects.tell("trimmed", packet.epoch, range(self._index, packet.numbers[0]))
            self._index, skip = packet.numbers[0], 0
        self.counts.duplicate += skip
        payloads = (packet.payloads or ())[skip:]
        effects.delivered.append(Run(packet.epoch, packet.numbers[skip:], payloads))
        self._index += len(payloads)
        self._poll_s = POLL_MIN_S
        if self._commits:
            effects.packets.append(Packet(int(Kind.COMMIT), packet.epoch, self.epoch, (self._index,)))
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
