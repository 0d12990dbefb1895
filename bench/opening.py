"""Starting a node with many logs: how long it takes until it is ready, and how many syncs that costs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from bench.limits import Limits
from bench.node import running_node
from bench.sender import Sender

LOGS = 1024
ROUNDS = 3


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        with running_node(Path(place)) as node:
            sender = Sender(node.address, "many", shards=LOGS)
            for _ in range(ROUNDS):
                sender.round(LOGS)
            made = node.syncs()
            sender.close()
        (Path(place) / "syncs").unlink()
        began = time.perf_counter()
        with running_node(Path(place)) as node:
            spent, opened = time.perf_counter() - began, node.syncs()
    return [
        Figure(f"making {LOGS:,} logs, {ROUNDS} messages each: syncs", made, "syncs", "a log", LOGS),
        Figure(f"opening {LOGS:,} logs: syncs", opened, "syncs", "a log", LOGS),
        Figure(f"opening {LOGS:,} logs: until it is ready", spent, "s"),
    ]
