"""A promise that records its outcomes."""

from __future__ import annotations

from headpond.model.receipt import Fate


class Heard:
    def __init__(self) -> None:
        self.fates: list[tuple[int, str]] = []
        """Destination and outcome, in the order they came."""
        self.shard: int | None = 0
        self.block = b""
        self.segment = -1
        self.parts: list[Heard] = []
        self.freed = 0
        self.forgotten = 0

    def settle(self, destination: int, fate: Fate) -> None:
        self.fates.append((destination, str(fate.outcome)))

    def free(self) -> None:
        self.freed += 1

    def forget(self) -> None:
        self.forgotten += 1

    def part(self, shard: int, rows: int, places: object) -> Heard:
        part = Heard()
        part.shard = shard
        self.parts.append(part)
        return part
