"""The page about pipes: its programs run, and its table names every pipe."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from headpond.pipes.calculus.route import find_stage, pipe_names
from tests.root import ROOT

PAGE = (ROOT / "docs" / "pipes.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    "[b'hello', b'to', b'you'] 3\n",
    "received first\nreceived last\n",
    "",
    "one tea\ntwo cakes\n",
]


def test_every_program_of_the_page_is_run() -> None:
    assert len(PROGRAMS) == len(SHOWN)


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_a_program_of_the_page_prints_the_output_on_the_page(number: int, shared_url: str) -> None:
    program = PROGRAMS[number].replace("headpond://127.0.0.1:7411", shared_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == SHOWN[number]


def test_every_pipe_has_a_row() -> None:
    assert [name for name in pipe_names() if f"| `{name}` |" not in PAGE] == []


@pytest.mark.parametrize("name", pipe_names())
def test_the_page_and_the_declaration_agree_on_who_confirms(name: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` | ") and line.count("|") == 4]
    confirms = row.split("|")[-2].strip()
    assert (confirms != "no") == find_stage(name, {}).declaration.confirms
    assert ("no with `gaps=false`" in confirms) == (name == "continuous")
    assert not find_stage("continuous", {"gaps": False}).declaration.confirms


def test_the_settings_on_the_page_are_those_of_the_declarations() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \| .*?\(([\d,]+)\)", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for setting, pipes, default in rows:
        for name in re.findall(r"`(\w+)`", pipes):
            assert find_stage(name, {}).settings[setting] == int(default.replace(",", ""))
