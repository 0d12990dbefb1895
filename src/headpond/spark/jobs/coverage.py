"""What runs of a replay have written of a lane, and what is left.

A writer's newest batch tells where it ended, and its name where it began, so each stands for one unbroken range
of positions. Most lanes have one writer. There are more where a topic's beginning was gone when it was
replayed: from its archive those entries are written later, under a writer of their own, and the rest is not
written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headpond.model.ranges import RangeSet


class Piece(NamedTuple):
    """Positions that are to be written, under the writer that began at ``writer``."""

    first: int
    end: int
    writer: int


def left_of(first: int, end: int, written: Mapping[int, int]) -> list[Piece]:
    """What is not written of a range; ``written`` has, of each writer, where it began and how far it came."""
    there = RangeSet((began, reached) for began, reached in written.items() if began < reached)
    goes_on = {reached: began for began, reached in written.items()}
    return [Piece(start, stop, goes_on.get(start, start)) for start, stop in there.missing(first, end)]


def writer_name(base: str, began: int) -> str:
    """One that began with the first position has the lane's own name."""
    return base if began == 0 else f"{base}-{began}"


def began_at(base: str, name: str) -> int | None:
    """Where a writer of this lane began; None if it is another's."""
    if name == base:
        return 0
    head, dash, number = name.rpartition("-")
    return int(number) if dash and head == base and number.isdecimal() else None
