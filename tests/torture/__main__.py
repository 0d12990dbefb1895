"""``make torture``: one run, its progress and its scoreboard."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headpond.sim.history import Batch, Delivered, Read, Settled
from tests.fire.real_node import NODE
from tests.torture.cast import CLUSTER, PARTS, cast
from tests.torture.checks import judge, with_merged_batches
from tests.torture.faults import live
from tests.torture.journal import load
from tests.torture.machinery import Troupe
from tests.torture.observer import Stuck, finish, read_all, watch
from tests.torture.small_disk import INSIDE, enter_namespace

PROGRESS_S = 5.0
BROKEN = (sys.executable, str(Path(__file__).with_name("broken_node.py")))
SHOWN_CHECKS = ("lost", "altered", "repeated", "order", "batches", "ledger", "returned", "liveness")
"""Promises whose violations are counted though there are none."""
SHOWN_MAX = 5
"""Violations of each check that are shown."""
VIOLATION_MAX = 500
"""Characters."""


@dataclass
class Scoreboard:
    """What a run did and found."""

    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [("minutes", f"{self.seconds / 60:.1f}")]
        lines += [
            (name, f"{count:,}") for name, count in (self.counts | dict(sorted(self.faults.items()))).items()
        ]
        broken = Counter(each.partition(":")[0].partition(" at ")[0] for each in self.violations)
        lines.append(("violations", f"{len(self.violations):,}"))
        lines += [(f"  {name}", f"{broken[name]:,}") for name in dict.fromkeys([*SHOWN_CHECKS, *broken])]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text:>12}" for name, text in lines)


async def run(folder: Path, given: argparse.Namespace) -> Scoreboard:
    board, began_s = Scoreboard(), time.monotonic()
    here = asyncio.current_task()
    assert here is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, here.cancel)
    command = (*BROKEN, given.broken, "node") if given.broken else NODE
    parts, seed = given.parts.split(","), given.seed
    troupes = [Troupe(part, folder, seed, command, flooded=given.flood) for part in cast(parts, seed)]
    progress = asyncio.create_task(show_progress(troupes, began_s))
    performing = [
        asyncio.create_task(perform(troupe, 60 * given.minutes, given.failures)) for troupe in troupes
    ]
    try:
        await asyncio.wait(performing, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        progress.cancel()
        for troupe in troupes:
            troupe.kill()
    for troupe, performed in zip(troupes, performing, strict=True):
        board.faults += troupe.faults
        board.violations += troupe.violations
        if performed.done():
            performed.result()
    board.violations += count_and_judge(board, folder, troupes)
    for troupe in troupes:
        troupe.unmount(folder / "kept" if board.violations else None)
    board.seconds = time.monotonic() - began_s
    return board


async def perform(troupe: Troupe, seconds: float, failures: int | None) -> None:
    """A part of the run: faults, healing, and everything that is there in the end."""
    await troupe.start()
    keeping = [asyncio.create_task(troupe.keep_up(victim)) for victim in troupe.victims]
    keeping.append(asyncio.create_task(watch(troupe)))
    try:
        await live(troupe, seconds, failures)
        troupe.heal()
        (troupe.folder / "calm").touch()
        await finish(troupe)
    except (Stuck, TimeoutError) as stuck:
        troupe.violations.append(f"liveness: {troupe.part.name}: {stuck!r}")
    finally:
        for task in keeping:
            task.cancel()
        for worker in troupe.workers:
            worker.kill()
    await read_all(troupe)
    await troupe.close()


def count_and_judge(board: Scoreboard, folder: Path, troupes: list[Troupe]) -> list[str]:
    history = load(folder)
    history = with_merged_batches(history)
    outcomes = Counter(sent.outcome or "unanswered" for sent in history.sent.values())
    board.counts = {
        "messages sent": len(history.sent),
        **{f"  {outcome}": count for outcome, count in sorted(outcomes.items())},
        "messages read at the end": sum(1 for _ in history.of(Read)),
        "deliveries": history.deliveries,
        "  flagged as repeats": sum(event.attempt > 1 for event in history.of(Delivered)),
        "settlements": sum(1 for _ in history.of(Settled)),
        "  confirmed": sum(event.confirmed_s is not None for event in history.of(Settled)),
        "batches committed": sum(batch.committed for batch in history.of(Batch)),
    }
    for troupe in troupes:
        board.counts |= troupe.counts
    for group in (group for troupe in troupes for group in troupe.groups.values()):
        times_ms = [int(1000 * seconds) for seconds in group.takeovers_s]
        board.counts |= {
            "takeovers": len(times_ms),
            "  median, ms": int(statistics.median(times_ms or [0])),
            "  longest, ms": max(times_ms, default=0),
            "  without a failure": group.needless,
        }
    return [each for troupe in troupes for each in judge(history, troupe.part, troupe.settled_before_move)]


async def show_progress(troupes: list[Troupe], began_s: float) -> None:
    """One line, written over and over, if somebody looks."""
    while sys.stderr.isatty():
        await asyncio.sleep(PROGRESS_S)
        faults = sum((troupe.faults for troupe in troupes), Counter())
        sizes = [path.stat().st_size for path in (troupes[0].folder / "journals").glob("*")]
        text = (
            f"{time.monotonic() - began_s:6.0f} s  {faults.total():,} faults  journals {sum(sizes) >> 20:,} MiB"
        )
        print(f"\r{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen")
    parser.add_argument("--failures", type=int, help="of the cluster; then --minutes is the most they may take")
    parser.add_argument("--flood", action="store_true", help="the cluster has full load")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--parts", default=",".join(PARTS), help="which of %(default)s; or cluster, alone")
    parser.add_argument("--folder", help="where files go meanwhile, and stay if a promise is broken")
    parser.add_argument(
        "--break",
        dest="broken",
        default="",
        choices=("messages", "settlements"),
        help="let nodes confirm before they write",
    )
    given = parser.parse_args()
    parts = set(given.parts.split(","))
    if parts != {CLUSTER} and not parts <= set(PARTS):
        parser.error(f"--parts {given.parts}: there are {', '.join(PARTS)}, and {CLUSTER} alone")
    enter_namespace("tests.torture")
    logging.disable(logging.CRITICAL)  # what clients log under faults is no news
    folder = Path(tempfile.mkdtemp(prefix="headpond-torture-", dir=given.folder))
    board = asyncio.run(run(folder, given))
    full = "a small file system" if INSIDE in os.environ else "RLIMIT_FSIZE"
    print(f"\nseed {given.seed}; disks are full by {full}\n{board}")
    for _, broken in itertools.groupby(sorted(board.violations), lambda each: each.partition(":")[0]):
        for violation in itertools.islice(broken, SHOWN_MAX):
            print(f"VIOLATION: {violation[:VIOLATION_MAX]}")
    if board.violations:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if board.violations else 0


if __name__ == "__main__":
    sys.exit(main())
