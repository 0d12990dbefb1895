"""Deliveries that wait to be asked for, undecoded, and the bytes that they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from headpond.wire.control import Deliver
from headpond.wire.frame import Frame

Delivery = tuple[Deliver, Frame, int]
"""What is meant, of which record, and what that took of the credit."""


class Deliveries:
    """In the order in which they came."""

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: deque[Delivery] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._waiting)

    def extend(self, arrived: list[Delivery]) -> None:
        self._waiting.extend(arrived)
        self.bytes += sum(size for _, _, size in arrived)

    def popleft(self) -> Delivery:
        first = self._waiting.popleft()
        self.bytes -= first[2]
        return first

    def clear(self) -> None:
        self._waiting.clear()
        self.bytes = 0
