"""The event queue: simulated time, steps and crashes.

Time has ticks. Each tick runs in this order: workers that were down come back; packets arrive, all of a
worker's in one step; due timers go off; the worker at the end finishes its runs; due crashes happen; the
source submits as many messages as the sender has room for. The next tick is the next one with an event, so
waiting costs nothing.

A run ends in one of three ways (``Ending``). It is *idle* when no event is left. It is *quiet* when all
messages were sent, every sender knows that they have arrived, and there was no news (an arrival or a confirm)
for ``REST_S``: only a reader still asks for more. It is *unfinished* when a sender still tries, or the source
still has messages, and there was no news for ``QUIET_S``: such a run says nothing about the route.

Both limits are longer where little gets through: all tries of that time are lost with a probability of at most
``CHANCE``.

**Workers.** ``resend_many | dedup`` has a sender and a receiver, with a link each way. A stream has its storage
between them, and an index storage when it commits. ``A -> B`` is two routes in a row with a relay between:
the receiver of the one and the sender of the other. With ``confirm=settled`` in the first, confirms cascade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from itertools import compress, groupby, pairwise
from random import Random

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import Route, check_cascade
from headpond.pipes.lab.faults import BURST_MAX, Crash, Faults
from headpond.pipes.lab.link import LabLink, TickInbox
from headpond.pipes.lab.measure import Measure
from headpond.pipes.machines.compose import ReceiverStack, Relay, SenderStack, Work, receiver_of, sender_of
from headpond.pipes.machines.machine import WAKE, Arrive, Counts, Effects, Fail, Input, Machine, Settle, Submit
from headpond.pipes.machines.packet import Kind, Run
from headpond.pipes.machines.stream import Entries, IndexStorage, ReaderPosition, StreamStorage
from headpond.pipes.machines.timeout import JITTER_SHARE, MAX_S

QUIET_S = 3600.0
REST_S = 600.0
CHANCE = 1e-12
TRY_S = MAX_S * (1 + JITTER_SHARE)
"""The longest that a worker waits before it tries again."""
SOURCE_WAIT_S_MAX = 86_400.0
"""A source slower than this is not waited for."""
FORWARD = (Kind.DATA, Kind.FLOOR, Kind.PROBE)
BACK = (Kind.CONFIRM, Kind.GAP, Kind.PROGRESS)

Write = Callable[[str], object]


# --- workers ------------------------------------------------------------------------------------------


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
    sender.ways |= dict.fromkeys(FORWARD, (receiver.name, True))
    receiver.ways |= dict.fromkeys(BACK, (sender.name, False))
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
    receiver.ways |= dict.fromkeys((Kind.READ, Kind.COMMIT), (index.name, False))
    return [storage, index]


def _storage(number: int) -> Worker:
    disk = [Entries()]

    def lose() -> None:
        disk[0] = Entries(disk[0].incarnation + 1)

    return Worker(_numbered("storage", number), lambda _: StreamStorage(disk[0]), lose=lose)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"


# --- the event queue ----------------------------------------------------------------------------------


class Ending(StrEnum):
    IDLE = "idle"
    QUIET = "quiet"
    UNFINISHED = "unfinished"


class World:
    def __init__(
        self, hops: list[Route], faults: Faults, messages: int, rng: Random, write: Write | None = None
    ) -> None:
        self.workers = workers_of(hops, rng)
        self.now = 0
        self.tick_s = faults.tick_s
        self.measure = Measure(messages, self.tick_s)
        self.ended = Ending.UNFINISHED
        self._by_name = {worker.name: worker for worker in self.workers}
        self._faults = faults
        self._messages = messages
        self._write = write
        self._ticks: list[int] = []
        self._arrivals: dict[int, dict[str, TickInbox]] = {}
        self._work: dict[int, list[Run]] = {}
        self._crashes = sorted(faults.crashes, key=lambda crash: crash.at)
        self._news_at = 0
        self._sender = self._by_name["sender"]
        self._receiver = self._by_name["receiver"]
        self._links = self._make_links(rng)
        self._last_work = failing(hops[-1].worker_fails, rng)
        self._check_roles()
        for worker in self.workers:
            worker.start()
        self._patience_s = _patience_s(faults, hops)

    def run(self) -> None:
        self._pump()
        while (tick := self._next_tick()) is not None:
            if self._is_over(tick):
                self.ended = Ending.QUIET if self._is_done() else Ending.UNFINISHED
                return
            self.now = tick
            self._come_back()
            self._arrive()
            self._wake()
            self._finish_work()
            self._crash_due()
            self._pump()
        self.ended = Ending.IDLE

    @property
    def seconds(self) -> float:
        return self.now * self.tick_s

    @property
    def links(self) -> list[LabLink]:
        return [link for pair in self._links.values() for link in pair]

    def _is_over(self, tick: int) -> bool:
        quiet_s = (tick - self._news_at) * self.tick_s - self._patience_s
        if quiet_s <= REST_S:
            return False
        return quiet_s > QUIET_S or self._is_done()

    def _is_done(self) -> bool:
        return self.measure.sent == self._messages and not self._unconfirmed()

    def _unconfirmed(self) -> int:
        machines = [worker.machine for worker in self.workers]
        return sum(each.unconfirmed for each in machines if isinstance(each, SenderStack | Relay))

    # --- time ---

    def _next_tick(self) -> int | None:
        ticks = self._ticks
        while ticks and ticks[0] <= self.now:
            heappop(ticks)
        best = ticks[0] if ticks else None
        for worker in self.workers:
            if worker.machine is None:
                at = worker.up_at
            elif (wake_at := worker.machine.wake_at) is None:
                continue
            else:
                at = max(self._tick_of(wake_at), self.now + 1)
            if best is None or at < best:
                best = at
        return best

    def _tick_of(self, seconds: float) -> int:
        """The first tick that is not before it."""
        if seconds <= self.seconds:
            return self.now
        tick = math.ceil(seconds / self.tick_s)
        # The machine compares seconds: rounding must not wake it a hair early, again and again.
        return tick if tick * self.tick_s >= seconds else tick + 1

    def _inbox(self, name: str, tick: int) -> TickInbox:
        arrivals = self._arrivals.get(tick)
        if arrivals is None:
            arrivals = self._arrivals[tick] = {}
            heappush(self._ticks, tick)
        inbox = arrivals.get(name)
        if inbox is None:
            inbox = arrivals[name] = TickInbox()
        return inbox

    # --- the steps of a tick ---

    def _come_back(self) -> None:
        for worker in self.workers:
            if worker.machine is None and worker.up_at <= self.now:
                worker.start()
                self._record(worker.name, "up", (worker.epoch,))

    def _arrive(self) -> None:
        for name, inbox in self._arrivals.pop(self.now, {}).items():
            worker = self._by_name[name]
            if worker.machine is not None:
                packets = inbox.packets()
                if self._write is not None:
                    for packet in packets:
                        self._record(
                            name, f"arrive {packet.kind}.{packet.layer} e{packet.epoch}", packet.numbers
                        )
                self._step(worker, Arrive(packets))

    def _wake(self) -> None:
        now_s = self.seconds
        for worker in self.workers:
            machine = worker.machine
            if machine is not None and (at := machine.wake_at) is not None and at <= now_s:
                self._step(worker, WAKE)

    def _step(self, worker: Worker, input: Input) -> Effects:
        assert worker.machine is not None
        effects = worker.machine.step(input, self.seconds)
        for packet in effects.packets:
            to, forward = worker.ways[packet.kind]
            if self._write is not None:
                self._record(worker.name, f"send {packet.kind}.{packet.layer} e{packet.epoch}", packet.numbers)
            self._links[worker.name, to][not forward].carry(packet, self.now)
        for notice in effects.notices:
            self._record(worker.name, notice.what, notice.numbers)
        if effects.confirmed:
            self._news_at = self.now
        if worker is self._receiver:
            for run in effects.delivered:
                self._start_work(run)
        return effects

    # --- the worker at the end ---

    def _start_work(self, run: Run) -> None:
        ticks = math.ceil(self._faults.work_s / self.tick_s)
        if not ticks:
            self._end_work(run)
            return
        if self.now + ticks not in self._work:
            self._work[self.now + ticks] = []
            heappush(self._ticks, self.now + ticks)
        self._work[self.now + ticks].append(run)

    def _finish_work(self) -> None:
        for run in self._work.pop(self.now, ()):
            self._end_work(run)

    def _end_work(self, run: Run) -> None:
        if self._last_work is not None:
            run, failed = self._last_work(run)
            self._answer(Fail(run.epoch, failed))
        self.measure.arrived(run.payloads, self.now)
        self._news_at = self.now
        self._record("worker", "done", run.payloads)
        self._answer(Settle(run.epoch, run.numbers))

    def _answer(self, answer: Settle | Fail) -> None:
        machine = self._receiver.machine
        if isinstance(machine, ReceiverStack) and machine.settles:
            self._step(self._receiver, answer)

    # --- the source ---

    def _pump(self) -> None:
        machine = self._sender.machine
        sent = self.measure.sent
        left = self._messages - sent
        if machine is None or not left:
            return
        room = machine.room
        count = min(left, room, BURST_MAX, self._due(sent))
        if count > 0:
            effects = self._step(self._sender, Submit(range(sent, sent + count)))
            self.measure.submitted(len(effects.accepted), self.now)
            self._news_at = self.now
            self._record("source", "submit", range(sent, sent + len(effects.accepted)))
        if room > count and left > count:
            heappush(self._ticks, self._source_tick())

    def _source_tick(self) -> int:
        """When the source has its next message."""
        if not self._faults.rate:
            return self.now + 1
        seconds = (self.measure.sent + 1) / self._faults.rate
        return max(self._tick_of(seconds) - 1, self.now + 1)

    def _due(self, sent: int) -> int:
        """How many more the source's rate allows by now."""
        if not self._faults.rate:
            return BURST_MAX
        return int(self._faults.rate * (self.now + 1) * self.tick_s) - sent

    # --- crashes ---

    def _crash_due(self) -> None:
        while self._crashes and self._crashes[0].at <= self.measure.unique:
            self._crash(self._crashes.pop(0))

    def _crash(self, crash: Crash) -> None:
        self._record(crash.role, "crash", (crash.at,))
        up_at = self.now + math.ceil(crash.down_s / self.tick_s)
        if crash.role == "route":
            self._arrivals.clear()
            for link in self.links:
                link.down_until = up_at
        elif crash.role == "worker":
            self._crash_work()
        else:
            worker = self._by_name[crash.role.removesuffix("-loss")]
            worker.crash()
            if crash.role.endswith("-loss") and worker.lose is not None:
                worker.lose()
            worker.up_at = up_at
            if up_at <= self.now:
                worker.start()

    def _crash_work(self) -> None:
        """The worker at the end dies with its unfinished runs."""
        lost = [run for tick in sorted(self._work) for run in self._work[tick]]
        self._work.clear()
        for run in lost:
            self._answer(Fail(run.epoch, run.numbers))

    def _check_roles(self) -> None:
        disks = [f"{name}-loss" for name, worker in self._by_name.items() if worker.lose is not None]
        roles = [*self._by_name, *disks, "route", "worker"]
        for crash in self._crashes:
            if crash.role not in roles:
                hint = f"This route has: {', '.join(roles)}."
                raise BadRequest(f"there is no {crash.role!r} to crash", hint=hint)

    def _make_links(self, rng: Random) -> dict[tuple[str, str], tuple[LabLink, LabLink]]:
        """A link forwards and one back for every two workers that talk."""
        faults = self._faults
        record = None if self._write is None else self._record
        links: dict[tuple[str, str], tuple[LabLink, LabLink]] = {}
        for worker in self.workers:
            for to, _ in worker.ways.values():
                if (worker.name, to) in links:
                    continue
                rates = {**faults.rates, **worker.rates[to]}
                there = (float(rates["loss"]), float(rates["duplicate"]), float(rates["reorder"]))
                back = (float(rates["confirm_loss"]), 0.0, 0.0)
                name = f"{worker.name}>{to}"
                links[worker.name, to] = (
                    LabLink(name, there, faults, rng, partial(self._inbox, to), record),
                    LabLink(name, back, faults, rng, partial(self._inbox, to), record),
                )
        return links

    def _record(self, who: str, what: str, numbers: Sequence[int]) -> None:
        if self._write is not None:
            self._write(f"{self.now} {who} {what} {spans(numbers)}\n")


def _patience_s(faults: Faults, hops: list[Route]) -> float:
    """How much longer than without faults a run may have no news."""
    through = min(
        (1 - float(hop.rates.get("loss", faults.loss)))
        * (1 - float(hop.rates.get("confirm_loss", faults.confirm_loss)))
        * (1 - float(hop.worker_fails))
        for hop in hops
    )
    tries = math.log(CHANCE) / math.log(1 - through) if 0 < through < 1 else 0.0
    source_s = min(1 / faults.rate, SOURCE_WAIT_S_MAX) if faults.rate else 0.0
    down_s = sum(crash.down_s for crash in faults.crashes)
    return tries * TRY_S + source_s + down_s + 4 * faults.delay.mean_s + faults.work_s


def spans(numbers: Sequence[int]) -> str:
    """Numbers as text, those that follow each other as first-last."""
    parts: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda place: place[1] - place[0]):
        (_, first), *rest = group
        parts.append(f"{first}-{rest[-1][1]}" if rest else str(first))
    return ",".join(parts)
