"""How far something is done without a hole, when its parts are done in any order."""

from __future__ import annotations

from collections.abc import Iterable


class Prefix:
    """All numbers below ``floor`` are done, and some above it."""

    __slots__ = ("_above", "floor")

    def __init__(self) -> None:
        self.floor = 0
        self._above: set[int] = set()

    def add(self, numbers: Iterable[int]) -> None:
        floor, above = self.floor, self._above
        for number in numbers:
            if number == floor:
                floor += 1
            elif number > floor:
                above.add(number)
        while floor in above:
            above.remove(floor)
            floor += 1
        self.floor = floor
