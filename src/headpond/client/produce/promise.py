"""Promises: what a sent message becomes, known when its segment's answer comes.

All rows of a segment share one ``Parcel``, and with it one fate; a ``Promise`` is a parcel and a row in it. A
receipt is made when it is asked for, so a message whose receipt nobody reads costs nothing for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from headpond.client.arguments import checked
from headpond.model.errors import BadRequest, Closed, HeadpondError
from headpond.model.identity import Identity
from headpond.model.receipt import Fate, Outcome, Receipt, gravest


class Owner(Protocol):
    """Whoever sent a parcel; told on the loop that sends it."""

    def parcel_ended(self, parcel: Parcel) -> None:
        """Its fate is known at every destination."""

    def parcel_freed(self, parcel: Parcel) -> None:
        """Its bytes left memory."""


class Parcel:
    """The rows of one segment on their way. Its fate is set once, on the loop that sends it."""

    __slots__ = (
        "__weakref__",
        "awaited",
        "block",
        "claimed",
        "fate",
        "fates",
        "forgotten",
        "owner",
        "posted_at",
        "rows",
        "segment",
        "shard",
        "size",
        "topic",
        "waiters",
    )

    def __init__(self, topic: str, shard: int) -> None:
        self.block = b""
        self.topic = topic
        self.shard = shard
        self.segment = -1
        """Its number; -1 until it is encoded."""
        self.rows = 0
        self.size = 0
        """Bytes of memory it counts for."""
        self.posted_at = 0.0
        self.owner: Owner | None = None
        self.fates: list[Fate | None] = [None]
        """By destination. A spilled one may become stored later."""
        self.fate: Fate | None = None
        """The gravest, once all are known."""
        self.waiters: list[Callable[[], object]] = []
        self.awaited: set[int] | None = None
        """Rows whose fate somebody asked for; the others' failures are raised by ``flush``."""
        self.claimed = False
        """Whether somebody will see the fate of all rows."""
        self.forgotten = False
        """Whether it is spilled and nobody will tell when it is delivered."""

    def settle(self, destination: int, fate: Fate) -> None:
        """What became of it at one destination."""
        self.fates[destination] = fate
        known = tuple(each for each in self.fates if each is not None)
        if len(known) == len(self.fates):
            ends, self.fate = self.fate is None, gravest(known)
            if ends and self.owner is not None:
                self.owner.parcel_ended(self)
        self._wake()

    def finish(self, fate: Fate) -> None:
        """The same at every destination: it was not sent at all."""
        self.free()
        for destination in range(len(self.fates)):
            self.settle(destination, fate)

    def free(self) -> None:
        if self.owner is not None:
            self.owner.parcel_freed(self)

    def forget(self) -> None:
        self.forgotten = True
        self._wake()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()

    async def wait(self) -> Fate:
        """Each waiter has a future of its own, so that giving up one leaves the others."""
        while self.fate is None:
            await self.changed()
        return self.fate

    async def changed(self) -> None:
        """Something became of it, somewhere."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(partial(_wake, future))
        await future

    def stored_at(self, least: int) -> bool:
        """Whether so many destinations have it; raises when that cannot be any more."""
        stored = sum(fate is not None and fate.stored for fate in self.fates)
        refused = [fate for fate in self.fates if fate is not None and fate.error is not None]
        if len(self.fates) - len(refused) < least:
            assert refused[0].error is not None
            raise refused[0].error.again()
        if stored < least and self.forgotten:
            raise Closed(
                "it is spilled, and its producer does not hear of it any more",
                hint="It is safe in the refill, and the next producer of this name delivers it.",
            )
        return stored >= least

    def is_stored(self, by: int | str) -> bool:
        """The same with a word for how many."""
        if self.owner is None:  # not encoded yet, so that it is not known how many destinations there are
            return False
        return self.stored_at(_least(by, len(self.fates)))

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
        copies: tuple[Receipt, ...] = ()
        if len(self.fates) > 1:
            copies = tuple(self._receipt(each, row) for each in self.fates if each is not None)
        return self._receipt(fate, row, copies)

    def receipt_so_far(self, row: int) -> Receipt:
        """The receipt by the destinations that have answered; at least one has."""
        known = tuple(each for each in self.fates if each is not None)
        copies = tuple(self._receipt(each, row) for each in known) if len(self.fates) > 1 else ()
        stored = tuple(each for each in known if each.stored)
        return self._receipt(gravest(stored or known), row, copies)

    def _receipt(self, fate: Fate, row: int, copies: tuple[Receipt, ...] = ()) -> Receipt:
        identity = Identity(self.block, self.shard, self.segment, row)
        entry = None if fate.first_entry is None else fate.first_entry + row
        return Receipt(
            fate.outcome,
            fate.destination,
            self.topic,
            identity,
            entry,
            fate.durability,
            fate.error,
            copies,
            fate.reason,
        )

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

    @checked
    async def confirmed(self, by: int | str = "all") -> Receipt:
        """Waits until so many destinations have stored it: a number, ``one``, ``quorum`` or ``all``.

        ``await promise`` also takes *spilled* for an end, for then it is safe; this waits until it was
        delivered. Raises what refused it once so many can not be had any more, and ``Closed`` where it is
        spilled when the producer ends.
        """
        parcel = self._parcel
        parcel.claim(self._row)
        while not parcel.is_stored(by):
            await parcel.changed()
        return parcel.receipt_so_far(self._row)

    def done(self) -> bool:
        """Whether the message's fate is known, so that awaiting it does not wait."""
        return self._parcel.fate is not None

    def receipt(self) -> Receipt | None:
        """The receipt if the fate is known, without raising; None before."""
        if self._parcel.fate is None:
            return None
        self._parcel.claim(self._row)
        return self._parcel.receipt(self._row)


def _least(by: int | str, destinations: int) -> int:
    least = (
        {"one": 1, "quorum": destinations // 2 + 1, "all": destinations}.get(by) if isinstance(by, str) else by
    )
    if least is None or not 1 <= least <= destinations:
        raise BadRequest(
            f"by is {by!r}; there are {destinations} destinations",
            hint="Say 'one', 'quorum', 'all' or a number of destinations.",
        )
    return least


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
    def errors(self) -> list[HeadpondError]:
        """Why rows were rejected, once a segment."""
        return [p.fate.error for p, _, _ in self.parcels if p.fate is not None and p.fate.error is not None]

    @property
    def reasons(self) -> list[HeadpondError]:
        """Why rows were spilled, once a segment."""
        fates = [parcel.fate for parcel, _, _ in self.parcels]
        return [fate.reason for fate in fates if fate is not None and fate.reason is not None]

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


FAILED_KEPT_MAX: Final = 1024


class Outstanding:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(Outcome, 0)
        """Messages whose fate is known."""
        self._parcels: dict[Parcel, None] = {}
        self._failed: deque[Parcel] = deque(maxlen=FAILED_KEPT_MAX)

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def add(self, parcel: Parcel) -> None:
        self._parcels[parcel] = None

    def ended(self, parcel: Parcel) -> None:
        """Its fate is known at every destination."""
        fate = parcel.fate
        assert fate is not None
        self._parcels.pop(parcel, None)
        self.counts[fate.outcome] += parcel.rows
        if fate.error is not None:
            self._failed.append(parcel)

    async def wait(self) -> None:
        """Returns when the fate of all that are on their way now is known."""
        for parcel in list(self._parcels):
            await parcel.wait()

    def raise_failures(self) -> None:
        """Raises the first failure that nobody awaited, saying how many there were."""
        failed = [parcel for parcel in self._failed if parcel.unclaimed]
        self._failed.clear()
        if not failed:
            return
        rows = sum(parcel.unclaimed for parcel in failed)
        fate = failed[0].fate
        assert fate is not None and fate.error is not None
        error = type(fate.error)(f"{rows:,} posted messages failed: {fate.error.message}", hint=fate.error.hint)
        error.receipt = failed[0].receipt(0)
        raise error
