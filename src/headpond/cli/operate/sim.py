"""``headpond sim run|meta``: whole systems under faults, simulated from seeds, and the promises they kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import command, group
from headpond.cli.options import flag, option, wrong_use
from headpond.cli.output import Output, note, print_fields, progress_line

if TYPE_CHECKING:
    from headpond.sim.runner import Scoreboard

sim_app = group("Simulate clients, nodes, disks and networks under faults, and check every promise.")

SEEDS_HELP = "How many seeds to run."
FIRST_HELP = "The first seed."
SEED_HELP = "Run this seed alone."
TRACE_HELP = "With --seed: print what happened, line by line."
JOBS_HELP = "Processes to use."
LINES_SHOWN = 40
"""Of the trace of a seed that failed."""


@command(sim_app)
def run(
    output: Output,
    seeds: Annotated[int, option("--seeds", "N", SEEDS_HELP, min=1)] = 100,
    first: Annotated[int, option("--first", "N", FIRST_HELP, min=0)] = 0,
    jobs: Annotated[int, option("--jobs", "N", JOBS_HELP, min=1)] = 2,
    seed: Annotated[int | None, option("--seed", "N", SEED_HELP, min=0)] = None,
    trace: Annotated[bool, flag("--trace", TRACE_HELP)] = False,
) -> None:
    """Run seeds, and check every promise; exit with 1 if one is broken.

    A seed decides everything: who takes part, what they do, which faults happen when. The same seed gives the
    same run. Of the first seed that fails, the command looks for a smaller run that fails in the same way.
    """
    if trace and seed is None:
        raise wrong_use("--trace", "it needs --seed N")
    from headpond.sim.runner import run_seeds

    chosen = range(first, first + seeds) if seed is None else [seed]
    with progress_line("starting") as show:
        board = run_seeds(chosen, min(jobs, len(chosen)), lambda board: show and show(_progress(board, seeds)))
    if board.failures:
        _minimise(board)
    elif trace:
        _print_trace(chosen[0])
    output.show(board, partial(_print_board, board, whole=trace), ok=not board.failures)


def _minimise(board: Scoreboard) -> None:
    from headpond.sim.minimise import minimise
    from headpond.sim.plan import draw
    from headpond.sim.runner import run_quietly

    failure = board.failures[0]
    note(f"seed {failure.seed} failed: looking for a smaller run that fails in the same way")
    plan = draw(failure.seed)
    plan, outcome = minimise(plan, run_quietly(plan), run_quietly)
    failure.trace = [str(plan), *outcome.trace, *outcome.violations]


def _print_trace(seed: int) -> None:
    from headpond.sim.plan import draw
    from headpond.sim.runner import run_quietly

    plan = draw(seed)
    print(plan, *run_quietly(plan).trace, sep="\n")


@command(sim_app)
def meta(
    output: Output,
    seeds: Annotated[int, option("--seeds", "N", SEEDS_HELP, min=1)] = 100,
    first: Annotated[int, option("--first", "N", FIRST_HELP, min=0)] = 0,
) -> None:
    """Run each seed twice, and compare the traces; exit with 1 if two differ."""
    from headpond.sim.plan import draw
    from headpond.sim.runner import Repeats, run_quietly

    repeats = Repeats()
    with progress_line("starting") as show:
        for seed in range(first, first + seeds):
            once, twice = (run_quietly(draw(seed)).trace for _ in range(2))
            repeats.seeds += 1
            repeats.lines += len(once)
            if once != twice:
                repeats.different.append(seed)
            if show is not None:
                show(f"{repeats.seeds:,} of {seeds:,} seeds, {len(repeats.different)} differ")
    text = f"{seeds:,} seeds ran twice, {repeats.lines:,} lines each: {repeats.different or 'none'} differ"
    output.show(repeats, text, ok=not repeats.different)


def _progress(board: Scoreboard, seeds: int) -> str:
    days = board.simulated_s / 86_400
    return f"{board.seeds:,} of {seeds:,} seeds, {days:.1f} simulated days, {len(board.failures)} failed"


def _print_board(board: Scoreboard, *, whole: bool) -> None:
    days = board.simulated_s / 86_400
    hit = len(board.points) - len(board.points_left)
    print_fields(
        [
            ("seeds", f"{board.seeds:,} in {board.took_s:,.0f} s"),
            ("simulated", f"{days:,.2f} days, {board.speed:,.0f} times as fast as life"),
            ("messages", f"{board.messages:,} sent, {board.deliveries:,} deliveries checked"),
            ("kill points", f"a process was killed at {hit} of {len(board.points)}"),
            ("not at", ", ".join(board.points_left) or "none"),
            ("violations", f"{len(board.failures):,} seeds"),
        ]
    )
    print("faults")
    print_fields([(f"  {name}", f"{count:,}") for name, count in sorted(board.faults.items())])
    for failure in board.failures:
        print(f"seed {failure.seed}: {failure.violations[0]}")
    if board.failures:
        failure = board.failures[0]
        print(f"The smallest run of seed {failure.seed} that fails in the same way ends with:")
        print(*failure.trace[0 if whole else -LINES_SHOWN :], sep="\n")
        if not whole:
            print(f"headpond sim run --seed {failure.seed} --trace  prints all of it")
