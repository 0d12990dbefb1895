"""A service can get all its options from variables: ``headpond node`` and ``headpond agent``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headpond.broker.settings import variables
from headpond.cli.app import Commands
from headpond.storage.folder_lock import STATE_VARIABLE
from tests.cli.conftest import Cli

WITHOUT = {"as_json", "help"}
"""What a person asks for, and no service is configured with."""


def variable_of(option: Any) -> str:
    """The variable that the option declares, or that the setting of its name has."""
    if option.name == "state":
        return STATE_VARIABLE
    setting = f"HEADPOND_{option.name}".upper()
    return option.envvar or (setting if setting in variables() else "")


@pytest.mark.parametrize("command", ["node", "agent"])
def test_every_option_of_a_service_has_a_variable(command: str) -> None:
    found = {each.name: variable_of(each) for each in Commands()[command].params if each.name not in WITHOUT}
    assert len(found) > 4
    assert [name for name, variable in found.items() if not variable] == []


def test_a_variable_is_used_and_named_if_it_is_wrong(cli: Cli, tmp_path: Path) -> None:
    wrong = cli("agent", HEADPOND_AGENT_PAUSE="soon")
    assert wrong.code == 2 and "HEADPOND_AGENT_PAUSE" in wrong.err
    (tmp_path / "node.toml").write_text("lisen = '127.0.0.1:0'\n")
    done = cli("node", HEADPOND_CONFIG=str(tmp_path / "node.toml"))
    assert done.code == 1 and "lisen" in done.err and "node.toml" in done.err
