"""Ctrl-C at any time: exit code 130, no traceback, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fire.real_node import wait_until

EARLY = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["headpond", "errors"]
from headpond.cli import main
main()
"""

AT_ONCE = """
import os, signal, time
from pyspark import java_gateway

def start(*args, popen=java_gateway.Popen, **options):
    process = popen(*args, **options)
    while not os.path.exists(os.environ["NOTED"]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    return process

java_gateway.Popen = start
from headpond.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "headpond.cli.operate.errors"])
def test_while_commands_are_being_loaded_it_ends_without_a_traceback(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", EARLY.format(module=module)], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_simulation_that_a_signal_ends_takes_its_processes_along(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "headpond", "sim", "run", "--seeds", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def workers() -> list[int]:
            pids = [int(word) for word in children.read_text().split()]
            return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

        wait_until(lambda: len(workers()) == 2, 60)
        found = workers()
        process.send_signal(number)
        assert process.wait(30) == -number
    wait_until(lambda: all(map(has_ended, found)), 60)


@pytest.mark.parametrize("at_once", [False, True], ids=["while it starts", "before pyspark has its process"])
def test_while_spark_starts_its_java_ends_too(tmp_path: Path, at_once: bool) -> None:
    """A Spark that never gets ready stands in: the point is what becomes of its process."""
    noted = tmp_path / "pid"
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho $$ > {noted}.new; mv {noted}.new {noted}\nexec sleep 600\n")
    script.chmod(0o755)
    pipeline = tmp_path / "p.toml"
    pipeline.write_text('name = "p"\n[sources.a]\ntopic = "t"\n[sinks.b]\nfrom = "a"\ntopic = "u"\n')
    program = ["-c", AT_ONCE] if at_once else ["-m", "headpond"]
    command = [sys.executable, *program, "spark", "check", str(pipeline)]
    environment = os.environ | {"SPARK_HOME": str(tmp_path), "NOTED": str(noted)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        wait_until(noted.exists, 60)
        if not at_once:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    wait_until(lambda: has_ended(int(noted.read_text())), 30)
