"""Runs targets with atheris, which keeps each input that reaches new code: ``make fuzz FUZZ_S=60``.

``python -m tests.fuzz.run --seconds 60 [TARGET ...]`` prints a line per target: executions, covered edges, new
inputs, crashes. A crash is an error that the target does not name, 10 seconds or 1.5 GB for one input, or the
end of the process. ``--replay FILE`` runs one input again. ``--minimise`` makes the corpus in the tree from
the inputs of the last run. The last two targets attack a real node over sockets, without coverage. Where
atheris has no wheel (see requirements/dev.txt) these two are all that runs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import traceback
from hashlib import sha1
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

FOUND = Path(".fuzz")
"""New inputs in ``corpus/TARGET``, crashing ones in ``crashes``."""
LIMITS = ["-timeout=10", "-rss_limit_mb=1500", "-max_len=4096", "-len_control=0", "-print_final_stats=1"]
CORPUS_BYTES_MAX = 16 * 1024
"""Of one target."""


def child(name: str, options: list[str]) -> None:
    """Fuzzes one target in this process, until libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["headpond"]):
        from tests.fuzz.targets import TARGETS
    again = f"{sys.executable} -m tests.fuzz.run --child {name}"  # a merge starts itself with this
    atheris.Setup([again, *options], TARGETS[name])
    atheris.Fuzz()


def libfuzzer(name: str, *options: object) -> str:
    """The output of libFuzzer for one target."""
    command = [sys.executable, "-m", "tests.fuzz.run", "--child", name, *map(str, options)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return ended.stdout.decode(errors="replace")


def guided(name: str, seconds: int, crashes: Path) -> tuple[list[str], str]:
    """Executions, coverage and new inputs, and the error if there is one."""
    from tests.fuzz.targets import SEEDS, TARGETS, inputs

    grown = FOUND / "corpus" / name
    grown.mkdir(parents=True, exist_ok=True)
    for data in [*SEEDS[TARGETS[name]], *inputs(name)]:
        (grown / sha1(data).hexdigest()).write_bytes(data)  # libFuzzer's names
    prefix = f"-artifact_prefix={crashes}/{name}-"
    said = libfuzzer(name, grown, f"-max_total_time={seconds}", prefix, *LIMITS)
    counts = (r"executed_units:\s+", "cov: ", r"new_units_added:\s+")
    error = said.partition("Traceback")[2].partition("ERROR: libFuzzer")[0]
    return [(re.findall(each + r"(\d+)", said) or ["0"])[-1] for each in counts], error


def live(name: str, seconds: int, crashes: Path) -> tuple[list[str], str]:
    """An attack on a real node."""
    from tests.fuzz.live_frames import live_frames
    from tests.fuzz.live_http import live_http

    attack = {"live_frames": live_frames, "live_http": live_http}[name]
    with tempfile.TemporaryDirectory() as folder:
        try:
            executions, error = attack(Path(folder), seconds)
        except Exception:
            executions, error = 0, traceback.format_exc()
    return [str(executions), "-", "-"], error


def fuzz(name: str, seconds: int) -> int:
    """Prints the line of a target; returns the number of its crashes."""
    crashes = FOUND / "crashes"
    crashes.mkdir(parents=True, exist_ok=True)
    before = set(crashes.iterdir())
    run = live if name.startswith("live_") else guided
    (executions, coverage, new), error = run(name, seconds, crashes)
    found = sorted(set(crashes.iterdir()) - before)
    bad = len(found) or int(bool(error) or executions == "0")
    print(f"{name:<16} {executions:>10} {coverage:>9} {new:>6} {bad:>8}", flush=True)
    for path in found:
        print(f"  {path}\n  replay: python -m tests.fuzz.run --replay {path}")
    if bad:
        print(error)
    return bad


def minimise(name: str) -> None:
    """Makes the corpus of a target the fewest and shortest inputs that reach the same code."""
    from tests.fuzz.targets import keep

    with tempfile.TemporaryDirectory() as folder:
        prefix = f"-artifact_prefix={FOUND}/crashes/{name}-"
        libfuzzer(name, "-merge=1", folder, FOUND / "corpus" / name, prefix, *LIMITS)
        fewest = sorted((path.read_bytes() for path in Path(folder).iterdir()), key=len)
    ends = accumulate(len(data) for data in fewest)
    kept = [data for data, end in zip(fewest, ends, strict=True) if end <= CORPUS_BYTES_MAX]
    keep(name, kept)
    print(f"{name:<16} {len(kept):>4} inputs, {sum(map(len, kept)):>7,} bytes", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--child", metavar="TARGET", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    asked, options = parser.parse_known_args()
    if asked.child:
        child(asked.child, [*asked.targets, *options])
    from tests.fuzz.targets import TARGETS

    if asked.replay:
        TARGETS[asked.replay.name.partition("-")[0]](asked.replay.read_bytes())
    elif asked.minimise:
        for name in asked.targets or TARGETS:
            minimise(name)
    else:
        print(f"{'target':<16} {'executions':>10} {'coverage':>9} {'new':>6} {'crashes':>8}", flush=True)
        names = asked.targets or [*(TARGETS if find_spec("atheris") else ()), "live_frames", "live_http"]
        return int(sum(fuzz(name, asked.seconds) for name in names) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
