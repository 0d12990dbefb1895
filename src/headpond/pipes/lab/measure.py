"""The results of a run, R, UR, orders and latency, and whether they agree with what the calculus expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import msgspec

from headpond.pipes.calculus.declarations import Fault
from headpond.pipes.calculus.delivery import LATE_MAX, Channel
from headpond.pipes.calculus.flow import RateBounds
from headpond.pipes.calculus.interval import CopyTally, tally
from headpond.pipes.calculus.orders import Order, OrderCheck, implies, meet
from headpond.pipes.calculus.promise import ChainPromise, CrashRole, chain_promise_of
from headpond.pipes.calculus.route import Route
from headpond.pipes.lab.faults import BURST_MAX, Faults
from headpond.pipes.machines.timeout import TimeoutSettings

COPIES_MAX = 255
"""Copies of one message that are counted; more count as this many."""


class Latency(msgspec.Struct, frozen=True):
    """From the moment a message was taken to its first arrival, in seconds of the run; None if none arrived."""

    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    p999_s: float | None
    max_s: float | None


class Measure:
    """Counts arrivals. Messages are numbered in the order in which the route took them."""

    def __init__(self, messages: int, tick_s: float) -> None:
        self.received = 0
        self.unique = 0
        self._copies = bytearray(messages)
        self._taken_at: list[int] = []
        self._order = OrderCheck()
        self._latency: Counter[int] = Counter()
        self._tick_s = tick_s

    def submitted(self, count: int, now: int) -> None:
        self._taken_at += [now] * count

    @property
    def sent(self) -> int:
        return len(self._taken_at)

    def arrived(self, messages: Sequence[int], now: int) -> None:
        copies = self._copies
        fresh: list[int] = []
        for message in messages:
            count = copies[message]
            if not count:
                fresh.append(message)
            if count < COPIES_MAX:
                copies[message] = count + 1
        self.received += len(messages)
        self.unique += len(fresh)
        for taken_at, count in Counter(map(self._taken_at.__getitem__, fresh)).items():
            self._latency[now - taken_at] += count
        self._order.take(messages)

    @property
    def tally(self) -> CopyTally:
        """Of the messages that the route took."""
        return tally(self._copies[: self.sent])

    @property
    def order(self) -> Order | None:
        """The strongest that held."""
        return self._order.order

    @property
    def missing(self) -> list[int]:
        """Messages that never arrived."""
        return [message for message, count in enumerate(self._copies[: self.sent]) if not count]

    def latency(self) -> Latency:
        ticks = sorted(self._latency.items())
        shares = (0.5, 0.9, 0.99, 0.999, 1.0)
        return Latency(*(self._percentile(ticks, share) for share in shares))

    def _percentile(self, ticks: list[tuple[int, int]], share: float) -> float | None:
        needed = share * self.unique
        passed = 0
        for tick, count in ticks:
            passed += count
            if passed >= needed:
                return round(tick * self._tick_s, 9)
        return None


# --- the prediction --------------------------------------------------------------------------------

FAULT_OF_ROLE = {
    "sender": Fault.SENDER_CRASH,
    "receiver": Fault.RECEIVER_CRASH,
    "storage": Fault.STORAGE_CRASH,
    "storage-loss": Fault.STORAGE_LOSS,
    "route": Fault.ROUTE_FAILURE,
}
CRASH_OF_ROLE = {"relay": CrashRole.RELAY, "worker": CrashRole.WORKER}


class Predicted(msgspec.Struct, frozen=True):
    """What the route promises; from-to where the rates leave it open, nothing where it is broken."""

    holds: bool
    """Whether every pipe's needs are met and every fault is tolerated."""
    reliability_low: float
    reliability_high: float
    uniqueness_low: float
    uniqueness_high: float
    order: str | None
    breaches: tuple[str, ...]
    agrees: bool | None
    """Whether the run agrees; None if nothing was promised, or if the run was not finished."""
    sentences: tuple[str, ...]


def predict(
    hops: list[Route], faults: Faults, tally: CopyTally, order: Order | None, *, finished: bool
) -> Predicted | None:
    """None where the calculus has no word for it: a crash of an index storage, or of a second hop's storage."""
    roles = {"relay" if crash.role.startswith("relay") else crash.role for crash in faults.crashes}
    if not roles <= {*FAULT_OF_ROLE, *CRASH_OF_ROLE}:
        return None
    channel = _channel(faults, tally.sent, roles)
    crashes = frozenset(crash for role, crash in CRASH_OF_ROLE.items() if role in roles)
    promise = chain_promise_of(_own_rates(hops, faults), channel, crashes)
    reliability, uniqueness, expected = _expected(promise, hops, faults)
    agrees: bool | None = None
    sentences: tuple[str, ...] = ()
    if promise.holds and not finished:
        sentences = ("no verdict: the run was not finished",)
    elif promise.holds:
        found = (
            tally.reliability().compare("R", reliability.low, reliability.high),
            tally.uniqueness().compare("UR", uniqueness.low, uniqueness.high),
        )
        in_order = implies(order, expected)
        verb = "agrees" if in_order else "DISAGREES"
        order_sentence = f"measured order {order or 'none'} {verb} with predicted {expected or 'none'}"
        agrees = in_order and all(fits for fits, _ in found)
        sentences = (*(sentence for _, sentence in found), order_sentence)
    return Predicted(
        promise.holds,
        float(reliability.low),
        float(reliability.high),
        float(uniqueness.low),
        float(uniqueness.high),
        None if expected is None else str(expected),
        tuple(f"{breach.sentence}. {breach.mend}." for breach in promise.breaches),
        agrees,
        sentences,
    )


def _expected(
    promise: ChainPromise, hops: list[Route], faults: Faults
) -> tuple[RateBounds, RateBounds, Order | None]:
    """R, UR and order as promised, less the effect of timers that are not sure."""
    outlook, last = promise.outlook, hops[-1]
    uniqueness, expected = outlook.uniqueness, outlook.order
    late_confirms = bool(faults.work_s) and last.settles and not last.drops_repeats
    if late_confirms or not _timers_are_sure(faults):
        # A pipe that recognises repeats drops needless copies; the others are as unique as that, or less.
        if not all(hop.drops_repeats for hop in hops):
            uniqueness = RateBounds(Fraction(0), uniqueness.high)
        # Needless copies come late, too: only the order that the last pipes themselves give is left.
        for hop in hops:
            expected = meet(expected, hop.stages[-1].declaration.order)
    return outlook.reliability, uniqueness, expected


def _timers_are_sure(faults: Faults) -> bool:
    """Whether a timer never runs out while a confirm is still on its way.

    The calculus counts copies of messages whose confirm was lost. Where delays vary, or are longer than the
    first timeout, some are sent again although their confirm would have come: UR is then as promised, or less.
    """
    mean_s = faults.delay.mean_s
    late_s = faults.late_s if faults.reorder else mean_s
    round_trip_max_s = 2 * mean_s + late_s
    return faults.delay.is_fixed and late_s <= mean_s and round_trip_max_s < TimeoutSettings().initial_s


def _own_rates(hops: list[Route], faults: Faults) -> list[Route]:
    """The hops with the rates of their channels, as far as they hold: delays that vary put all out of order."""
    if faults.delay.is_fixed:
        return hops
    return [
        replace(hop, rates={name: rate for name, rate in hop.rates.items() if name != "reorder"})
        for hop in hops
    ]


def _channel(faults: Faults, sent: int, roles: set[str]) -> Channel:
    return Channel(
        loss=Fraction(str(faults.loss)),
        duplicate=Fraction(str(faults.duplicate)),
        # Messages that take different times overtake each other, however few are made late on purpose.
        reorder=Fraction(str(faults.reorder)) if faults.delay.is_fixed else Fraction(1),
        late=min(max(_late(faults, sent), 1), LATE_MAX),
        confirm_loss=Fraction(str(faults.confirm_loss)),
        faults=frozenset(fault for role, fault in FAULT_OF_ROLE.items() if role in roles),
    )


def _late(faults: Faults, sent: int) -> int:
    """How many messages can overtake one of them; all of them where delays have no end."""
    if not faults.delay.is_fixed:
        return sent
    ticks = max(round(faults.late_s / faults.tick_s), 1) + 1
    return min(ticks * BURST_MAX, sent)
