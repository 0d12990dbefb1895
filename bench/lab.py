"""Simulated messages per second in the lab, for each pipe: without faults and in bad weather. One core."""

from __future__ import annotations

import time
from pathlib import Path

from bench.figure import Figure
from bench.limits import Limits
from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.run import run

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


def messages_per_s(route: str, faults: Faults, messages: int) -> float:
    """In CPU seconds, so that a busy machine does not count twice."""
    begin = time.process_time()
    run(route, faults, messages, seed=0)
    return messages / (time.process_time() - begin)


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    for route, messages in ROUTES:
        calm, storm = (messages_per_s(route, faults, messages) for faults in (CALM, STORM))
        figures.append(Figure(f"lab, in a storm: {route}", storm, "messages/s", "without faults", calm))
    return figures
