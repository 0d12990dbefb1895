"""1 M unacknowledged entries in one subscription: what they take of memory, and whether anything scans them.

The node's core runs in a process of its own, without sockets and threads; all of its memory is malloc's there
(``PYTHONMALLOC=malloc``), so that what is in use can be asked for exactly. A consumer is sent everything and
keeps it, in three patterns: nothing settled, every second entry acknowledged, every second one refused. Then
single settlements, spread over all entries, are timed, and redelivery, in CPU time; beside each the same with
1,000 entries.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figure import Figure
from bench.limits import Limits
from headpond.broker.settings import Settings
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import Settle, Subscribe
from headpond.wire.frame import FrameType, encode
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import segment_body, title_frame

FEW, MANY = 1000, 1_000_000
ROWS = 1000
SPANS = 10_000
"""Entries that one settlement names, where all are to be settled."""
SINGLE = 100
"""Settlements of one entry that are timed."""
DELAY_S = 60.0
PATTERNS = {"held": "all held", "acked": "every second acked", "nacked": "every second nacked"}


class _MallocUse(ctypes.Structure):
    _fields_ = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]


def used_bytes() -> int:
    """What malloc has given out (glibc's mallinfo2: uordblks and hblkhd)."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallocUse
    use = mallinfo()
    return int(use.field_7) + int(use.field_4)


class Reader:
    """A consumer that is sent everything; nothing is kept of it here, so that only the node's memory grows."""

    def __init__(self, folder: Path, entries: int) -> None:
        self.shell = CoreShell(OsDisk(folder), seed=1, settings=Settings(data=str(folder)), now_us=1_000_000)
        self.entries = entries
        self.settles = 0
        writer = self.shell.connect()
        info = read_result(writer.request(CreateTopic("t")), TopicInfo)
        writer.send(title_frame(b"b" * 16, info.uuid))
        body = segment_body([b"v"] * ROWS)
        for segment in range(entries // ROWS):
            writer.send(encode(FrameType.SEGMENT, body, segment=segment))
            self.shell.work_all()
            writer.events.clear()
        self.client: CoreClient = self.shell.connect()

    def subscribe(self) -> None:
        self.client.send(Subscribe(1, "t", "s", "unique", "non_resilient", "earliest", 1 << 30))
        while self.shell.pending:
            self.shell.work()
            self.client.events.clear()

    def settle(self, *, acked: Sequence[int] = (), nacked: Sequence[int] = ()) -> None:
        self.settles += 1
        spans = [(entry, entry + 1) for entry in acked]
        self.client.send(Settle(1, self.settles, 0, spans, nacked=[(entry, DELAY_S) for entry in nacked]))
        self.shell.work_all()
        self.client.events.clear()

    def every_second(self, what: str) -> None:
        for start in range(0, self.entries, 2 * SPANS):
            entries = list(range(start, min(start + 2 * SPANS, self.entries), 2))
            self.settle(**{what: entries})

    def single_us(self, what: str) -> float:
        """Of one settlement of one entry, spread over all; those of odd number are still held."""
        step, first = self.entries // SINGLE, 1 if what == "acked" else 3
        began = time.process_time()
        for number in range(SINGLE):
            self.settle(**{what: [number * step + first]})
        return (time.process_time() - began) / SINGLE * 1e6

    def redeliver_us(self) -> float:
        """Of one entry, when all that were refused fall due."""
        (cursor,) = next(iter(self.shell.core.stores.subscriptions.all())).cursors
        due = len(cursor.unacked_log.entries)
        began = time.process_time()
        self.shell.wait(round(DELAY_S * 2e6))
        while self.shell.pending:
            self.shell.work()
            self.client.events.clear()
        return (time.process_time() - began) / due * 1e6

    def lose_us(self) -> float:
        """Of one entry, when the consumer's connection is lost and all that it held is to go to the next."""
        held = len(next(iter(self.shell.core.stores.subscriptions.all())).cursors[0].held)
        began = time.process_time()
        self.shell.core.disconnected(len(self.shell.clients))
        self.shell.drain()
        self.shell.work_all()
        return (time.process_time() - began) / held * 1e6


def one(folder: str, entries: str, pattern: str) -> None:
    """The process of one measurement."""
    reader = Reader(Path(folder), int(entries))
    before = used_bytes()
    reader.subscribe()
    if pattern != "held":
        reader.every_second(pattern)
    found: dict[str, float] = {"memory": used_bytes() - before}
    for what in ("acked", "nacked"):
        found[what] = reader.single_us(what)
    if pattern == "nacked":
        found["redelivered"] = reader.redeliver_us()
    found["lost with its consumer"] = reader.lose_us()
    print(json.dumps(found))


def run(folder: Path, entries: int, pattern: str) -> dict[str, float]:
    program = "import sys; from bench.unacked import one; one(*sys.argv[1:])"
    with tempfile.TemporaryDirectory(dir=folder) as place:
        answer = subprocess.run(
            [sys.executable, "-c", program, place, str(entries), pattern],
            env={**os.environ, "PYTHONMALLOC": "malloc"},
            stdout=subprocess.PIPE,
            check=True,
        )
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    for pattern, name in PATTERNS.items():
        few, many = (run(folder, entries, pattern) for entries in (FEW, MANY))
        text, beside = f"{MANY:,} unacknowledged, {name}", f"the same with {FEW:,}"
        figures.append(Figure(f"{text}: memory", many["memory"] / 1e6, "MB", beside, few["memory"] / 1e6))
        figures += [
            Figure(f"{text}: one {what}", many[what], "µs", beside, few[what])
            for what in many
            if what != "memory"
        ]
    return figures
