"""The fenced blocks of a Markdown page, with the marks that stand before them.

A mark is an HTML comment above a block, which a reader of the page does not see:

- ``<!-- not run: REASON -->``: the tests do not run it.
- ``<!-- before: CODE -->``: Python that runs first, in the names of the page.
- ``<!-- until: CONDITION -->``: the block does not end by itself; it is ended once the condition is true.
- ``<!-- prints -->``: the text is what the block before prints. ``…`` stands for any characters, and on a line
  alone for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.root import ROOT

RUN = ("python", "sh", "console")
LANGUAGES = (*RUN, "text", "toml", "yaml")
PAGES = sorted(
    path for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if "```" in path.read_text()
)
_MARK = re.compile(r"<!-- (not run|before|until|prints)(?:: *(.*?))? *-->\n+", re.DOTALL)
_BLOCK = re.compile(
    rf"(?P<marks>(?:^ *{_MARK.pattern})*)^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# (\w+\.(?:py|toml))\n")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUN and "not run" not in self.marks

    @property
    def file(self) -> str | None:
        """The file that a program or a table is stored in: its first line names it."""
        found = _FILE.match(self.text) if self.language in ("python", "toml") else None
        return found[1] if found else None

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Of a ``console`` block: each command with what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        found = (re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.DOTALL) for part in parts)
        return [(step[1], step[2].strip("\n")) for step in found if step]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        marks = {mark[1]: mark[2] or "" for mark in _MARK.finditer(match["marks"])}
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(page, line, match["language"], body, marks))
    return found


def printed(expected: str) -> re.Pattern[str]:
    """What an output that a page shows may be."""
    if not expected:
        return re.compile("")
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + "\n"
        for line in expected.rstrip("\n").split("\n")
    ]
    return re.compile("".join(lines))
