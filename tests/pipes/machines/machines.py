"""Every machine, brought into every state of its table; and every event as an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.bare import BareReceiver, BareSender, BareState
from headpond.pipes.machines.continuous import ContinuousReceiver, ContinuousSender, ContinuousState
from headpond.pipes.machines.dedup import DedupReceiver, DedupState
from headpond.pipes.machines.index import IndexReceiver, IndexState
from headpond.pipes.machines.machine import Arrive, Effects, Fail, Input, Machine, Settle, Submit, Wake
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.resend import ResendReceiver, ResendReceiverState, ResendSender, SenderState
from headpond.pipes.machines.sequential import SequentialReceiver, SequentialState
from headpond.pipes.machines.stream import (
    Entries,
    IndexStorage,
    IndexStorageState,
    ReaderPosition,
    StorageState,
    StoredStream,
    StreamReceiver,
    StreamState,
    StreamStorage,
)

EPOCH = 5
Make = Callable[[], Machine]


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


Table = dict[tuple[StrEnum, Event], frozenset[StrEnum]]
"""The states in which an event may end, by the state that it meets. A side only counts other events."""


Rows = Mapping[Event, Mapping[Any, Sequence[StrEnum]] | Sequence[StrEnum]]
"""By event: by state the states that may follow, or the same for all states. None named: it stays as it is."""


def table(states: type[StrEnum], rows: Rows) -> Table:
    found: Table = {}
    for event, row in rows.items():
        for state in states:
            after = row.get(state) if isinstance(row, Mapping) else row
            if after is not None:
                found[state, event] = frozenset(after or (state,))
    return found


def data(numbers: list[int] | range, epoch: int = EPOCH) -> Packet:
    return Packet(Kind.DATA, epoch, 0, numbers, [b"%d" % number for number in numbers])


def packet(kind: Kind, numbers: tuple[int, ...], epoch: int = EPOCH, origin: int = 1) -> Packet:
    return Packet(kind, epoch, origin, numbers)


def passed(effects: Effects) -> list[int]:
    return [number for run in effects.delivered for number in run.numbers]


def feed(machine: Machine, *numbers: int, epoch: int = EPOCH) -> list[int]:
    """One at a time, as a route that reorders would bring them."""
    return [n for number in numbers for n in passed(machine.step(Arrive([data([number], epoch)]), 0.0))]


def kinds(effects: Effects) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.kind, tuple(each.numbers)) for each in effects.packets]


def submit(count: int) -> Submit:
    return Submit([b"x"] * count)


def after(machine: Machine, *inputs: Input) -> Machine:
    for each in inputs:
        machine.step(each, 1.0)
    return machine


@dataclass(frozen=True)
class Case:
    """A machine, its table, and how to get it into each of its states."""

    name: str
    table: Table
    states: dict[StrEnum, Make]


PASSIVE: Rows = {Event.SETTLE: (), Event.FAIL: (), Event.WAKE: ()}
"""A receiver that does not wait for settlements."""


def sender_case(name: str, make: Make, rows: Rows) -> Case:
    """Of a sender with room for two."""
    state = SenderState
    states: dict[StrEnum, Make] = {
        state.IDLE: make,
        state.OPEN: lambda: after(make(), submit(1)),
        state.FULL: lambda: after(make(), submit(2)),
    }
    return Case(name, table(state, rows), states)


def resend_sender_case(name: str, make: Make) -> Case:
    state = SenderState
    sending = (state.OPEN, state.FULL)
    submitted = {state.IDLE: sending, state.OPEN: sending, state.FULL: (state.FULL,)}
    return sender_case(
        name, make, {Event.SUBMIT: submitted, Event.CONFIRM: tuple(state), Event.WAKE: tuple(state)}
    )


def continuous_sender_case() -> Case:
    state = SenderState
    sending = (state.OPEN, state.FULL)
    submitted = {state.IDLE: tuple(state), state.OPEN: sending, state.FULL: ()}
    rows: Rows = {Event.SUBMIT: submitted, Event.GAP: (), Event.PROGRESS: tuple(state), Event.WAKE: ()}
    return sender_case("ContinuousSender", lambda: ContinuousSender(epoch=EPOCH, window=2), rows)


def resend_case() -> Case:
    """Of a receiver that waits until a message is settled, with room for two."""
    state = ResendReceiverState
    arrived = {state.READY: tuple(state), state.HOLDING: (state.HOLDING, state.FULL), state.FULL: (state.FULL,)}

    def make() -> Machine:
        return ResendReceiver(epoch=1, confirm="settled", pending_max=2)

    return Case(
        "ResendReceiver",
        table(
            state, {Event.DATA: arrived, Event.SETTLE: tuple(state), Event.FAIL: tuple(state), Event.WAKE: ()}
        ),
        {
            state.READY: make,
            state.HOLDING: lambda: after(make(), Arrive([data([0])])),
            state.FULL: lambda: after(make(), Arrive([data([0, 1])])),
        },
    )


def full_storage(count: int) -> StreamStorage:
    entries = Entries(capacity=2)
    entries.payloads += [b"x"] * count
    return StreamStorage(entries)


def storage_case() -> Case:
    state = StorageState
    filled = (state.OPEN, state.FULL)
    arrived = {state.EMPTY: filled, state.OPEN: filled, state.FULL: ()}
    return Case(
        "StreamStorage",
        table(state, {Event.DATA: arrived, Event.FETCH: (), **PASSIVE}),
        {
            state.EMPTY: lambda: full_storage(0),
            state.OPEN: lambda: full_storage(1),
            state.FULL: lambda: full_storage(2),
        },
    )


def stored_case() -> Case:
    state = StorageState
    filled = (state.OPEN, state.FULL)
    arrived = {state.EMPTY: filled, state.OPEN: filled, state.FULL: ()}

    def make(count: int) -> Machine:
        return after(StoredStream(full_storage(count).entries), Wake())

    return Case(
        "StoredStream",
        table(state, {Event.DATA: arrived, **PASSIVE}),
        {state.EMPTY: lambda: make(0), state.OPEN: lambda: make(1), state.FULL: lambda: make(2)},
    )


def index_case(name: str, strict: bool) -> Case:
    state = IndexState

    def make() -> Machine:
        return IndexReceiver(epoch=1, strict=strict)

    return Case(
        name,
        table(state, {Event.DATA: (state.FOLLOWING,), **PASSIVE}),
        {state.NEW: make, state.FOLLOWING: lambda: after(make(), Arrive([data([1])]))},
    )


def continuous_case(name: str, strict: bool) -> Case:
    state = ContinuousState
    followed = (state.FLOWING, state.WAITING, state.FULL)

    def make() -> Machine:
        return ContinuousReceiver(epoch=1, queue=2, strict=strict)

    return Case(
        name,
        table(state, {Event.DATA: followed, Event.FLOOR: followed, Event.PROBE: followed, **PASSIVE}),
        {
            state.NEW: make,
            state.FLOWING: lambda: after(make(), Arrive([data([0])])),
            state.WAITING: lambda: after(make(), Arrive([data([3])])),
            state.FULL: lambda: after(make(), Arrive([data([3, 5])])),
        },
    )


def sequential_case() -> Case:
    state = SequentialState
    followed = (state.FOLLOWING, state.HOLDING)
    answered = {state.NEW: (), state.FOLLOWING: (), state.HOLDING: followed}

    def make() -> Machine:
        return SequentialReceiver(epoch=1, confirm="settled")

    return Case(
        "SequentialReceiver",
        table(state, {Event.DATA: followed, Event.SETTLE: answered, Event.FAIL: answered, Event.WAKE: ()}),
        {
            state.NEW: make,
            state.FOLLOWING: lambda: after(make(), Arrive([data([0])]), Settle(EPOCH, (0,))),
            state.HOLDING: lambda: after(make(), Arrive([data([0])])),
        },
    )


def dedup_case() -> Case:
    state = DedupState
    followed = (state.FOLLOWING, state.FULL)

    def make() -> Machine:
        return DedupReceiver(epoch=1, window=2, sessions_max=2)

    return Case(
        "DedupReceiver",
        table(
            state,
            {
                Event.DATA: {state.NEW: followed, state.FOLLOWING: followed, state.FULL: (state.FULL,)},
                **PASSIVE,
            },
        ),
        {
            state.NEW: make,
            state.FOLLOWING: lambda: after(make(), Arrive([data([0])])),
            state.FULL: lambda: after(make(), Arrive([data([0]), data([0], epoch=6)])),
        },
    )


def stream_case() -> Case:
    state = StreamState
    return Case(
        "StreamReceiver",
        table(
            state,
            {
                Event.POSITION: {state.READING: (state.FETCHING,)},
                Event.FETCHED: {state.FETCHING: ()},
                **PASSIVE,
            },
        ),
        {
            state.READING: lambda: after(StreamReceiver(epoch=1), Wake()),
            state.FETCHING: lambda: after(StreamReceiver(epoch=1, commit=False), Wake()),
        },
    )


CASES = [
    resend_sender_case(
        "ResendSender with a window of one", lambda: ResendSender(epoch=EPOCH, window=1, buffer=1)
    ),
    resend_sender_case("ResendSender with a window", lambda: ResendSender(epoch=EPOCH, window=2)),
    resend_sender_case("ResendSender with a last try", lambda: ResendSender(epoch=EPOCH, window=2, tries=1)),
    continuous_sender_case(),
    Case(
        "BareSender",
        table(BareState, {Event.SUBMIT: (), Event.WAKE: ()}),
        {BareState.READY: lambda: BareSender(epoch=EPOCH)},
    ),
    Case(
        "BareReceiver",
        table(BareState, {Event.DATA: (), **PASSIVE}),
        {BareState.READY: lambda: BareReceiver(epoch=1)},
    ),
    resend_case(),
    index_case("IndexReceiver", strict=True),
    index_case("IndexReceiver relaxed", strict=False),
    continuous_case("ContinuousReceiver", strict=True),
    continuous_case("ContinuousReceiver relaxed", strict=False),
    sequential_case(),
    dedup_case(),
    stream_case(),
    storage_case(),
    stored_case(),
    Case(
        "IndexStorage",
        table(IndexStorageState, {Event.READ: (), Event.COMMIT: (), **PASSIVE}),
        {IndexStorageState.READY: lambda: IndexStorage(ReaderPosition())},
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
