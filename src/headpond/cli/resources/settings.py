"""Settings on the command line: ``NAME=VALUE`` read, and shown with where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from headpond.cli.completion import assignments, setting_names
from headpond.cli.options import argument, option, wrong_use
from headpond.cli.output import print_table
from headpond.model.topic_settings import SETTINGS

if TYPE_CHECKING:
    from headpond.model.topic_settings import Value
    from headpond.wire.control.catalog import SettingInfo

ASSIGNMENTS_HELP = "For example hard_ttl=7d, max_bytes=10GiB or durability=os."
Assignments = Annotated[list[str], argument("SETTING=VALUE…", ASSIGNMENTS_HELP, assignments)]
Names = Annotated[list[str], argument("SETTING…", "Names of settings, for example hard_ttl.", setting_names)]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set",
        "SETTING=VALUE",
        "A setting, for example hard_ttl=7d. Can be repeated.",
        autocompletion=assignments,
    ),
]


def read_assignments(texts: Sequence[str] | None) -> dict[str, Value]:
    """``NAME=VALUE`` each; the node reads the values."""
    found: dict[str, Value] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise wrong_use("SETTING=VALUE", f"{text!r} is not SETTING=VALUE")
        found[name.strip()] = value.strip()
    return found


def print_settings(settings: Sequence[SettingInfo]) -> None:
    rows = []
    for each in settings:
        known = SETTINGS.get(each.name)
        shown = known.shown(each.value) if known is not None else str(each.value)
        rows.append((each.name, shown, f"{each.origin} {each.place}".strip()))
    print_table(("SETTING", "VALUE", "FROM"), rows)
