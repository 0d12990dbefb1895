"""Every test that docs/internals/transport.md names for an arrow of the source's diagrams exists."""

from __future__ import annotations

import re

from tests.root import ROOT


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "internals" / "transport.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 30
    places = [*(ROOT / "tests" / "producer").rglob("*.py"), *(ROOT / "tests" / "fire").glob("*.py")]
    there = set(
        re.findall(r"^(?:async )?def (test_\w+)", "\n".join(path.read_text() for path in places), re.MULTILINE)
    )
    assert named - there == set()
