"""Each route of a sweep: how many runs agree with the calculus, and the largest deviation.

An interval at 0.999 misses the true value once in a thousand times, so a large sweep has disagreeing runs even
where every prediction is right. A route stands if chance makes so many of them likely, if every promised order
held, and if no run failed. Unfinished runs do not count.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pyarrow as pa

from headpond.pipes.lab.world import Ending

SURPRISE = 0.001
"""A route falls if chance alone makes so many disagreeing runs less likely than this."""


class RouteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One route of a sweep."""

    route: str
    runs: int
    failed: int
    promised: int
    """Finished runs of which the calculus promised something."""
    unfinished: int
    """Runs that ended at a limit before they were finished."""
    agreeing: int
    """Promised runs that agree in R, UR and order."""
    order_broken: int
    """Runs in which a promised order did not hold."""
    r_deviation_max: float | None
    """The largest distance of a measured R from the prediction; None if nothing was promised."""
    ur_deviation_max: float | None
    stands: bool
    """Whether the runs agree with the calculus, up to chance."""
    error: str | None
    """The error of the first run that failed."""


def summarize(runs: pa.Table) -> list[RouteSummary]:
    """The routes of a sweep, in the order of their first runs."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in runs.to_pylist():
        rows.setdefault(row["route"], []).append(row)
    return [_summary(route, its) for route, its in rows.items()]


def _summary(route: str, rows: list[dict[str, Any]]) -> RouteSummary:
    errors = [row["error"] for row in rows if row["error"] is not None]
    promised = [row for row in rows if row["promised"] and row["agrees"] is not None]
    agreeing = sum(row["agrees"] for row in promised)
    order_broken = sum(not row["order_agrees"] for row in promised)
    misses = sum((not row["r_agrees"]) + (not row["ur_agrees"]) for row in promised)
    miss = 1 - promised[0]["confidence"] if promised else 0.0
    likely = chance_of(misses, 2 * len(promised), miss) >= SURPRISE
    return RouteSummary(
        route=route,
        runs=len(rows),
        failed=len(errors),
        promised=len(promised),
        unfinished=sum(row["ended"] == Ending.UNFINISHED for row in rows),
        agreeing=agreeing,
        order_broken=order_broken,
        r_deviation_max=max((row["r_deviation"] for row in promised), default=None),
        ur_deviation_max=max((row["ur_deviation"] for row in promised), default=None),
        stands=likely and not order_broken and not errors,
        error=errors[0] if errors else None,
    )


def chance_of(misses: int, tries: int, miss: float) -> float:
    """The probability of at least so many misses in so many tries, each a miss with probability ``miss``."""
    fewer = sum(math.comb(tries, k) * miss**k * (1 - miss) ** (tries - k) for k in range(misses))
    return max(0.0, 1.0 - fewer)
