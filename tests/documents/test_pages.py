"""The programs and commands on the pages run, and print what the pages say. Those on Spark: tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.blocks import LANGUAGES, PAGES, Block, blocks
from tests.documents.pages import run_page

NOT_RUN_MAX = 40
ELSEWHERE = {"testing.md": "tests/testing/test_page.py"}
"""Pages that a test of their own runs."""


def runs(page: Path) -> bool:
    return page.name not in ELSEWHERE and any(block.runs for block in blocks(page))


def is_on_spark(page: Path) -> bool:
    return any("spark" in block.text for block in blocks(page) if block.runs)


def every_block() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


@pytest.mark.timeout(500)  # for what hangs: a page starts dozens of processes, which a busy machine makes slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if runs(page) and not is_on_spark(page)], ids=lambda page: page.name
)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch)


def test_every_block_names_its_language() -> None:
    assert [str(block) for block in every_block() if block.language not in LANGUAGES] == []


def test_a_block_that_does_not_run_says_why() -> None:
    marked = [block for block in every_block() if "not run" in block.marks]
    assert [str(block) for block in marked if not block.marks["not run"]] == []
    assert len(marked) <= NOT_RUN_MAX
