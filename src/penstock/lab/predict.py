"""What the calculus expects of a run, and whether what was measured agrees."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from penstock.calculus.carried import Bounds
from penstock.calculus.channel import Channel
from penstock.calculus.declaration import Fault
from penstock.calculus.interval import Tally
from penstock.calculus.orders import Order, implies, meet
from penstock.calculus.promise import promise_of
from penstock.calculus.route import Route
from penstock.lab.faults import Faults
from penstock.pipes.timeout import TimeoutSettings

FAULT_OF_ROLE = {
    "sender": Fault.SENDER_CRASH,
    "receiver": Fault.RECEIVER_CRASH,
    "storage": Fault.STORAGE_CRASH,
    "storage-loss": Fault.STORAGE_LOSS,
    "route": Fault.ROUTE_FAILURE,
}

DROPS_REPEATS = "sequential"
"""The directory's passes on what the route beneath repeats. Ours knows its last number and drops that, so its
UR is the promised one or better, and so is its order."""


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
    """Whether the run agrees; None if nothing was promised."""
    sentences: tuple[str, ...]


def predict(hops: list[Route], faults: Faults, tally: Tally, order: Order | None) -> Predicted | None:
    """None where the calculus has no word for it: hops in a row, or a crash of a worker it does not know."""
    if len(hops) > 1 or any(crash.role not in FAULT_OF_ROLE for crash in faults.crashes) or faults.work_s:
        return None
    promise = promise_of(hops[0], _channel(faults))
    outlook = promise.outlook
    reliability, uniqueness = outlook.reliability, outlook.uniqueness
    if any(stage.pipe == DROPS_REPEATS for stage in hops[0].stages):
        uniqueness = Bounds(uniqueness.low, Fraction(1))
    expected = outlook.order
    if not _timers_are_sure(faults):
        uniqueness = Bounds(Fraction(0), uniqueness.high)
        # Copies sent needlessly come late, too: what is left is what the last pipe itself puts in order.
        expected = meet(expected, hops[0].stages[-1].declaration.order)
    agrees: bool | None = None
    sentences: tuple[str, ...] = ()
    if promise.holds:
        found = (
            tally.reliability().compare("R", reliability.low, reliability.high),
            tally.uniqueness().compare("UR", uniqueness.low, uniqueness.high),
        )
        kept = implies(order, expected)
        verb = "agrees" if kept else "DISAGREES"
        order_sentence = f"measured order {order or 'none'} {verb} with predicted {expected or 'none'}"
        agrees = kept and all(each.agrees for each in found)
        sentences = (*(each.sentence for each in found), order_sentence)
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


def _timers_are_sure(faults: Faults) -> bool:
    """Whether a timer never runs out while a confirm is still on its way.

    The calculus counts copies of messages whose confirm was lost. Where delays vary, or are longer than the
    first timeout, some are sent again although their confirm would have come: UR is then what was promised, or
    less.
    """
    mean_s = faults.delay.mean_s
    late_s = mean_s if faults.reorder_s is None or not faults.reorder else faults.reorder_s
    round_trip_max_s = 2 * mean_s + late_s
    return faults.delay.is_fixed and late_s <= mean_s and round_trip_max_s < TimeoutSettings().initial_s


def _channel(faults: Faults) -> Channel:
    return Channel(
        loss=Fraction(str(faults.loss)),
        duplicate=Fraction(str(faults.duplicate)),
        # Messages that take different times overtake each other, however few are made late on purpose.
        reorder=Fraction(str(faults.reorder)) if faults.delay.is_fixed else Fraction(1),
        confirm_loss=Fraction(str(faults.confirm_loss)),
        faults=frozenset(FAULT_OF_ROLE[crash.role] for crash in faults.crashes),
    )
