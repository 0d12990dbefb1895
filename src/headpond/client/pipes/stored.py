"""A stream's storage and index storage beside its receiver, in one worker: for a stream without a node.

Towards the sender it is the storage, towards the program the receiver. What is stored lives as long as the
``Entries`` and the ``Place`` that it was made with: hand the same ones to the receiver that is made after it.
For storage that outlives the process, give the listener a store (store.py), or put the stream over a topic.

What is below the committed index is trimmed: its only reader is done with it. Without ``commit`` nothing is,
and past ``STORED_MAX`` messages the storage is full: that is told (``storage full``), and the sender waits.

Where a pipe over the stream refuses a message, nothing more is committed, so it and all behind it stay stored.
"""

from __future__ import annotations

from enum import StrEnum

from headpond.pipes.compose import ReceiverStack
from headpond.pipes.machine import ROOM_ENDLESS, Arrive, Counts, Effects, Input
from headpond.pipes.packet import Kind, Packet
from headpond.pipes.storage import Entries, IndexStorage, Place, Storage

STORED_MAX = 1 << 20

_TO_STORAGE = frozenset((Kind.DATA, Kind.FETCH))
_TO_INDEX = frozenset((Kind.READ, Kind.COMMIT))
_TO_RECEIVER = frozenset((Kind.FETCHED, Kind.POSITION))


class StoredReceiver:
    """A machine like any receiver."""

    def __init__(self, receiver: ReceiverStack, entries: Entries, place: Place, *, paced: bool = False) -> None:
        """``paced``: after each delivery it asks its storage for more only when ``ask`` says so."""
        self._paced = paced
        self._questions: list[Packet] = []
        self._receiver = receiver
        self._storage = Storage(entries)
        self._index = IndexStorage(place)

    @property
    def counts(self) -> Counts:
        total = self._receiver.counts
        total.add(self._storage.counts)
        total.add(self._index.counts)
        return total

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
            packets = self._hand_round(packets, now, out)
            if self._paced and out.delivered:
                self._questions += [each for each in packets if each.kind == Kind.FETCH]
                packets = [each for each in packets if each.kind != Kind.FETCH]
        return out

    def ask(self) -> Arrive | None:
        """What to step it with for the next delivery; None where it has asked already."""
        questions, self._questions = self._questions, []
        return Arrive(questions) if questions else None

    def _receive(self, input: Input, now: float, out: Effects) -> list[Packet]:
        effects = self._receiver.step(input, now)
        out.refused += effects.refused
        out.delivered += effects.delivered
        out.notices += effects.notices
        return effects.packets

    def _hand_round(self, packets: list[Packet], now: float, out: Effects) -> list[Packet]:
        """Packets between the three stay here, and their answers come back; the others go to the sender."""
        to_storage = [each for each in packets if each.kind in _TO_STORAGE and not each.layer]
        to_index = [each for each in packets if each.kind in _TO_INDEX and not each.layer]
        # From the sender and for an outer layer; of answers of the receiver's outer layers there is the rest.
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
            if self._index.place.incarnation == self._storage.entries.incarnation:
                self._storage.entries.trim(self._index.place.index)
        if to_receiver:
            answers += self._receive(Arrive(to_receiver), now, out)
        return answers


def _is_forwards(packet: Packet) -> bool:
    return packet.layer > 0 and packet.kind in (Kind.DATA, Kind.FLOOR, Kind.PROBE)
