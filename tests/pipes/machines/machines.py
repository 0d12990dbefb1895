"""Every machine, brought into every state of its table; and every event as an input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headpond.pipes.machines import (
    bare,
    confirming,
    continuous,
    dedup,
    index,
    numbering,
    resend,
    resend_many,
    sending,
    sequential,
    storage,
    stream,
)
from headpond.pipes.machines.machine import Arrive, Event, Fail, Input, Machine, Settle, Submit, Table, Wake
from headpond.pipes.machines.packet import Kind, Packet

EPOCH = 5
Make = Callable[[], Machine]


def data(numbers: list[int] | range, epoch: int = EPOCH) -> Packet:
    return Packet(Kind.DATA, epoch, 0, numbers, [b"%d" % number for number in numbers])


def packet(kind: Kind, numbers: tuple[int, ...], epoch: int = EPOCH, origin: int = 1) -> Packet:
    return Packet(kind, epoch, origin, numbers)


def submit(count: int) -> Submit:
    return Submit([b"x"] * count)


def after(machine: Machine, *inputs: Input) -> Machine:
    for each in inputs:
        machine.step(each, 1.0)
    return machine


@dataclass(frozen=True)
class Case:
    """A machine class and how to get it into each of its states."""

    name: str
    table: Table
    states: dict[StrEnum, Make]


def sender_case(name: str, make: Make) -> Case:
    """Of a sender with room for two."""
    state = sending.SenderState
    return Case(
        name,
        make().TABLE,  # type: ignore[attr-defined]
        {
            state.IDLE: make,
            state.OPEN: lambda: after(make(), submit(1)),
            state.FULL: lambda: after(make(), submit(2)),
        },
    )


def confirming_case(name: str, make: Make) -> Case:
    """Of a receiver that waits for what is settled, two messages at most."""
    state = confirming.ReceiverState
    return Case(
        name,
        confirming.RECEIVER_TABLE,
        {
            state.READY: make,
            state.HOLDING: lambda: after(make(), Arrive([data([0])])),
            state.FULL: lambda: after(make(), Arrive([data([0, 1])])),
        },
    )


def full_storage(count: int) -> storage.Storage:
    entries = storage.Entries(capacity=2)
    entries.payloads += [b"x"] * count
    return storage.Storage(entries)


def numbering_case(name: str, make: Make) -> Case:
    return Case(name, numbering.NUMBERING_TABLE, {numbering.NumberingState.READY: make})


def index_case(name: str, make: Make) -> Case:
    state = index.ReceiverState
    return Case(
        name,
        index.RECEIVER_TABLE,
        {state.NEW: make, state.FOLLOWING: lambda: after(make(), Arrive([data([1])]))},
    )


def continuous_case(name: str, strict: bool) -> Case:
    state = continuous.ReceiverState

    def make() -> Machine:
        return continuous.Receiver(epoch=1, queue=2, strict=strict)

    return Case(
        name,
        continuous.RECEIVER_TABLE,
        {
            state.NEW: make,
            state.FLOWING: lambda: after(make(), Arrive([data([0])])),
            state.WAITING: lambda: after(make(), Arrive([data([3])])),
            state.FULL: lambda: after(make(), Arrive([data([3, 5])])),
        },
    )


def sequential_case() -> Case:
    state = sequential.ReceiverState

    def make() -> Machine:
        return sequential.Receiver(epoch=1, confirm="settled")

    return Case(
        "sequential.Receiver",
        sequential.RECEIVER_TABLE,
        {
            state.NEW: make,
            state.FOLLOWING: lambda: after(make(), Arrive([data([0])]), Settle(EPOCH, (0,))),
            state.HOLDING: lambda: after(make(), Arrive([data([0])])),
        },
    )


def dedup_case() -> Case:
    state = dedup.ReceiverState

    def make() -> Machine:
        return dedup.Receiver(epoch=1, window=2, sessions_max=2)

    return Case(
        "dedup.Receiver",
        dedup.RECEIVER_TABLE,
        {
            state.NEW: make,
            state.FOLLOWING: lambda: after(make(), Arrive([data([0])])),
            state.FULL: lambda: after(make(), Arrive([data([0]), data([0], epoch=6)])),
        },
    )


def stream_case() -> Case:
    state = stream.ReceiverState
    return Case(
        "stream.Receiver",
        stream.RECEIVER_TABLE,
        {
            state.READING: lambda: after(stream.Receiver(epoch=1), Wake()),
            state.FETCHING: lambda: after(stream.Receiver(epoch=1, commit=False), Wake()),
        },
    )


CASES = [
    sender_case("resend.Sender", lambda: resend.Sender(epoch=EPOCH, buffer=1)),
    sender_case(
        "resend_many.Sender with a last try", lambda: resend_many.Sender(epoch=EPOCH, window=2, tries=1)
    ),
    sender_case("resend_many.Sender", lambda: resend_many.Sender(epoch=EPOCH, window=2)),
    sender_case("sequential.Sender", lambda: sequential.Sender(epoch=EPOCH, buffer=1)),
    sender_case("stream.Sender", lambda: stream.Sender(epoch=EPOCH, window=2)),
    sender_case("continuous.Sender", lambda: continuous.Sender(epoch=EPOCH, window=2)),
    numbering_case("index.Sender", lambda: index.Sender(epoch=EPOCH)),
    numbering_case("bare.Sender", lambda: bare.Sender(epoch=EPOCH)),
    Case("bare.Receiver", bare.RECEIVER_TABLE, {bare.ReceiverState.READY: lambda: bare.Receiver(epoch=1)}),
    numbering_case("dedup.Sender", lambda: dedup.Sender(epoch=EPOCH)),
    confirming_case("resend.Receiver", lambda: resend.Receiver(epoch=1, confirm="settled", pending_max=2)),
    confirming_case(
        "resend_many.Receiver", lambda: resend_many.Receiver(epoch=1, confirm="settled", pending_max=2)
    ),
    index_case("index.Receiver", lambda: index.Receiver(epoch=1)),
    index_case("index.Receiver relaxed", lambda: index.Receiver(epoch=1, strict=False)),
    index_case("dedup.IndexReceiver", lambda: dedup.IndexReceiver(epoch=1)),
    continuous_case("continuous.Receiver", strict=True),
    continuous_case("continuous.Receiver relaxed", strict=False),
    sequential_case(),
    dedup_case(),
    stream_case(),
    Case(
        "stream.Storage",
        storage.STORAGE_TABLE,
        {
            storage.StorageState.EMPTY: lambda: full_storage(0),
            storage.StorageState.OPEN: lambda: full_storage(1),
            storage.StorageState.FULL: lambda: full_storage(2),
        },
    ),
    Case(
        "stream.IndexStorage",
        storage.INDEX_STORAGE_TABLE,
        {storage.IndexStorageState.READY: lambda: storage.IndexStorage(storage.Place())},
    ),
]

_EPOCHS = (EPOCH - 1, EPOCH, EPOCH + 1)
_SMALL = ((0,), (1,), (2,), (7,), (0, 0), (3, 1), (1, 0, 2))


def inputs_of(event: Event) -> list[Input]:
    """An event in many shapes: known and unknown numbers, repeats, sessions before and after the present."""
    if event is Event.SUBMIT:
        return [submit(1), submit(2), submit(9)]
    if event is Event.WAKE:
        return [Wake()]
    if event is Event.SETTLE:
        return [Settle(epoch, numbers) for epoch in _EPOCHS for numbers in (*_SMALL, ())]
    if event is Event.FAIL:
        return [Fail(epoch, numbers) for epoch in _EPOCHS for numbers in (*_SMALL, ())]
    kind = Kind[event.name]
    if kind is Kind.DATA:
        runs = [Arrive([data(list(numbers), epoch)]) for epoch in _EPOCHS for numbers in _SMALL]
        return [*runs, Arrive([data([0]), data([0])])]
    if kind is Kind.FETCHED:
        origins = (1, 2)
        return [
            Arrive([Packet(kind, epoch, origin, range(first, first + count), [b"x"] * count)])
            for epoch in _EPOCHS
            for origin in origins
            for first, count in ((0, 0), (0, 1), (0, 3), (2, 1))
        ]
    numbers_of = ((0, 4), (1, 4), (9, 4)) if kind is Kind.FETCH else _SMALL
    return [Arrive([packet(kind, numbers, epoch)]) for epoch in _EPOCHS for numbers in numbers_of]
