"""A finished stage, as it is handed from whoever staged the rows to whoever commits them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows that are on a node's disk and in no topic yet. A small value: it can be pickled and sent on."""

    id: bytes
    """16 bytes, of this attempt alone."""
    writer: str
    topic: str
    rows: int
    size_bytes: int
