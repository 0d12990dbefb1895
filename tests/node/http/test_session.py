"""The session of docs/http.md, run as it is written there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.node.http.nodes import HttpNode
from tests.root import ROOT

PAGE = ROOT / "docs" / "http.md"
WRITTEN = "http://127.0.0.1:7412"


def steps() -> list[tuple[str, str]]:
    """Each command with what it prints."""
    text = PAGE.read_text().partition("## A session")[2].partition("```console\n")[2].partition("\n```")[0]
    return [
        (command.removeprefix("$ "), printed)
        for command, _, printed in (step.partition("\n") for step in text.split("\n\n"))
    ]


def test_the_session_prints_what_the_page_says(tmp_path: Path) -> None:
    found = steps()
    assert len(found) == 8 and all(command.startswith("curl ") for command, _ in found)
    with HttpNode(tmp_path / "node") as node:
        assert isinstance(node, HttpNode)
        for command, printed in found:
            here = command.replace(WRITTEN, node.http)
            done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=60, check=True)
            pattern = re.escape(printed).replace("…", ".*")
            assert re.fullmatch(pattern, done.stdout.strip()), f"{command}\n{done.stdout}"
