"""Where a user's programs keep their state: refill files, and what is cached beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

STATE_VARIABLE = "HEADPOND_STATE"
REFILL_FOLDER = "refill"


def state_folder(given: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """``given``, ``$HEADPOND_STATE``, ``$XDG_STATE_HOME/headpond`` or ``~/.local/state/headpond``."""
    names = os.environ if environment is None else environment
    if given:
        return Path(given).expanduser()
    if names.get(STATE_VARIABLE):
        return Path(names[STATE_VARIABLE]).expanduser()
    base = names.get("XDG_STATE_HOME", "")
    # As the standard says, a relative path there is not meant.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "headpond"


def refill_root(given: str | Path | None = None) -> Path:
    """The folder of all slots (transport/refill_folder)."""
    return state_folder(given) / REFILL_FOLDER
