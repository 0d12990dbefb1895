"""The workers of a route, and which of them talk to each other.

``resend_many | dedup`` has a sender and a receiver, with a link each way. A stream has its storage between
them, and an index storage when it commits. ``A -> B`` is two routes in a row with a relay between, which is the
receiver of the one and the sender of the other; with ``confirm=settled`` in the first the confirms cascade.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import compress, pairwise
from random import Random

from headpond.pipes.calculus.route import Route, check_cascade, check_composition, parse_chain
from headpond.pipes.machines.compose import Relay, Work, receiver_of, sender_of
from headpond.pipes.machines.machine import Counts, Machine
from headpond.pipes.machines.packet import Kind, Run
from headpond.pipes.machines.stream import Entries, IndexStorage, ReaderPosition, StreamStorage

FORWARD = (Kind.DATA, Kind.FLOOR, Kind.PROBE)
BACK = (Kind.CONFIRM, Kind.GAP, Kind.PROGRESS)


@dataclass(slots=True, eq=False)
class Worker:
    """A machine, how to make the next one after a crash, and where each kind of its packets goes."""

    name: str
    make: Callable[[int], Machine]
    machine: Machine | None = None
    """None while it is down."""
    epoch: int = 0
    up_at: int = -1
    ways: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """By kind: to which worker, and whether that is forwards."""
    rates: dict[str, Mapping[str, Fraction | int]] = field(default_factory=dict)
    """By worker that it talks to: the rates of the channel between, where its hop has its own."""
    past: Counts = field(default_factory=Counts)
    """Counts of its earlier sessions."""
    lose: Callable[[], None] | None = None
    """Loses its disk; None for a worker that has none."""

    def start(self) -> None:
        self.epoch += 1
        self.machine = self.make(self.epoch)

    def crash(self) -> None:
        if self.machine is not None:
            self.past = self.counts
            self.machine = None

    @property
    def counts(self) -> Counts:
        return self.past if self.machine is None else Counts.sum((self.past, self.machine.counts))


def parse_hops(text: str) -> list[Route]:
    """The routes of a text, in the order a message passes them."""
    hops = list(parse_chain(text))
    for hop in hops:
        check_composition(hop)
    return hops


def failing(share: Fraction, rng: Random) -> Work | None:
    """The work of a worker that fails that share of its messages; None where it fails none."""
    if not share:
        return None

    def work(run: Run) -> tuple[Run, Sequence[int]]:
        fates = [rng.random() < share for _ in run.numbers]
        good = [not failed for failed in fates]
        done = Run(run.epoch, list(compress(run.numbers, good)), list(compress(run.payloads, good)))
        return done, list(compress(run.numbers, fates))

    return work


def workers_of(hops: list[Route], rng: Random) -> list[Worker]:
    """All the workers, started by the caller: the sender first, the last receiver last."""
    check_cascade(hops)
    jitter = rng.random
    ends = [Worker("sender", lambda epoch: sender_of(hops[0], epoch=epoch, jitter=jitter))]
    for number, (before, after) in enumerate(pairwise(hops), 1):
        ends.append(Worker(_numbered("relay", number), _relay_maker(before, after, rng)))
    ends.append(Worker("receiver", lambda epoch: receiver_of(hops[-1], epoch=epoch, jitter=jitter)))
    workers = [ends[0]]
    for number, (hop, sender, receiver) in enumerate(zip(hops, ends, ends[1:], strict=False), 1):
        workers += _between(hop, number, sender, receiver)
        workers.append(receiver)
    return workers


def _relay_maker(before: Route, after: Route, rng: Random) -> Callable[[int], Machine]:
    def make(epoch: int) -> Machine:
        receiver = receiver_of(before, epoch=epoch, jitter=rng.random)
        sender = sender_of(after, epoch=epoch, jitter=rng.random)
        return Relay(receiver, sender, failing(before.worker_fails, rng))

    return make


def _between(hop: Route, number: int, sender: Worker, receiver: Worker) -> list[Worker]:
    """Wires the two ends of a hop, and makes the workers between them."""
    middle = _middle(hop, number, sender, receiver)
    for worker in (sender, receiver, *middle):
        for to, _ in worker.ways.values():
            worker.rates.setdefault(to, hop.rates)
    return middle


def _middle(hop: Route, number: int, sender: Worker, receiver: Worker) -> list[Worker]:
    sender.ways |= {int(kind): (receiver.name, True) for kind in FORWARD}
    receiver.ways |= {int(kind): (sender.name, False) for kind in BACK}
    if hop.stages[0].pipe != "stream":
        return []
    storage = _storage(number)
    sender.ways[Kind.DATA] = (storage.name, True)
    storage.ways = {Kind.CONFIRM: (sender.name, False), Kind.FETCHED: (receiver.name, True)}
    receiver.ways[Kind.FETCH] = (storage.name, False)
    if not hop.stages[0].settings["commit"]:
        return [storage]
    position = ReaderPosition()
    index = Worker(_numbered("index", number), lambda _: IndexStorage(position))
    index.ways = {Kind.POSITION: (receiver.name, True)}
    receiver.ways |= {int(kind): (index.name, False) for kind in (Kind.READ, Kind.COMMIT)}
    return [storage, index]


def _storage(number: int) -> Worker:
    disk = [Entries()]

    def lose() -> None:
        disk[0] = Entries(disk[0].incarnation + 1)

    return Worker(_numbered("storage", number), lambda _: StreamStorage(disk[0]), lose=lose)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"
