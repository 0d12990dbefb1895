"""Simulated messages a second in the lab, for each pipe: without faults and in bad weather. One core."""

from __future__ import annotations

import argparse
import json
import time

from penstock.lab.faults import Faults
from penstock.lab.run import run

CALM = Faults()
STORM = Faults(loss=0.2, duplicate=0.05, reorder=0.1, confirm_loss=0.1)
ROUTES = [
    ("resend_many", 200_000),
    ("resend_many(window=64)", 50_000),
    ("resend_many | dedup", 200_000),
    ("resend_many | dedup | index", 100_000),
    ("resend_many | continuous", 100_000),
    ("stream", 100_000),
    ("stream | dedup", 100_000),
    ("index", 200_000),
    ("dedup", 200_000),
    ("continuous", 100_000),
    ("resend_many(confirm=settled) -> resend_many", 50_000),
    # One message on its way at a time: the cost of a round trip, not of a message.
    ("resend", 5_000),
    ("sequential", 5_000),
]


def messages_per_s(route: str, faults: Faults, messages: int, repeat: int) -> float:
    """The best of a few runs; CPU seconds, so that a busy machine does not count twice."""
    best = float("inf")
    for seed in range(repeat):
        begin = time.process_time()
        run(route, faults, messages, seed)
        best = min(best, time.process_time() - begin)
    return messages / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [
        {
            "route": route,
            "calm_per_s": round(messages_per_s(route, CALM, messages, options.repeat)),
            "storm_per_s": round(messages_per_s(route, STORM, messages, options.repeat)),
        }
        for route, messages in ROUTES
    ]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'ROUTE':45}  {'CALM/s':>10}  {'STORM/s':>10}")
    for row in rows:
        print(f"{row['route']:45}  {row['calm_per_s']:>10,}  {row['storm_per_s']:>10,}")


if __name__ == "__main__":
    main()
