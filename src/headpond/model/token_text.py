"""A token's text: ``hpd_ID_SECRET``. The id is no secret, and is all of it that is ever shown."""

from __future__ import annotations

import re

PREFIX = "hpd"
_WHOLE = re.compile(rf"\b{PREFIX}_([0-9a-f]{{12}})_[\w-]{{8,}}")


def without_secret(said: str) -> str:
    """What somebody said of a token, fit to be shown, logged and sent: of its whole text the id alone.

    Who revokes a token that got out has its text at hand, where an id or a name is asked for.
    """
    pieces = said.strip().split("_", 2)
    return pieces[1] if len(pieces) == 3 and pieces[0] == PREFIX else said


def redacted(text: str) -> str:
    """A text that somebody else made, perhaps of a token that stood where a name was asked for."""
    return _WHOLE.sub(rf"{PREFIX}_\1_…", text)
