"""The storage between the two halves of a stream pipe, and the one that keeps the reader's place.

What survives a crash is an object of its own (``Entries``, ``Place``), handed to the machine that is made after
it. In a node that object is a log on disk; here it is a list. The machine holds only what may be lost: who is
waiting.

Storage:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       empty, open                      appended, confirmed; a waiting reader is answered
data       full                             refused, counted and told, not confirmed: it will come again
fetch      any                              answered at once, with what there is; if that is nothing, then
                                            again when something comes. Where it asks for what was trimmed,
                                            the answer begins behind that
wake       any                              nothing
others     any                              ignored and counted
=========  ===============================  =================================================================

Where the storage and the index storage stand in one worker, what is below the committed index is trimmed, since
its only reader is done with it (``Entries.trim``). Otherwise ``capacity`` is the bound.

Index storage: *read* is answered with the place, *commit* moves it, forwards only; the rest is ignored and
counted.

Each copy that arrives is appended, as the directory has it: put ``dedup`` over the stream to read each message
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Input,
    Table,
    Wake,
    closed,
)
from headpond.pipes.machines.packet import NUMBER_MAX, NUMBERS_MAX, Kind, Packet

_DATA = int(Kind.DATA)
_FETCH = int(Kind.FETCH)

TRIM_MIN = 1024
"""So many at a time, or all there are: each trimming moves the rest."""


class Entries:
    """What a storage has on disk. A new ``incarnation`` is one that does not have what the one before had."""

    __slots__ = ("capacity", "first", "incarnation", "payloads")

    def __init__(self, incarnation: int = 1, capacity: int = 1 << 24) -> None:
        self.incarnation = incarnation
        self.capacity = capacity
        self.first = 0
        """The index of the first payload: what was before it is trimmed."""
        self.payloads: list[Any] = []

    def fitting(self, payloads: Sequence[Any]) -> int:
        """How many of these there is room for."""
        return min(len(payloads), max(self.capacity - len(self.payloads), 0))

    def append(self, payloads: Sequence[Any]) -> None:
        self.payloads.extend(payloads)

    def trim(self, index: int) -> int:
        """Lets go of what is below the index, in large pieces; how many that were."""
        count = min(index - self.first, len(self.payloads))
        if count < min(TRIM_MIN, len(self.payloads)) or count <= 0:
            return 0
        del self.payloads[:count]
        self.first += count
        return count


class Place:
    """What an index storage has on disk: how far a reader has come, in which incarnation."""

    __slots__ = ("incarnation", "index")

    def __init__(self) -> None:
        self.incarnation = 0
        self.index = 0


class StorageState(StrEnum):
    EMPTY = "empty"
    OPEN = "open"
    FULL = "full"


STORAGE_TABLE: Table = closed(
    StorageState,
    {
        (StorageState.EMPTY, Event.DATA): ("appended and confirmed", (StorageState.OPEN, StorageState.FULL)),
        (StorageState.OPEN, Event.DATA): ("appended and confirmed", (StorageState.OPEN, StorageState.FULL)),
        (StorageState.FULL, Event.DATA): ("refused and counted", ()),
        (None, Event.FETCH): ("answered, now or when there is something", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class Storage:
    TABLE = STORAGE_TABLE

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.counts = Counts()
        self._told_full = False
        self._waiting: Packet | None = None
        """The last fetch that found nothing; a later one takes its place."""

    @property
    def state(self) -> StorageState:
        if not self.entries.payloads:
            return StorageState.EMPTY
        full = len(self.entries.payloads) >= self.entries.capacity
        return StorageState.FULL if full else StorageState.OPEN

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def wake_at(self) -> float | None:
        return None

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, effects)
            if self._waiting is not None:
                self._answer(self._waiting, effects)
        elif not isinstance(input, Wake):
            self.counts.unknown += 1
        return effects

    def _arrive(self, packet: Packet, effects: Effects) -> None:
        if packet.kind == _FETCH and len(packet.numbers) == 2:
            self._waiting = packet
            if not self._found(packet):
                # An empty answer: so the reader can tell a storage with nothing new from one that is away.
                none = Packet(int(Kind.FETCHED), self.entries.incarnation, packet.origin, (), ())
                effects.packets.append(none)
        elif packet.kind != _DATA:
            self.counts.unknown += 1
        elif packet.payloads is None or len(packet.payloads) != len(packet.numbers):
            self.counts.malformed += 1
        else:
            self._append(packet, effects)

    def _append(self, packet: Packet, effects: Effects) -> None:
        payloads = packet.payloads or ()
        room = self.entries.fitting(payloads)
        taken = packet.numbers[:room]
        self.counts.refused += len(packet.numbers) - len(taken)
        if len(taken) < len(packet.numbers) and not self._told_full:
            effects.tell("storage full", packet.epoch, packet.numbers[len(taken) :])
        self._told_full = len(taken) < len(packet.numbers)
        if taken:
            self.entries.append(payloads[:room])
            confirm = Packet(int(Kind.CONFIRM), packet.epoch, self.entries.incarnation, taken)
            effects.packets.append(confirm)

    def _found(self, fetch: Packet) -> tuple[range, list[Any]] | None:
        first, most = fetch.numbers
        if fetch.epoch not in (0, self.entries.incarnation):
            first = 0  # an index of another incarnation says nothing about this one
        first = max(first, self.entries.first)
        at = first - self.entries.first
        payloads = self.entries.payloads[at : at + min(most, NUMBERS_MAX)]
        return (range(first, first + len(payloads)), payloads) if payloads else None

    def _answer(self, fetch: Packet, effects: Effects) -> None:
        found = self._found(fetch)
        if found is not None:
            self._waiting = None
            packet = Packet(int(Kind.FETCHED), self.entries.incarnation, fetch.origin, *found)
            effects.packets.append(packet)


class IndexStorageState(StrEnum):
    READY = "ready"


INDEX_STORAGE_TABLE: Table = closed(
    IndexStorageState,
    {
        (None, Event.READ): ("answered with the place", ()),
        (None, Event.COMMIT): ("the place moves, forwards only", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class IndexStorage:
    TABLE = INDEX_STORAGE_TABLE

    def __init__(self, place: Place) -> None:
        self.place = place
        self.counts = Counts()

    @property
    def state(self) -> IndexStorageState:
        return IndexStorageState.READY

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def wake_at(self) -> float | None:
        return None

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, effects)
        elif not isinstance(input, Wake):
            self.counts.unknown += 1
        return effects

    def _arrive(self, packet: Packet, effects: Effects) -> None:
        if packet.kind == Kind.READ:
            numbers = (self.place.index,)
            position = Packet(int(Kind.POSITION), self.place.incarnation, packet.origin, numbers)
            effects.packets.append(position)
        elif packet.kind == Kind.COMMIT and 0 <= packet.numbers[0] <= NUMBER_MAX:
            self._commit(packet.epoch, packet.numbers[0])
        else:
            self.counts.unknown += 1

    def _commit(self, incarnation: int, index: int) -> None:
        if (incarnation, index) > (self.place.incarnation, self.place.index):
            self.place.incarnation, self.place.index = incarnation, index
        elif incarnation < self.place.incarnation:
            self.counts.stale += 1
        else:
            self.counts.duplicate += 1
