"""Tables and fields: a name cannot control the terminal."""

from __future__ import annotations

import pytest

from headpond.cli.output import print_fields, print_table


def test_no_fields_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([])
    assert capsys.readouterr().out == ""


def test_control_characters_in_a_name_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b]0;owned\x07till\x9b2J\r-1 ✓"
    print_table(("PRODUCER",), [(name,)])
    print_fields([("producer", name)])
    assert capsys.readouterr().out.splitlines() == [
        "PRODUCER",
        "?]0;owned?till?2J?-1 ✓",
        "producer  ?]0;owned?till?2J?-1 ✓",
    ]
