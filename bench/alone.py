"""What a message costs whose sender waits for each answer: time, CPU, changes of threads and system calls.

The sender is a process of its own, as the node is. Changes of threads are those that the system counts for all
threads of a process; each is a wake-up of the next one. System calls are counted by strace in a second pass,
which is slow: there a spinning thread looks less often than it does without. Their names tell the looks
(`poll`, `epoll_pwait`) from the work. One `write` of the node is the mark of a sync that `bench/node.py` adds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import running_node

SENDS = 2000
NAMED = 4
"""How many system calls are named."""

_SENDER = """
import asyncio, json, os, sys, time

url, way, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
values = [os.urandom(100) for _ in range(count)]

def say(times):
    print(json.dumps(times), flush=True)
    return sys.stdin.readline()

def blocking():
    import headpond.sync
    with headpond.sync.connect(url) as client, client.producer(way) as producer:
        def run():
            for value in values:
                begun = time.perf_counter_ns()
                producer.send(value)
                yield time.perf_counter_ns() - begun
        while say(list(run())):
            pass

async def awaiting():
    import headpond
    async with await headpond.connect(url) as client, client.producer(way) as producer:
        while True:
            times = []
            for value in values:
                begun = time.perf_counter_ns()
                await producer.send(value)
                times.append(time.perf_counter_ns() - begun)
            if not say(times):
                return

blocking() if way == "blocking" else asyncio.run(awaiting())
"""


class Sender:
    """A program that sends ``SENDS`` messages one after the other whenever it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.times()

    def times(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def again(self) -> list[float]:
        """Microseconds of each."""
        assert self._process.stdin is not None
        print("again", file=self._process.stdin, flush=True)
        return [int(ns) / 1000 for ns in self.times().strip(" []\n").split(",")]


@contextmanager
def running_sender(url: str, way: str) -> Iterator[Sender]:
    command = [sys.executable, "-c", _SENDER, url, way, str(SENDS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Sender(process)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def changes(pid: int) -> int:
    """How often a thread of the process gave up its core."""
    files = Path(f"/proc/{pid}/task").glob("*/status")
    lines = [line for file in files for line in file.read_text().splitlines() if "ctxt_switches" in line]
    return sum(int(line.split()[1]) for line in lines)


def cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def system_calls(pid: int, sender: Sender, folder: Path) -> dict[str, float]:
    """Of one message, by name, the commonest first."""
    table = folder / "strace"
    command = ["strace", "-f", "-q", "-c", "-U", "calls,name", "-p", str(pid), "-o", str(table)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        time.sleep(1)  # until it is attached to every thread
        sender.again()
        tracer.terminate()
    rows = [line.split() for line in table.read_text().splitlines()]
    rows = [row for row in rows if len(row) == 2 and row[0].isdigit() and row[1] != "total"]
    counts = {name: int(calls) / SENDS for calls, name in rows}
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


def of(way: str, folder: Path) -> Iterator[Figure]:
    with running_node(folder) as node, running_sender(node.url, way) as sender:
        pids = {"client": sender.pid, "node": node.pid}
        before = {name: (cpu_s(pid), changes(pid)) for name, pid in pids.items()}
        times = sender.again()
        yield Figure(f"one {way} send, p50", quantile(times, 0.5), "µs")
        yield Figure(f"one {way} send, p99", quantile(times, 0.99), "µs")
        for name, pid in pids.items():
            cpu, changed = cpu_s(pid) - before[name][0], changes(pid) - before[name][1]
            yield Figure(f"one {way} send, CPU of the {name}", cpu / SENDS * 1e6, "µs")
            yield Figure(f"one {way} send, changes of threads, {name}", changed / SENDS, "")
        if shutil.which("strace") is None:
            return
        for name, pid in pids.items():
            calls = system_calls(pid, sender, folder)
            note = ", ".join(f"{call} {count:.1f}" for call, count in list(calls.items())[:NAMED])
            yield Figure(f"one {way} send, system calls, {name}", sum(calls.values()), "", note=note)


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    for way in ("blocking", "awaited"):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            figures += of(way, Path(place))
    return figures
