"""Promises: what a sent message becomes, known when its segment's answer comes.

All rows of a segment share one ``Parcel``, and with it one fate; a ``Promise`` is a parcel and a row in it. A
receipt is made when it is asked for, so a message whose receipt nobody reads costs nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.model.errors import PenstockError
from penstock.model.identity import Identity
from penstock.model.receipt import Durability, Outcome, Receipt


@dataclass(frozen=True, slots=True)
class Fate:
    """What a segment's answer said."""

    outcome: Outcome
    destination: str
    first_entry: int | None = None
    durability: Durability | None = None
    error: PenstockError | None = None


class Parcel:
    """The rows of one segment on their way. Its fate is set once, on the loop that sends it."""

    __slots__ = (
        "awaited",
        "block",
        "claimed",
        "fate",
        "posted_at",
        "rows",
        "segment",
        "shard",
        "size",
        "topic",
        "waiters",
    )

    def __init__(self, block: bytes, topic: str, shard: int) -> None:
        self.block = block
        self.topic = topic
        self.shard = shard
        self.segment = -1
        """Its number; -1 until it is first sent."""
        self.rows = 0
        self.size = 0
        """Bytes of memory it counts for."""
        self.posted_at = 0.0
        self.fate: Fate | None = None
        self.waiters: list[Callable[[], object]] = []
        self.awaited: set[int] | None = None
        """Rows whose fate somebody asked for; the others' failures are raised by ``flush``."""
        self.claimed = False
        """Whether somebody will see the fate of all rows."""

    def finish(self, fate: Fate) -> None:
        assert self.fate is None, "a fate is set once"
        self.fate = fate
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()

    async def wait(self) -> Fate:
        """Each waiter has a future of its own, so that giving up one leaves the others."""
        while self.fate is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiters.append(partial(_wake, future))
            await future
        return self.fate

    def claim(self, row: int) -> None:
        """Somebody will see the fate of ``row``."""
        if self.awaited is None:
            self.awaited = {row}
        else:
            self.awaited.add(row)

    @property
    def unclaimed(self) -> int:
        return 0 if self.claimed else self.rows - len(self.awaited or ())

    def receipt(self, row: int) -> Receipt:
        """The receipt of one row; the fate must be known."""
        fate = self.fate
        assert fate is not None, "its fate is not known yet"
        identity = Identity(self.block, self.shard, self.segment, row)
        entry = None if fate.first_entry is None else fate.first_entry + row
        return Receipt(fate.outcome, fate.destination, self.topic, identity, entry, fate.durability, fate.error)

    def settled(self, row: int) -> Receipt:
        """The receipt of a row that arrived; a failure is raised, in an exception of its own."""
        receipt = self.receipt(row)
        if receipt.error is not None:
            error = receipt.error.again()
            error.receipt = receipt
            raise error
        return receipt


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Promise:
    """What ``post`` returns: ``await`` it for the receipt, or raise what refused the message."""

    __slots__ = ("_parcel", "_row")

    def __init__(self, parcel: Parcel, row: int) -> None:
        self._parcel = parcel
        self._row = row

    def __await__(self) -> Generator[Any, None, Receipt]:
        parcel, row = self._parcel, self._row
        parcel.claim(row)
        if parcel.fate is None:
            yield from parcel.wait().__await__()
        return parcel.settled(row)

    def done(self) -> bool:
        """Whether the message's fate is known, so that awaiting it does not wait."""
        return self._parcel.fate is not None

    def receipt(self) -> Receipt | None:
        """The receipt if the fate is known, without raising; None before."""
        if self._parcel.fate is None:
            return None
        self._parcel.claim(self._row)
        return self._parcel.receipt(self._row)


Part = tuple[Parcel, int, Any]
"""A segment of a table: its parcel, the table row that its rows are counted from, and an Arrow array of where
each row stood, counted from there (None where they follow in a run)."""


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """What became of a table's rows."""

    rows: int
    stored: int
    duplicate: int
    spilled: int
    rejected: int
    parcels: tuple[Part, ...]

    @property
    def errors(self) -> list[PenstockError]:
        """Why rows were rejected, once a segment."""
        return [p.fate.error for p, _, _ in self.parcels if p.fate is not None and p.fate.error is not None]

    @property
    def receipts(self) -> list[Receipt]:
        """A receipt a row, in the table's order; made when asked for."""
        found: list[Receipt | None] = [None] * self.rows
        for parcel, first, places in self.parcels:
            for row, place in enumerate(range(parcel.rows) if places is None else places.to_pylist()):
                found[first + place] = parcel.receipt(row)
        return [receipt for receipt in found if receipt is not None]

    @classmethod
    def of(cls, parcels: list[Part]) -> BatchReceipt:
        counts = dict.fromkeys(Outcome, 0)
        for parcel, _, _ in parcels:
            assert parcel.fate is not None
            counts[parcel.fate.outcome] += parcel.rows
        return cls(
            sum(counts.values()),
            counts[Outcome.STORED],
            counts[Outcome.DUPLICATE],
            counts[Outcome.SPILLED],
            counts[Outcome.REJECTED],
            tuple(parcels),
        )
