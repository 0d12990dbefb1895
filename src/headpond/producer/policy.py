"""How long a producer waits for its destinations, and how much it sends ahead."""

from __future__ import annotations

from dataclasses import dataclass

from headpond.model.receipt import Durability


@dataclass(frozen=True, slots=True)
class SendPolicy:
    window_bytes: int = 16 * 1024 * 1024
    """Bytes sent to a destination and not answered."""
    spill_after_s: float = 5.0
    durability: Durability = Durability.SYNC
    """Of the refill."""
