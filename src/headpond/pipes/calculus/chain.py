"""Routes in a row, ``A -> B``: a relay between them is the receiver of the one and the sender of the other.

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
from itertools import pairwise

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.channel import Channel
from headpond.pipes.calculus.declarations import Fault
from headpond.pipes.calculus.delivery import compare_laws
from headpond.pipes.calculus.flow import RouteFlow, in_row, unsure_of_timers
from headpond.pipes.calculus.promise import NO_OUTLOOK, Breach, Outlook, RoutePromise, outlook_of, promise_of
from headpond.pipes.calculus.route import Route, check_composition, parse_route


class CrashRole(StrEnum):
    """Who, between and behind the routes, may crash with the messages that it works on."""

    RELAY = "relay crash"
    WORKER = "worker crash"


HOPS_MAX = 8
ARROW = "->"
ARROW_BETWEEN = f" {ARROW} "


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


def parse_chain(text: str) -> tuple[Route, ...]:
    """The routes of a text, in the order a message passes them."""
    parts = text.split(ARROW)
    if len(parts) > HOPS_MAX:
        raise BadRequest(f"the route has {len(parts)} hops, and {HOPS_MAX} are allowed")
    return tuple(parse_route(part.strip()) for part in parts)


def check_cascade(hops: Sequence[Route]) -> None:
    """``BadRequest`` where a route would wait for confirms that the next one does not have."""
    for before, after in pairwise(hops):
        if before.settles and not after.confirms:
            hint = "Put resend, resend_many or sequential into it, or leave confirm=settled out before it."
            raise BadRequest(f"confirms cannot cascade over {after}, which has none", hint=hint)


def chain_promise_of(
    chain: Sequence[Route] | str, channel: Channel | None = None, crashes: frozenset[CrashRole] = frozenset()
) -> ChainPromise:
    """Explains routes in a row, each over such a channel; ``BadRequest`` for what cannot be built."""
    routes = parse_chain(chain) if isinstance(chain, str) else tuple(chain)
    for route in routes:
        check_composition(route)
    check_cascade(routes)
    channel = channel or Channel()
    hops = tuple(
        promise_of(route, _of_hop(channel, position, len(routes))) for position, route in enumerate(routes)
    )
    remarks: list[str] = []
    *before_relays, last = hops
    relayed = [_relayed(hop, remarks, crashes=CrashRole.RELAY in crashes) for hop in before_relays]
    flow, *rest = (*relayed, _worked(last, remarks, crashes=CrashRole.WORKER in crashes))
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


def _worked(hop: RoutePromise, remarks: list[str], *, crashes: bool) -> RouteFlow:
    """The flow of the last hop to the worker behind it."""
    return _crashed(hop, "the worker", remarks) if crashes else hop.flow


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
    if len(known) < len(hops) or (laws := compare_laws(*known)).agree:
        return []
    r, ur = float(laws.product.reliability), float(laws.product.uniqueness)
    return [f"the product law would give R {r:.6g}, UR {ur:.6g}: it forgets that a repeat is a second chance"]


def _of_hop(channel: Channel, position: int, count: int) -> Channel:
    """A crash of the sender is one of the first route, of the receiver one of the last."""
    elsewhere = set[Fault]()
    if position > 0:
        elsewhere.add(Fault.SENDER_CRASH)
    if position < count - 1:
        elsewhere.add(Fault.RECEIVER_CRASH)
    return replace(channel, faults=channel.faults - elsewhere)
