"""What every message of the conversation is: a struct, msgpack by position."""

from __future__ import annotations

import msgspec

from headpond.model.bounds import Span as Span


class Control(msgspec.Struct, array_like=True, frozen=True):
    """The base of all conversation frames."""
