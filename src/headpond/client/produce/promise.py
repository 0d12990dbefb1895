"""Promises: the fate of a sent message, known when its segment is answered.

All rows of a segment share one ``Parcel``, and with it one fate; a ``Promise`` is a parcel and a row in it. A
receipt is made on request, so that a message whose receipt nobody reads costs nothing for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec import Struct

from headpond.client.arguments import checked
from headpond.model.errors import BadRequest, Closed, HeadpondError
from headpond.model.identity import Identity
from headpond.model.receipt import Fate, Outcome, Receipt, gravest


class Parcel:
    """The rows of one segment on their way. Its fate is set once, on the loop that sends it.

    Rows that were sent before the number of shards was known have no shard. They become *parts*, one per shard,
    when it is known.
    """

    __slots__ = (
        "__weakref__",
        "_parts",
        "awaited",
        "block",
        "claimed",
        "fate",
        "fates",
        "forgotten",
        "owner",
        "rows",
        "segment",
        "shard",
        "size",
        "topic",
        "waiters",
    )

    def __init__(self, topic: str, shard: int | None) -> None:
        self.topic = topic
        self.shard = shard
        """None while it is not known how many shards there are."""
        self.block = b""
        self.segment = -1
        """Its number; -1 until it is encoded for a shard."""
        self.rows = 0
        self.size = 0
        """The bytes of memory that it counts for."""
        self.owner: Outstanding | None = None
        """None until it is sent."""
        self.fates: list[Fate | None] = [None]
        """By destination. A spilled one may become stored later."""
        self.fate: Fate | None = None
        """The gravest, once all are known."""
        self.waiters: list[Callable[[], object]] = []
        self.awaited: set[int] | None = None
        """Rows whose fate somebody asked for; ``flush`` raises the failures of the others."""
        self.claimed = False
        """Whether somebody will see the fate of all rows."""
        self.forgotten = False
        """Whether it is spilled and this producer will not see when it is delivered."""
        self._parts: list[tuple[Parcel, Any]] = []

    # --- for the exchange -----------------------------------------------------------------------------------

    def settle(self, destination: int, fate: Fate) -> None:
        """The fate at one destination."""
        self.fates[destination] = fate
        if len(self.fates) > 1:
            known = tuple(each for each in self.fates if each is not None)
            if len(known) < len(self.fates):
                self._wake()
                return
            fate = gravest(known)
        ends, self.fate = self.fate is None, fate
        if ends and self.owner is not None:
            self.owner.parcel_ended(self)
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for wake in waiters:
                wake()

    def finish(self, fate: Fate) -> None:
        """The same fate at every destination: it was not sent at all."""
        self.free()
        for destination in range(len(self.fates)):
            self.settle(destination, fate)

    def free(self) -> None:
        if self.owner is not None:
            self.owner.freed_bytes += self.size

    def forget(self) -> None:
        self.forgotten = True
        self._wake()

    def part(self, shard: int, rows: int, places: Any) -> Parcel:
        """The parcel of those of its rows, at ``places`` (None: all), that got this shard."""
        part = _Part(self, shard, rows)
        self._parts.append((part, places))
        return part

    def part_settled(self, destination: int) -> None:
        fates = [part.fates[destination] for part, _ in self._parts]
        known = tuple(fate for fate in fates if fate is not None)
        if len(known) == len(fates):
            self.settle(destination, gravest(known))
        else:
            self._wake()

    def part_freed(self) -> None:
        if all(part.freed for part, _ in self._parts if isinstance(part, _Part)):
            self.free()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()

    # --- for those who wait ---------------------------------------------------------------------------------

    async def wait(self) -> Fate:
        """Each waiter has its own future, so that cancelling one leaves the others."""
        while self.fate is None:
            await self.changed()
        return self.fate

    async def changed(self) -> None:
        """Returns when its fate changed at a destination."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(partial(_wake, future))
        await future

    def stored_at(self, least: int) -> bool:
        """Whether so many destinations have it; raises when they no longer can."""
        stored = sum(fate is not None and fate.stored for fate in self.fates)
        refused = [fate for fate in self.fates if fate is not None and fate.error is not None]
        if len(self.fates) - len(refused) < least:
            assert refused[0].error is not None
            raise refused[0].error.again()
        if stored < least and self.forgotten:
            raise Closed(
                "it is spilled, and its producer is closed and will not see when it is delivered",
                hint="It is safe in the refill, and the next producer of this name delivers it.",
            )
        return stored >= least

    def is_stored(self, by: int | str) -> bool:
        """The same for a number or a word such as ``quorum``."""
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

    # --- receipts -------------------------------------------------------------------------------------------

    def receipt(self, row: int) -> Receipt:
        """The receipt of one row; the fate must be known."""
        if self._parts:
            part, row = self._part_of(row)
            if part.fate is not None:
                return part.receipt(row)
        fate = self.fate
        assert fate is not None, "its fate is not known yet"
        copies: tuple[Receipt, ...] = ()
        if len(self.fates) > 1:
            copies = tuple(self._receipt(each, row) for each in self.fates if each is not None)
        return self._receipt(fate, row, copies)

    def receipt_so_far(self, row: int) -> Receipt:
        """The receipt by the destinations that have answered; at least one has."""
        if self._parts:
            part, row = self._part_of(row)
            return part.receipt_so_far(row)
        known = tuple(each for each in self.fates if each is not None)
        copies = tuple(self._receipt(each, row) for each in known) if len(self.fates) > 1 else ()
        stored = tuple(each for each in known if each.stored)
        return self._receipt(gravest(stored or known), row, copies)

    def settled(self, row: int) -> Receipt:
        """The receipt of a row that arrived; a failure is raised, as a new exception."""
        receipt = self.receipt(row)
        if receipt.error is not None:
            error = receipt.error.again()
            error.receipt = receipt
            raise error
        return receipt

    def _part_of(self, row: int) -> tuple[Parcel, int]:
        """The part that a row is in, and where."""
        for part, places in self._parts:
            if places is None:
                return part, row
            at = places.index(row).as_py()
            if at >= 0:
                return part, at
        raise AssertionError("every row is in one part")

    def _receipt(self, fate: Fate, row: int, copies: tuple[Receipt, ...] = ()) -> Receipt:
        identity = Identity(self.block, self.shard or 0, self.segment, row)
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


class _Part(Parcel):
    """Rows of a parcel that had no shard when they were sent."""

    __slots__ = ("_whole", "freed")

    def __init__(self, whole: Parcel, shard: int, rows: int) -> None:
        super().__init__(whole.topic, shard)
        self.rows = rows
        self.fates = list(whole.fates)
        self.fate = whole.fate
        self.freed = False
        self._whole = whole

    def settle(self, destination: int, fate: Fate) -> None:
        super().settle(destination, fate)
        self._whole.part_settled(destination)

    def free(self) -> None:
        self.freed = True
        self._whole.part_freed()

    def forget(self) -> None:
        self._whole.forget()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Promise(Struct, eq=False, gc=False):
    """The result of ``post``: ``await`` returns the receipt, or raises the refusal of the message.

    There is one per message. So it is a struct, which costs no call of Python, and the garbage collector does
    not look at it: no parcel refers to a promise.
    """

    _parcel: Parcel
    _row: int

    def __await__(self) -> Generator[Any, None, Receipt]:
        parcel, row = self._parcel, self._row
        if parcel.awaited is None:
            parcel.awaited = {row}
        else:
            parcel.awaited.add(row)
        while parcel.fate is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            parcel.waiters.append(partial(_wake, future))
            yield from future.__await__()
        return parcel.settled(row)

    @checked
    async def confirmed(self, by: int | str = "all") -> Receipt:
        """Waits until that many destinations have stored it: a number, ``one``, ``quorum`` or ``all``.

        ``await promise`` also returns when it is *spilled*, because it is safe then; this waits until it was
        delivered. Raises the refusal once too few destinations are left, and ``Closed`` if it is still spilled
        when the producer ends.
        """
        parcel = self._parcel
        parcel.claim(self._row)
        while not parcel.is_stored(by):
            await parcel.changed()
        return parcel.receipt_so_far(self._row)

    def done(self) -> bool:
        """Whether the outcome is known, so that ``await`` returns at once."""
        return self._parcel.fate is not None

    def on_settled(self, act: Callable[[Receipt], object]) -> None:
        """Calls ``act`` once with the receipt, when the outcome is known; ``flush`` still raises a failure.

        In the blocking twin the thread of the loop calls it.
        """
        parcel, todo = self._parcel, [act]

        def look() -> None:
            if parcel.fate is None:
                parcel.waiters.append(look)
            if parcel.fate is None:  # looked at again: another thread may have set it meanwhile
                return
            try:
                settled = todo.pop()
            except IndexError:  # that thread calls it
                return
            settled(parcel.receipt(self._row))

        look()

    def receipt(self) -> Receipt | None:
        """The receipt, or None before the outcome is known; never raises."""
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
    """The outcome of a table's rows."""

    rows: int
    stored: int
    duplicate: int
    spilled: int
    rejected: int
    parcels: tuple[Part, ...] = field(repr=False)

    def __str__(self) -> str:
        """One line."""
        counts = {outcome: getattr(self, outcome) for outcome in Outcome}
        known = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count)
        return f"{self.rows:,} rows: {known or 'none'}"

    @property
    def errors(self) -> list[HeadpondError]:
        """Why rows were rejected, one error per segment."""
        return [p.fate.error for p, _, _ in self.parcels if p.fate is not None and p.fate.error is not None]

    @property
    def reasons(self) -> list[HeadpondError]:
        """Why rows were spilled, one reason per segment."""
        fates = [parcel.fate for parcel, _, _ in self.parcels]
        return [fate.reason for fate in fates if fate is not None and fate.reason is not None]

    @property
    def receipts(self) -> list[Receipt]:
        """One receipt per row, in the order of the table; made on request."""
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


FAILED_MAX: Final = 1024


class Outstanding:
    """The parcels that a producer sent and whose fate is not known, and the count of the others."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Outcome, 0)
        """Messages whose fate is known."""
        self.freed_bytes = 0
        """Bytes that left memory, less those that came in tables: to subtract from the batcher's count."""
        self._parcels: dict[Parcel, None] = {}
        self._failed: deque[Parcel] = deque(maxlen=FAILED_MAX)

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def add(self, parcel: Parcel, destinations: int) -> None:
        parcel.owner = self
        parcel.fates = [None] * destinations
        self._parcels[parcel] = None

    def parcel_ended(self, parcel: Parcel) -> None:
        """Its fate is known at every destination."""
        fate = parcel.fate
        assert fate is not None
        self._parcels.pop(parcel, None)
        self.counts[fate.outcome] += parcel.rows
        if fate.error is not None:
            self._failed.append(parcel)

    async def wait(self) -> None:
        """Returns when the fate of all present parcels is known."""
        for parcel in list(self._parcels):
            await parcel.wait()

    def raise_failures(self) -> None:
        """Raises the first failure that nobody awaited, with their number."""
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
