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


@pytest.mark.parametrize("module", ["typer", "headpond.cli.topic"])
def test_while_commands_are_being_loaded_it_ends_without_a_traceback(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", EARLY.format(module=module)], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def has_ended(pid: int) -> bool:
    """Also one that nobody has waited for yet."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_while_spark_starts_its_java_ends_too(tmp_path: Path) -> None:
    """A Spark that never gets ready stands in: the point is what becomes of its process."""
    noted = tmp_path / "pid"
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho $$ > {noted}\nexec sleep 600\n")
    script.chmod(0o755)
    pipeline = tmp_path / "p.toml"
    pipeline.write_text('name = "p"\n[sources.a]\ntopic = "t"\n[sinks.b]\nfrom = "a"\ntopic = "u"\n')
    command = [sys.executable, "-m", "headpond", "spark", "check", str(pipeline)]
    environment = os.environ | {"SPARK_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        wait_until(lambda: noted.exists() and noted.read_text().endswith("\n"), 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    wait_until(lambda: has_ended(int(noted.read_text())), 30)
