"""One run of a route under faults, from a seed: ``run(route, faults, messages, seed)``.

A plain function of plain values, whose result can be pickled or written as JSON, so that a cluster can run
many at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from random import Random

import msgspec

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.interval import Interval
from headpond.pipes.calculus.orders import held_orders
from headpond.pipes.calculus.route import parse_chain
from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.measure import Latency, Predicted, predict
from headpond.pipes.lab.world import Ending, World

MESSAGES_MAX = 100_000_000
MISSING_SHOWN = 20


class LabResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a run, and the prediction."""

    route: str
    faults: Faults
    messages: int
    seed: int
    ended: str
    """``idle``: nothing was left to happen. ``quiet``: all was sent and confirmed, and a reader still asked for
    more. ``unfinished``: workers still tried, or not all was sent, and nothing arrived for very long."""
    simulated_s: float
    sent: int
    """Messages that the route took."""
    unique: int
    """Of those, how many arrived."""
    received: int
    """Copies that arrived."""
    reliability: Interval
    uniqueness: Interval
    orders: list[str]
    """All the orders that the arrivals had."""
    missing: list[int]
    """The first messages that never arrived."""
    transmissions: int
    """Messages and answers put on a link, repetitions included."""
    retransmissions: int
    """Messages put on a link again by their sender."""
    latency: Latency
    workers: dict[str, dict[str, int]]
    """The counts of each worker, without zeros."""
    predicted: Predicted | None


def run(
    route: str,
    faults: Faults | None = None,
    messages: int = 10_000,
    seed: int = 0,
    trace: Callable[[str], object] | None = None,
) -> LabResult:
    """Sends messages over the route and measures the arrivals; calls ``trace`` with each line of events."""
    faults = faults or Faults()
    faults.check()
    if not 1 <= messages <= MESSAGES_MAX:
        raise BadRequest(f"a run has from 1 to {MESSAGES_MAX:,} messages, not {messages:,}")
    hops = list(parse_chain(route))
    world = World(hops, faults, messages, Random(seed), trace)
    world.run()
    measure = world.measure
    tally = measure.tally
    finished = world.ended is not Ending.UNFINISHED and tally.sent == messages
    return LabResult(
        route=" -> ".join(map(str, hops)),
        faults=faults,
        messages=messages,
        seed=seed,
        ended=str(world.ended),
        simulated_s=round(world.seconds, 9),
        sent=tally.sent,
        unique=tally.unique,
        received=measure.received,
        reliability=tally.reliability(),
        uniqueness=tally.uniqueness(),
        orders=[str(each) for each in held_orders(measure.order)],
        missing=measure.missing[:MISSING_SHOWN],
        transmissions=sum(link.carried for link in world.links),
        retransmissions=sum(worker.counts.resent for worker in world.workers),
        latency=measure.latency(),
        workers={
            worker.name: {name: count for name, count in asdict(worker.counts).items() if count}
            for worker in world.workers
        },
        predicted=predict(hops, faults, tally, measure.order, finished=finished),
    )
