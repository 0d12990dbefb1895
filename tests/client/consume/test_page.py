"""Every test that docs/subscriptions.md names for a kind and mode exists, and runs for all of them."""

from __future__ import annotations

import re

from tests.client.consume.cells import CELLS
from tests.root import ROOT

PLACES = (ROOT / "tests" / "client" / "consume").rglob("*.py")


def test_every_test_that_the_page_names_exists_and_runs_for_every_kind_and_mode() -> None:
    page = (ROOT / "docs" / "subscriptions.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) == 8
    sources = "\n".join(path.read_text() for path in PLACES)
    in_each_cell = set(re.findall(r"^@each_cell\n(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert named <= in_each_cell


def test_the_table_has_a_row_for_every_kind_and_mode() -> None:
    page = (ROOT / "docs" / "subscriptions.md").read_text()
    rows = re.findall(r"^\| (\w+), (\w+) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted([*CELLS, ("kind", "mode")])
