"""The page about the calculus has the tables that the code has."""

from __future__ import annotations

from headpond.pipes.calculus.declarations import DECLARATIONS
from tests.root import ROOT

PAGE = ROOT / "docs" / "pipes.md"


def test_the_table_of_pipes_is_that_of_the_declarations() -> None:
    lines = PAGE.read_text().splitlines()
    rows = [
        f"| `{pipe.name}` | {', '.join(pipe.needs)} | {pipe.gives} |{f' {pipe.order}' if pipe.order else ''} "
        f"| {', '.join(pipe.does_not_tolerate)} |"
        for pipe in DECLARATIONS
    ]
    assert [row for row in rows if row not in lines] == []
