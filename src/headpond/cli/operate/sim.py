"""``headpond sim run|scenarios|meta``: whole systems under faults, from seeds, and the promises they keep."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import command, group
from headpond.cli.completion import quietly
from headpond.cli.options import flag, option, wrong_use
from headpond.cli.output import Output, note, print_fields, print_objects, progress_line

if TYPE_CHECKING:
    import typer

    from headpond.sim.plan import Plan
    from headpond.sim.runner import Failure, Scoreboard

sim_app = group("Simulate clients, nodes, disks and networks under faults, and check every promise.")


@quietly
def _scenarios(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from headpond.sim.scenarios import SCENARIOS

    return SCENARIOS


SEEDS_HELP = "How many seeds to run."
FIRST_HELP = "The first seed."
SEED_HELP = "Run this seed alone."
SCENARIO_HELP = "Run seeds of a known bug's conditions; `headpond sim scenarios` lists them."
KILL_HELP = (
    "With --seed: also kill the first process of each machine at this point. Can be repeated, for the next."
)
TRACE_HELP = "With --seed: print what happened, line by line."
JOBS_HELP = "Processes to use."
SPARK_HELP = "Run on Spark: on the master of spark-submit, otherwise on all cores of this machine."
LINES_SHOWN = 40
"""Of the trace of a seed that failed."""

ScenarioName = Annotated[
    str | None, option("--scenario", "NAME", SCENARIO_HELP, autocompletion=_scenarios, show_default=False)
]


@command(sim_app)
def run(
    output: Output,
    seeds: Annotated[int, option("--seeds", "N", SEEDS_HELP, min=1)] = 100,
    first: Annotated[int, option("--first", "N", FIRST_HELP, min=0)] = 0,
    scenario: ScenarioName = None,
    jobs: Annotated[int, option("--jobs", "N", JOBS_HELP, min=1)] = 2,
    spark: Annotated[bool, flag("--spark", SPARK_HELP)] = False,
    seed: Annotated[int | None, option("--seed", "N", SEED_HELP, min=0)] = None,
    kill_at: Annotated[list[str] | None, option("--kill-at", "POINT", KILL_HELP)] = None,
    trace: Annotated[bool, flag("--trace", TRACE_HELP)] = False,
) -> None:
    """Run seeds, and check every promise; exit with 1 if one is broken.

    A seed decides everything: who takes part, what they do, which faults happen when. The same seed gives the
    same run. After the first failure the command looks for a smaller run that fails in the same way.
    From 1,000 seeds on, it also kills a process at every point at which the faults have killed none.
    """
    for name, given in (("--trace", trace), ("--kill-at", kill_at)):
        if given and seed is None:
            raise wrong_use(name, "it needs --seed N")
    from headpond.sim.scenarios import plan_of

    chosen = range(first, first + seeds) if seed is None else [seed]
    plans = [replace(plan_of(number, scenario), kill_at=tuple(kill_at or ())) for number in chosen]
    named = 0
    with progress_line("starting") as show:

        def progress(board: Scoreboard) -> None:
            nonlocal named
            for failure in board.failures[named:]:  # at once: a long run may have hours to go
                note(f"{_name(failure)}: {failure.violations[0]}")
            named = len(board.failures)
            if show is not None:
                show(_progress(board, len(plans)))

        board = _run(plans, jobs, spark, progress)
    if board.failures:
        _minimise(board, plans)
    elif trace:
        _print_trace(plans[0])
    output.show(board, partial(_print_board, board, scenario, whole=trace), ok=not board.failures)


def _run(plans: list[Plan], jobs: int, spark: bool, progress: Callable[[Scoreboard], None]) -> Scoreboard:
    if spark:
        from headpond.spark.seeds import run_on_spark

        return run_on_spark(plans, progress)
    from headpond.sim.runner import in_processes, run_plans

    return run_plans(plans, in_processes(min(jobs, len(plans))), progress)


def _minimise(board: Scoreboard, plans: list[Plan]) -> None:
    from headpond.sim.minimise import minimise
    from headpond.sim.runner import run_quietly

    failure = board.failures[0]
    note(f"seed {failure.seed} failed: looking for a smaller run that fails in the same way")
    plan = next(plan for plan in plans if plan.seed == failure.seed)
    plan = replace(plan, kill_at=failure.kill_at)
    plan, outcome = minimise(plan, run_quietly(plan), run_quietly)
    failure.trace = [str(plan), *outcome.trace, *outcome.violations]


def _print_trace(plan: Plan) -> None:
    from headpond.sim.runner import run_quietly

    print(plan, *run_quietly(plan).trace, sep="\n")


@command(sim_app)
def scenarios(output: Output) -> None:
    """List the scenarios: known bugs of messaging systems, with the conditions under which each occurs."""
    from headpond.sim.scenarios import SCENARIOS

    found = [{"scenario": each.name, "about": each.about} for each in SCENARIOS.values()]
    output.show(found, partial(print_objects, found, "scenario about"))


@command(sim_app)
def meta(
    output: Output,
    seeds: Annotated[int, option("--seeds", "N", SEEDS_HELP, min=1)] = 100,
    first: Annotated[int, option("--first", "N", FIRST_HELP, min=0)] = 0,
    scenario: ScenarioName = None,
) -> None:
    """Run each seed in two processes, and compare the traces; exit with 1 if two differ."""
    from headpond.sim.runner import Repeats, run_twice
    from headpond.sim.scenarios import plan_of

    plans = [plan_of(seed, scenario) for seed in range(first, first + seeds)]
    with progress_line("starting") as show:

        def on_progress(repeats: Repeats) -> None:
            if show is not None:
                show(f"{repeats.seeds:,} of {seeds:,} seeds, {len(repeats.different)} differ")

        repeats = run_twice(plans, on_progress)
    text = f"{seeds:,} seeds ran twice, {repeats.lines:,} lines each: {repeats.different or 'none'} differ"
    output.show(repeats, text, ok=not repeats.different)


def _progress(board: Scoreboard, seeds: int) -> str:
    days = board.simulated_s / 86_400
    again = f", {board.again:,} again" if board.again else ""
    return f"{board.seeds:,} of {seeds:,} seeds{again}, {days:.1f} simulated days, {len(board.failures)} failed"


def _print_board(board: Scoreboard, scenario: str | None, *, whole: bool) -> None:
    from headpond.sim.runner import SEEDS_TO_COVER

    days = board.simulated_s / 86_400
    hit = len(board.points) - len(board.points_left)
    again = f", {board.again:,} of them again with one more kill" if board.again else ""
    fields = [
        ("seeds", f"{board.seeds:,} in {board.took_s:,.0f} s{again}"),
        ("simulated", f"{days:,.2f} days, {board.speed:,.0f} times as fast as life"),
        ("messages", f"{board.messages:,} sent, {board.deliveries:,} deliveries checked"),
        ("kill points", f"a process was killed at {hit} of {len(board.points)}"),
        ("violations", f"{len(board.failures):,} seeds"),
    ]
    if board.seeds >= SEEDS_TO_COVER:
        fields.insert(4, ("never at", ", ".join(board.points_left) or "none"))
    print_fields(fields)
    print("faults")
    print_fields(
        [(f"  {name}", f"{count:,}" if count else "NONE") for name, count in sorted(board.faults.items())]
    )
    for failure in board.failures:
        print(f"{_name(failure)}: {failure.violations[0]}")
    if board.failures:
        failure = board.failures[0]
        print(f"The smallest run of {_name(failure)} that fails in the same way ends with:")
        print(*failure.trace[0 if whole else -LINES_SHOWN :], sep="\n")
        if not whole:
            print(f"{_command(failure, scenario)} --trace  prints all of it")


def _name(failure: Failure) -> str:
    return f"seed {failure.seed}" + "".join(f", killed at {point!r}" for point in failure.kill_at)


def _command(failure: Failure, scenario: str | None) -> str:
    """Runs it again."""
    of = f" --scenario {scenario}" if scenario else ""
    kill = "".join(f" --kill-at {shlex.quote(point)}" for point in failure.kill_at)
    return f"headpond sim run{of} --seed {failure.seed}{kill}"
