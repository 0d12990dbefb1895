"""The page about pipes: its programs run, and its table names every pipe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.calculus.route import pipe_names

PAGE = (Path(__file__).parents[3] / "docs" / "pipes.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    "[b'hello', b'to', b'you'] 3\n",
    "received first\nreceived last\n",
    "one tea\ntwo cakes\n",
]


def test_every_program_of_the_page_is_run() -> None:
    assert len(PROGRAMS) == len(SHOWN)


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_a_program_of_the_page_shows_what_the_page_says(number: int, shared_url: str) -> None:
    program = PROGRAMS[number].replace("penstock://127.0.0.1:7411", shared_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == SHOWN[number]


def test_every_pipe_has_a_row() -> None:
    assert [name for name in pipe_names() if f"| `{name}` |" not in PAGE] == []
