"""What a node's answer means for a segment's promise."""

from __future__ import annotations

from typing import Final

from headpond.model.errors import HeadpondError, from_code
from headpond.model.receipt import Durability, Fate, Outcome
from headpond.wire.control import AckItem

_DURABILITIES: Final = frozenset(Durability)


def fate_of(destination: str, item: AckItem, durability: str) -> Fate:
    """Of an answer that ends a segment: stored, duplicate or refused for good."""
    if item.outcome == "rejected":
        return refusal(destination, from_code(item.code, item.message or item.code))
    given = Durability(durability) if durability in _DURABILITIES else None
    return Fate(Outcome(item.outcome), destination, item.first_entry, given)


def refusal(destination: str, error: HeadpondError) -> Fate:
    return Fate(Outcome.REJECTED, destination, error=error)
