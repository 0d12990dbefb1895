"""How far a program is done with its messages, in whichever order it finishes them."""

from __future__ import annotations

from collections import deque
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


class CommitMarks:
    """Which index may be committed: the program is done with everything that was delivered before it."""

    __slots__ = ("_done", "_exact", "_marks")

    def __init__(self, *, exact: bool) -> None:
        """``exact``: every delivered payload is one entry."""
        self._exact = exact
        self._marks: deque[tuple[int, int]] = deque()
        """Payloads delivered so far, and the index to commit when the program is done with all of them."""
        self._done = Prefix()

    def add(self, delivered: int, index: int) -> int | None:
        """``index`` may be committed after so many payloads. Returns the index to commit now, if any."""
        self._marks.append((delivered, index))
        return self._reached()

    def done(self, places: Iterable[int]) -> int | None:
        """The program is done with these payloads. Returns the index to commit now, if any."""
        self._done.add(places)
        return self._reached()

    def _reached(self) -> int | None:
        done, marks = self._done.floor, self._marks
        index = None
        while marks and marks[0][0] <= done:
            index = marks.popleft()[1]
        if self._exact and marks:
            index = marks[0][1] - (marks[0][0] - done)
        return index
