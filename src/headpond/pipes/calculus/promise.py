"""The end-to-end promise of a composed route: declarations and copies folded pipe by pipe.

The numbers are those of the channel's rates. Faults without a rate are checked against what each pipe
tolerates; where they are tolerated, a promise may still lose its number ("some repeats, how many is not
known").

**Routes in a row**, ``A -> B``: a relay between them is the receiver of the one and the sender of the other.

Each route has its own channel, of the same kind unless its text gives it rates (``channel(loss=0.1) | …``).
Copies compose: each that the first delivers is a message to the second. The relay depends on the first route:

- ``confirm=settled``: confirms cascade. The first route confirms what the second has confirmed, and brings
  again a message that the second has no room for. Nothing is lost between them.
- otherwise the relay gives up messages that the second route has no room for, with a notice. Only a second
  route that keeps nothing always has room.

A relay, and the worker behind the last route, may crash (``CrashRole``). The messages that it works on then
come again if the route before it waits for them, and are lost if not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from headpond.pipes.calculus.declarations import OUTLASTED, Fault, Need, Tactic
from headpond.pipes.calculus.delivery import Channel, Copies, DeliveryMode, delivery, mode_of, product_law
from headpond.pipes.calculus.flow import (
    RateBounds,
    RouteFlow,
    carry,
    in_row,
    over_channel,
    unsure_of_timers,
    worked_on,
)
from headpond.pipes.calculus.orders import Order
from headpond.pipes.calculus.route import (
    Route,
    RouteStage,
    check_cascade,
    find_stage,
    parse_chain,
    parse_route,
)

NOT_KNOWN = RateBounds(Fraction(0), Fraction(1))
RESENDING = (
    Tactic.RESEND_ONE,
    Tactic.RESEND_MANY,
    Tactic.WAIT_FOR_CONFIRM,
    Tactic.ASK_GAPS,
    Tactic.ASK_GAPS_PASS_EQUAL,
)
LATE_DROPPING = (Tactic.DROP_LATE, Tactic.DROP_BELOW)

_REMEDIES: dict[Fault, str] = {
    Fault.SENDER_CRASH: (
        "Keep unconfirmed messages where a restart finds them (a producer's refill file does), or let the "
        "caller submit them again"
    ),
    Fault.RECEIVER_CRASH: (
        "Keep the receiver's state on disk, in one write with the messages that it sends on (a node's "
        "admission does)"
    ),
    Fault.STORAGE_LOSS: "Keep a second copy of the storage, or hold each message until it is delivered",
}


@dataclass(frozen=True, slots=True)
class Breach:
    """A need that is not met or a fault that is not tolerated: the route promises nothing from here on."""

    position: int
    """Which pipe of the route, from 0."""
    sentence: str
    mend: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """R, UR and order behind some pipe of a route."""

    reliability: RateBounds
    uniqueness: RateBounds
    order: Order | None
    copies: Copies | None
    """The whole distribution, where it is known."""

    @property
    def mode(self) -> DeliveryMode:
        return mode_of(self.reliability.low, self.uniqueness.low)


NO_OUTLOOK = Outlook(NOT_KNOWN, NOT_KNOWN, None, None)


@dataclass(frozen=True, slots=True)
class PromiseStep:
    """One pipe of a route, and the outlook behind it."""

    stage: RouteStage
    outlook: Outlook
    promised: bool
    """Whether the outlook is a promise: not from the first breach on."""
    breaches: tuple[Breach, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoutePromise:
    """A route over a channel, explained."""

    route: Route
    channel: Channel
    bare: Outlook
    """The outlook of the channel without any pipe."""
    steps: tuple[PromiseStep, ...]
    flow: RouteFlow
    """End to end, as if every breach were mended."""

    @property
    def outlook(self) -> Outlook:
        """End to end."""
        return self.steps[-1].outlook

    @property
    def breaches(self) -> tuple[Breach, ...]:
        return tuple(breach for step in self.steps for breach in step.breaches)

    @property
    def holds(self) -> bool:
        return not self.breaches


def promise_of(route: Route | str, channel: Channel | None = None) -> RoutePromise:
    """Explains a route over a channel; without one, over a channel without faults."""
    route = parse_route(route) if isinstance(route, str) else route
    channel = (channel or Channel()).with_rates(route.rates)
    flow = over_channel(channel)
    bare = outlook_of(flow)
    answering = channel if channel.confirm else Channel(faults=channel.faults)
    steps: list[PromiseStep] = []
    broken = False
    for position, stage in enumerate(route.stages):
        breaches = _breaches(route, position, flow, channel)
        broken = broken or bool(breaches)
        # Behind a breach the fold continues as if it were mended, so that each breach is reported once.
        beneath = over_channel(Channel()) if breaches else flow
        if stage.settles:  # the worker's failures keep its confirms away, so they count as losses beneath
            beneath = worked_on(beneath, route.worker_fails)
        flow = carry(beneath, stage, answering)
        outlook = NO_OUTLOOK if broken else outlook_of(flow)
        remarks = () if broken else _remarks(stage, beneath, flow)
        steps.append(PromiseStep(stage, outlook, not broken, breaches, remarks))
    if route.worker_fails and not route.settles:
        flow = worked_on(flow, route.worker_fails)
        remark = f"the worker loses {float(route.worker_fails):.4g} of its messages"
        if any("confirm" in stage.settings for stage in route.stages):
            remark += "; with confirm=settled they would come again"
        outlook = NO_OUTLOOK if broken else outlook_of(flow)
        steps[-1] = replace(steps[-1], outlook=outlook, remarks=(*steps[-1].remarks, remark))
    return RoutePromise(route, channel, bare, tuple(steps), flow)


def outlook_of(flow: RouteFlow) -> Outlook:
    # A fault without a rate leaves a distribution that nobody can know.
    rated = not flow.may_lose and not flow.may_repeat
    return Outlook(flow.reliability, flow.uniqueness, flow.order, flow.copies if rated else None)


# --- breaches ---------------------------------------------------------------------------------------


def _breaches(route: Route, position: int, beneath: RouteFlow, channel: Channel) -> tuple[Breach, ...]:
    stage = route.stages[position]
    unmet = [_unmet(need, route, position, beneath, channel) for need in stage.declaration.needs]
    small = _too_small(route, position, beneath)
    crashed = [_not_tolerated(fault, stage, position) for fault in Fault if fault in channel.faults]
    return tuple(breach for breach in (*unmet, small, *crashed) if breach is not None)


def _unmet(need: Need, route: Route, position: int, beneath: RouteFlow, channel: Channel) -> Breach | None:
    pipe = route.stages[position].pipe
    if need is Need.BACKTRACEABLE and not channel.confirm:
        sentence = f"{pipe} needs a backtraceable route, and no answer comes back over this one"
        return Breach(position, sentence, "Give the channel a way back, or use pipes that need no answers")
    if need is Need.ACCESSIBLE and beneath.least.lost == 1:
        sentence = f"{pipe} needs an accessible route, and nothing is sure to get through the one beneath"
        return Breach(position, sentence, "Lower the loss and the reordering of the channel below 1")
    if need is Need.AT_LEAST_ONCE:
        return _not_at_least_once(route, position, beneath)
    return None


def _not_at_least_once(route: Route, position: int, beneath: RouteFlow) -> Breach | None:
    if beneath.reliability.low == 1:
        return None
    asked = f"{route.stages[position]} needs a route that delivers at least once, and the one beneath"
    sentence = f"{asked} {_loses(beneath)}: it would wait for ever for the first message lost"
    mended = Route((*route.stages[:position], find_stage("resend_many", {}), *route.stages[position:]))
    mend = f"Put resend, resend_many or stream beneath it: {mended}"
    return Breach(position, sentence, mend)


def _too_small(route: Route, position: int, beneath: RouteFlow) -> Breach | None:
    stage = route.stages[position]
    need = stage.declaration.room
    if need is None or int(stage.settings[need.parameter]) >= beneath.span:
        return None
    name, value, span = need.parameter, int(stage.settings[need.parameter]), beneath.span
    has = f"{stage.pipe} has {name}={value}, and beneath it a message may come {span:,} others late"
    mended = route.with_setting(position, name, span)
    mend = f"Write {name}={span}, or let less be on its way beneath: {mended}"
    return Breach(position, f"{has}: {need.otherwise}", mend)


def _loses(beneath: RouteFlow) -> str:
    if beneath.may_lose:
        return "loses the messages on it when it fails"
    lost = 1 - beneath.reliability.low
    share = f"{float(lost):.4g} of all messages"
    return f"loses {share}" if beneath.reliability.exact else f"may lose up to {share}"


def _not_tolerated(fault: Fault, stage: RouteStage, position: int) -> Breach | None:
    reason = stage.declaration.does_not_tolerate.get(fault)
    if reason is None:
        return None
    tried_on = "Leave tries out, so that each message is sent until it is confirmed"
    mend = tried_on if reason == OUTLASTED else _REMEDIES[fault]
    return Breach(position, f"{stage.pipe} does not tolerate a {fault}: {reason}", mend)


# --- remarks ----------------------------------------------------------------------------------------


def _remarks(stage: RouteStage, beneath: RouteFlow, flow: RouteFlow) -> tuple[str, ...]:
    tactic = stage.declaration.tactic
    remarks: list[str] = []
    if tries := stage.settings.get("tries"):
        remarks.append(f"R = 1 − (1 − r)^{tries}, r being R beneath; the sender reports what it gives up")
    elif tactic in RESENDING:
        remarks.append("R → 1 as long as the sender lives and keeps trying")
    if tactic in (Tactic.RESEND_ONE, Tactic.RESEND_MANY) and not beneath.punctual:
        remarks.append(
            f"messages wait beneath, longer than {stage.pipe} can foresee, and it sends needless copies; one "
            "pipe that sends again is enough"
        )
    if tactic in LATE_DROPPING and beneath.overtakes:
        remarks.append(
            f"messages overtake each other beneath, and {stage.pipe} drops late ones; continuous would wait "
            "for them"
        )
    if not flow.reliability.exact or not flow.uniqueness.exact:
        remarks.append(
            "a range means that the rates leave it open: it depends on delays, or on how often a fault happens"
        )
    return tuple(remarks)


# --- routes in a row ---------------------------------------------------------------------------------


class CrashRole(StrEnum):
    """Who, between and behind the routes, may crash with the messages that it works on."""

    RELAY = "relay crash"
    WORKER = "worker crash"


@dataclass(frozen=True, slots=True)
class ChainPromise:
    """Routes in a row, explained; mostly there is one."""

    hops: tuple[RoutePromise, ...]
    outlook: Outlook
    """End to end."""
    remarks: tuple[str, ...]
    """About the relays."""

    @property
    def breaches(self) -> tuple[Breach, ...]:
        return tuple(breach for hop in self.hops for breach in hop.breaches)

    @property
    def holds(self) -> bool:
        return not self.breaches


def chain_promise_of(
    chain: Sequence[Route] | str, channel: Channel | None = None, crashes: frozenset[CrashRole] = frozenset()
) -> ChainPromise:
    """Explains routes in a row, each over such a channel; ``BadRequest`` for what cannot be built."""
    routes = parse_chain(chain) if isinstance(chain, str) else tuple(chain)
    check_cascade(routes)
    channel = channel or Channel()
    hops = tuple(
        promise_of(route, _of_hop(channel, position, len(routes))) for position, route in enumerate(routes)
    )
    remarks: list[str] = []
    *before_relays, last = hops
    relayed = [_relayed(hop, remarks, crashes=CrashRole.RELAY in crashes) for hop in before_relays]
    behind = _crashed(last, "the worker", remarks) if CrashRole.WORKER in crashes else last.flow
    flow, *rest = (*relayed, behind)
    for (before, after), second in zip(pairwise(hops), rest, strict=True):
        spills = not before.route.settles and after.route.confirms
        flow = in_row(flow, second, spills=spills)
        if spills:
            mend = _mend(before.route)
            remarks.append(f"the relay gives up messages that {after.route} has no room for; {mend}")
    remarks += _by_product(hops)
    holds = all(hop.holds for hop in hops)
    return ChainPromise(hops, outlook_of(flow) if holds else NO_OUTLOOK, tuple(remarks))


def _mend(before: Route) -> str:
    """How to make a relay wait instead of giving up."""
    if any("confirm" in stage.settings for stage in before.stages):
        return f"confirm=settled in {before} would make it wait"
    return f"{before} confirms nothing, so nobody brings them again; resend_many(confirm=settled) would"


def _relayed(hop: RoutePromise, remarks: list[str], *, crashes: bool) -> RouteFlow:
    """The flow of a hop to the relay behind it."""
    if crashes:
        return _crashed(hop, "the relay", remarks)
    if hop.route.settles and not hop.route.drops_repeats:
        return unsure_of_timers(hop.flow)
    return hop.flow


def _crashed(hop: RoutePromise, who: str, remarks: list[str]) -> RouteFlow:
    """A relay starts a new session after a crash, in which nobody knows a repeat of an earlier one."""
    if hop.route.settles:
        remarks.append(f"after a crash, the messages of {who} behind {hop.route} come again")
        return unsure_of_timers(hop.flow)
    remarks.append(f"a crash loses the messages of {who} behind {hop.route}; {_mend(hop.route)}")
    return replace(hop.flow, may_lose=True, may_repeat=True, unique=False, stale=True)


def _by_product(hops: Sequence[RoutePromise]) -> list[str]:
    """The product law beside the exact one, where they differ."""
    copies = [hop.flow.copies for hop in hops]
    known = [each for each in copies if each is not None]
    if len(known) < len(hops) or (by_product := product_law(known)) == delivery(reduce(Copies.then, known)):
        return []
    r, ur = float(by_product.reliability), float(by_product.uniqueness)
    return [f"the product law would give R {r:.6g}, UR {ur:.6g}: it forgets that a repeat is a second chance"]


def _of_hop(channel: Channel, position: int, count: int) -> Channel:
    """A crash of the sender is one of the first route, of the receiver one of the last."""
    elsewhere = set[Fault]()
    if position > 0:
        elsewhere.add(Fault.SENDER_CRASH)
    if position < count - 1:
        elsewhere.add(Fault.RECEIVER_CRASH)
    return replace(channel, faults=channel.faults - elsewhere)
