"""A round that dirtied many logs: what making it durable costs, by the ways there are.

A round appends some bytes to each of N files, as N
busy shards do, and ends when all of them are durable. The ways:

- a sync a file, in the node's worker threads;
- ``syncfs`` once for all of them (it also waits for whatever else is dirty on the file system);
- one commit journal: the round's bytes in one write and one sync; the logs get theirs without one, and are
  synced each time the journal has reached its size, in other threads, before it is begun anew.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, quantile
from bench.limits import Limits

KIB = 1024
MIB = 1024 * KIB
RECORD_BYTES = 600
"""A segment of a few small messages, with its header."""
STEP_BYTES = MIB
JOURNAL_BYTES = 32 * MIB
THREADS = 4

Round = Callable[[], None]


class Appended:
    """A file with reserved room, appended to in blocks that were never written."""

    def __init__(self, path: Path, step_bytes: int = STEP_BYTES) -> None:
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.at = self.room = 0
        self.step_bytes = step_bytes

    def append(self, parts: list[bytes]) -> None:
        size = sum(map(len, parts))
        if self.at + size > self.room:
            step = -(-size // self.step_bytes) * self.step_bytes
            os.posix_fallocate(self.handle, self.room, step)
            self.room += step
        for start in range(0, len(parts), 1000):
            self.at += os.pwritev(self.handle, parts[start : start + 1000], self.at)

    def sync(self) -> None:
        os.fdatasync(self.handle)


def sync_a_file(files: list[Appended], data: bytes, pool: ThreadPoolExecutor) -> Round:
    def one(file: Appended) -> None:
        file.append([data])
        file.sync()

    return lambda: _all([pool.submit(one, file) for file in files])


def syncfs(files: list[Appended], data: bytes, pool: ThreadPoolExecutor) -> Round:
    system = ctypes.CDLL(None, use_errno=True)

    def run() -> None:
        for file in files:
            file.append([data])
        if system.syncfs(files[0].handle) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")

    return run


def commit_journal(files: list[Appended], data: bytes, pool: ThreadPoolExecutor) -> Round:
    folder = Path(f"/proc/self/fd/{files[0].handle}").readlink().parent
    journals = [Appended(folder / f"journal-{number}", JOURNAL_BYTES) for number in range(2)]
    for journal in journals:  # blocks that were written once: a sync of them waits for no metadata
        journal.append([bytes(MIB)] * (JOURNAL_BYTES // MIB))
        journal.sync()
        journal.at = 0
    syncing: list[Future[None]] = []

    def run() -> None:
        journal = journals[0]
        if journal.at + len(files) * len(data) > JOURNAL_BYTES:
            _all(syncing)  # the generation before must be done with
            syncing[:] = [pool.submit(file.sync) for file in files]
            journals.reverse()
            journal = journals[0]
            journal.at = 0
        journal.append([data] * len(files))
        journal.sync()
        for file in files:
            file.append([data])

    return run


def _all(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()


@contextmanager
def opened(folder: Path, count: int) -> Iterator[list[Appended]]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        files = [Appended(Path(place) / f"{number}.log") for number in range(count)]
        try:
            yield files
        finally:
            for file in files:
                os.close(file.handle)


def rounds(folder: Path, count: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each round, by way."""
    found: dict[str, list[float]] = {}
    data = os.urandom(RECORD_BYTES)
    for way in (sync_a_file, syncfs, commit_journal):
        with opened(folder, count) as files, ThreadPoolExecutor(THREADS) as pool:
            run = way(files, data, pool)
            run()
            times, until = [], time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                run()
                times.append((time.perf_counter() - began) * 1e3)
        found[way.__name__.replace("_", " ")] = times
    return found


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    for count in (1, 4, 40, 400):
        found = {way: quantile(times, 0.5) for way, times in rounds(folder, count, seconds).items()}
        base = found["sync a file"]
        figures += [
            Figure(f"a round of {count} logs by hand, {way}", value, "ms", "a sync a file", base)
            for way, value in found.items()
        ]
    return figures
