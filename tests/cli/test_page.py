"""docs/cli.md lists every command as it is."""

from __future__ import annotations

from tests import cli_page


def test_the_page_is_what_the_commands_say() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), "write it: python -m tests.cli_page"


def test_every_linked_page_exists() -> None:
    names = [part.split("]")[0] for text in cli_page.MORE.values() for part in text.split("[")[1:]]
    assert [name for name in names if not (cli_page.PAGE.parent / name).is_file()] == []
