"""Makes a failing plan smaller while it still breaks the same promise, so that its trace can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from headpond.sim.plan import WEATHER, Plan
from headpond.sim.world import Outcome

RUNS_MAX = 60


def minimise(plan: Plan, outcome: Outcome, run: Callable[[Plan], Outcome]) -> tuple[Plan, Outcome]:
    """The smallest plan found within ``RUNS_MAX`` runs, and its outcome."""
    broken = _check_of(outcome)
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            runs += 1
            if runs > RUNS_MAX:
                return plan, outcome
            found = run(candidate)
            if found.violations and _check_of(found) == broken:
                plan, outcome, smaller = candidate, found, True
                break
    return plan, outcome


def _check_of(outcome: Outcome) -> str:
    return outcome.violations[0].partition(":")[0]


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less, the most telling first."""
    for fault in plan.faults:
        yield replace(plan, faults={name: rate for name, rate in plan.faults.items() if name != fault})
    for name in WEATHER:
        if getattr(plan.weather, name):
            yield replace(plan, weather=replace(plan.weather, **{name: 0.0}))
    for subscription in plan.subscriptions:
        fewer = tuple(each for each in plan.subscriptions if each is not subscription)
        yield replace(plan, subscriptions=fewer)
    for producer in plan.producers:
        yield replace(plan, producers=tuple(each for each in plan.producers if each is not producer))
    for number, subscription in enumerate(plan.subscriptions):
        if subscription.consumers > 1:
            smaller = replace(subscription, consumers=subscription.consumers - 1)
            rest = plan.subscriptions
            yield replace(plan, subscriptions=(*rest[:number], smaller, *rest[number + 1 :]))
    if plan.seconds > 2:
        yield replace(plan, seconds=plan.seconds / 2)
