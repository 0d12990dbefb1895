"""The programs on docs/testing.md run, as a user's tests would."""

from __future__ import annotations

import re
from pathlib import Path

from tests.root import ROOT
from tests.testing.running import run_pytest

PAGE = ROOT / "docs" / "testing.md"


def programs() -> dict[str, str]:
    """The files that the page shows, in their order; blocks of one file are joined."""
    found: dict[str, str] = {}
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        found[name] = f"{found[name]}\n\n{text}" if name in found else text
    return found


def test_every_program_on_the_page_names_its_file() -> None:
    assert PAGE.read_text().count("```python\n") == PAGE.read_text().count("```python\n# ")


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    for name, text in programs().items():
        (tmp_path / name).write_text(text)
    tests = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for text in programs().values())
    outcome = run_pytest(tmp_path)
    assert re.search(rf"^{tests} passed", outcome, re.MULTILINE), outcome
