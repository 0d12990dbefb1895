"""The example of docs/state.md runs, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.fire.real_node import RealNode
from tests.root import ROOT

PAGE = ROOT / "docs" / "state.md"


def test_the_example_prints_what_the_page_says(node: RealNode, tmp_path: Path) -> None:
    page = PAGE.read_text()
    program, printed = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)[:2]
    file = tmp_path / "example.py"
    file.write_text(program)
    ran = subprocess.run([sys.executable, file, node.url], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", printed)
