"""The same seed gives the same run, to the last byte of its trace."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys

import msgspec
import pytest

from headpond.pipes.lab.faults import Crash, Delay, Faults
from headpond.pipes.lab.run import LabResult, run

STORM = Faults(
    loss=0.2,
    duplicate=0.1,
    reorder=0.2,
    confirm_loss=0.2,
    delay=Delay.parse("lognormal:0.01,1"),
    crashes=(Crash("sender", 40), Crash("receiver", 60, 0.2), Crash("route", 80, 0.1)),
)
ROUTES = [
    "resend_many | dedup",
    "resend_many | continuous",
    "stream | dedup",
    "sequential",
    "index",
    "resend_many(confirm=settled) -> resend",
]


def traced(route: str, seed: int, messages: int = 200) -> tuple[str, LabResult]:
    lines: list[str] = []
    result = run(route, STORM, messages, seed, trace=lines.append)
    return "".join(lines), result


@pytest.mark.parametrize("route", ROUTES)
def test_the_same_seed_gives_the_same_trace_and_the_same_result(route: str) -> None:
    assert traced(route, 7) == traced(route, 7)


@pytest.mark.parametrize("route", ROUTES)
def test_another_seed_gives_another_trace(route: str) -> None:
    assert traced(route, 7)[0] != traced(route, 8)[0]


def test_another_process_with_other_hashes_gives_the_same_trace() -> None:
    code = (
        "import hashlib\nfrom tests.pipes.lab.test_trace import traced\n"
        "print(hashlib.sha256(traced('resend_many | dedup', 7)[0].encode()).hexdigest())"
    )
    here = hashlib.sha256(traced("resend_many | dedup", 7)[0].encode()).hexdigest()
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PYTHONHASHSEED": hashes, "PYTHONPATH": ":".join(filter(None, sys.path))},
        )
        assert done.stdout.strip() == here, done.stderr


def test_tracing_changes_nothing() -> None:
    assert traced("resend_many | dedup", 7)[1] == run("resend_many | dedup", STORM, 200, 7)


def test_a_trace_lists_messages_sent_lost_and_done() -> None:
    text, _ = traced("resend_many", 7)
    for words in (
        "source submit 0-",
        "sender send 1.0 e1 0-",
        "sender>receiver lost ",
        "worker done ",
        "crash",
    ):
        assert words in text


def test_a_result_can_be_pickled_and_written_as_json() -> None:
    result = run("resend_many | dedup", STORM, 100, 1)
    assert pickle.loads(pickle.dumps(result)) == result
    assert msgspec.json.decode(msgspec.json.encode(result), type=LabResult) == result
