"""Routes in a row, ``A -> B``: a relay between them is the receiver of the one and the sender of the other.

Each route has a channel of its own, of the same kind. Copies compose: each that the first delivers is a message
to the second. What the relay does depends on the first route:

- ``confirm=settled``: confirms cascade. The first route confirms what the second has confirmed, and what the
  second has no room for comes again. Nothing is lost between them.
- otherwise the relay gives up what the second route has no room for, and tells it in a notice. Only a second
  route that keeps nothing always has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.calculus.carried import Carried, in_row, unsure_of_timers
from penstock.calculus.channel import Channel
from penstock.calculus.composition import check_composition
from penstock.calculus.declaration import Fault
from penstock.calculus.promise import NO_OUTLOOK, Breach, Outlook, Promise, outlook_of, promise_of
from penstock.calculus.route import Route, parse_route
from penstock.model.errors import BadRequest

HOPS_MAX = 8
ARROW = "->"
ARROW_BETWEEN = f" {ARROW} "


@dataclass(frozen=True, slots=True)
class ChainPromise:
    """Routes in a row, explained; mostly there is one."""

    hops: tuple[Promise, ...]
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


def chain_promise_of(chain: Sequence[Route] | str, channel: Channel | None = None) -> ChainPromise:
    """Explains routes in a row, each over such a channel; ``BadRequest`` for what cannot be built."""
    routes = parse_chain(chain) if isinstance(chain, str) else tuple(chain)
    for route in routes:
        check_composition(route)
    check_cascade(routes)
    channel = channel or Channel()
    hops = tuple(
        promise_of(route, _of_hop(channel, position, len(routes))) for position, route in enumerate(routes)
    )
    carried, remarks = _before_relay(hops[0], last=len(hops) == 1), list[str]()
    for number, (before, after) in enumerate(pairwise(hops), 2):
        spills = not before.route.settles and after.route.confirms
        carried = in_row(carried, _before_relay(after, last=number == len(hops)), spills=spills)
        if spills:
            remarks.append(
                f"the relay gives up what {after.route} has no room for; confirm=settled in {before.route} "
                "would make it wait"
            )
    holds = all(hop.holds for hop in hops)
    return ChainPromise(hops, outlook_of(carried) if holds else NO_OUTLOOK, tuple(remarks))


def _before_relay(hop: Promise, *, last: bool) -> Carried:
    if last or not hop.route.settles or hop.route.drops_repeats:
        return hop.carried
    return unsure_of_timers(hop.carried)


def _of_hop(channel: Channel, position: int, count: int) -> Channel:
    """A crash of the sender is one of the first, of the receiver one of the last; relays are not spoken of."""
    elsewhere = set[Fault]()
    if position > 0:
        elsewhere.add(Fault.SENDER_CRASH)
    if position < count - 1:
        elsewhere.add(Fault.RECEIVER_CRASH)
    return replace(channel, faults=channel.faults - elsewhere)
