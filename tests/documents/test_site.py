"""The site has every page, and the pictures are what the script draws. Links: tests/test_tidy.py."""

from __future__ import annotations

import re
import runpy

from tests.root import ROOT

DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
OUTSIDE = {"overview.md": "README.md", "ARCHITECTURE.md": "", "CHANGELOG.md": "", "examples/README.md": ""}
"""Pages of the site from other folders, with their names there."""


def pages_in_the_navigation() -> list[str]:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"([\w/]+\.md)$", nav, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    decisions = DOCS / "decisions"  # which the site lists by itself
    pages = [path for path in DOCS.rglob("*.md") if decisions not in path.parents]
    assert sorted(pages_in_the_navigation()) == sorted(
        [*(str(path.relative_to(DOCS)) for path in pages), *OUTSIDE]
    )


def test_the_pages_from_other_folders_exist() -> None:
    assert [name for name, there in OUTSIDE.items() if not (ROOT / (there or name)).is_file()] == []


def test_the_pictures_are_what_the_script_draws() -> None:
    drawn = runpy.run_path(str(PICTURES / "draw.py"))["pictures"]()
    there = {path.name: path.read_text() for path in PICTURES.glob("*.svg")}
    assert there == drawn, "draw them: python docs/pictures/draw.py"


def test_every_picture_is_on_a_page() -> None:
    shown = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"\(pictures/(\w+\.svg)\)", page.read_text())
    }
    assert shown == {path.name for path in PICTURES.glob("*.svg")}
