"""Deliveries: what a node sent and nobody took yet. Records wait undecoded until they are taken as batches.

Small records of one delivery are one run, and make one batch. If something in a run cannot be read, its records
are read one by one.

In a strict subscription the refused message comes again apart from the others. Where messages come one at a
time, or one per key, the rows of a record follow in deliveries without it, so each shard's last record stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from headpond.client.consume.batch import Batch, in_runs, meant_spans, only
from headpond.client.consume.gate import InHand, OrderGate, covers
from headpond.client.consume.shelf import Places
from headpond.model.bounds import Span
from headpond.model.errors import HeadpondError
from headpond.model.message import Origin
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Deliver, Subscribed
from headpond.wire.frame import OVERHEAD_BYTES, Frame

ALL = [(0, 2**63)]

Delivery = tuple[Deliver, Sequence[Frame], int]
"""The entries that are meant, the record or the run of records that holds them, and the credit that it used."""


class Deliveries:
    """``read`` decodes the rows of records that are meant, ``owe`` returns credit to the node, and
    ``on_unreadable`` gets the entries of a record that cannot be read, and why."""

    def __init__(
        self,
        gate: OrderGate,
        in_hand: InHand,
        *,
        read: Callable[[Sequence[Frame], Deliver], Batch | None],
        owe: Callable[[int], None],
        on_unreadable: Callable[[int, list[Span], str], None],
    ) -> None:
        self.last: dict[int, Origin] = {}
        """By shard: the last record that something was taken of."""
        self._gate = gate
        self._in_hand = in_hand
        self._read = read
        self._owe = owe
        self._on_unreadable = on_unreadable
        self._waiting: deque[Delivery] = deque()
        self._again: deque[Delivery] = deque()
        """In a strict subscription: the refused message, come again."""
        self._repeated: dict[int, RangeSet] = {}
        """By shard: entries that came as a further attempt and may wait to be handed out."""
        self._records: dict[int, Frame] = {}
        """By shard: the last record that came alone."""
        self._rows: dict[int, Batch] = {}
        """All rows of these records, decoded at the first use; one that cannot be read is not here."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        waiting = sum(size for _, _, size in (*self._waiting, *self._again))
        return waiting + sum(len(frame.body) for frame in self._records.values())

    def add(self, deliver: Deliver, frames: list[Frame], info: Subscribed | None) -> None:
        """A delivery arrived, with its records or without."""
        if deliver.attempt > 1:
            self._gate.repeats = True
            for span in deliver.spans:
                self._repeated.setdefault(deliver.shard, RangeSet()).add(*span)
        if frames:
            plain = info is not None and not info.schemas
            arrived = [(deliver, run, _bytes_of(run)) for run in in_runs(frames, plain=plain)]
            if len(frames) == 1 and _rows_may_follow(info):
                self._records[deliver.shard] = frames[0]
                self._rows.pop(deliver.shard, None)
        else:
            last = self._records.get(deliver.shard)
            arrived = [(deliver, [last], 0)] if last is not None else []
        if self._gate.strict and (place := self._comes_again(deliver)) is not None:
            span, rest = (place[1], place[1] + 1), RangeSet(deliver.spans)
            rest.discard(*span)
            again = msgspec.structs.replace(deliver, spans=[span])
            self._again.extend([(again, run, 0) for _, run, _ in arrived])
            self._gate.knock()
            others = msgspec.structs.replace(deliver, spans=list(rest))
            arrived = [(others, run, size) for _, run, size in arrived]
        self._waiting.extend(arrived)

    def _comes_again(self, deliver: Deliver) -> tuple[int, int] | None:
        """The message that the gate awaits, or that is in hand and missed its deadline, if it comes now."""
        place = self._gate.awaited or (self._gate.place if deliver.attempt > 1 else None)
        if place is None or not covers(deliver.shard, deliver.spans, place):
            return None
        self._gate.refuse(deliver.shard, deliver.spans)
        return place

    # --- batches ------------------------------------------------------------------------------------

    def take(self) -> Batch | None:
        """The next batch of what has arrived."""
        return self._take(self._waiting)

    def take_again(self) -> Batch | None:
        """The refused message, if it has come again."""
        return self._take(self._again)

    def _take(self, deliveries: deque[Delivery]) -> Batch | None:
        while deliveries:
            deliver, run, size = deliveries.popleft()
            self._owe(size)
            try:
                batch = self._read_rows(run, deliver)
            except HeadpondError as error:
                if len(run) > 1:
                    deliveries.extendleft((deliver, [frame], 0) for frame in reversed(run))
                    continue
                spans = meant_spans(run, deliver)
                self._on_unreadable(deliver.shard, spans, f"cannot be read: {error.message}")
                continue
            if batch is not None:
                last = self.last.get(batch.shard)
                if last is None or last.first_entry <= batch.origins[-1].first_entry:
                    self.last[batch.shard] = batch.origins[-1]
                if (batch := self._in_hand.hand(batch)) is not None:
                    return batch
        return None

    def _read_rows(self, run: Sequence[Frame], deliver: Deliver) -> Batch | None:
        shard = deliver.shard
        if self._records.get(shard) is not run[0]:
            return self._read(run, deliver)
        if shard not in self._rows:
            batch = self._read(run, msgspec.structs.replace(deliver, spans=ALL))
            if batch is None:
                return None
            self._rows[shard] = batch
        return only(self._rows[shard], deliver.spans, deliver.attempt)

    # --- what is not taken --------------------------------------------------------------------------

    def queued(self) -> Places:
        """The entries that wait."""
        return [
            (deliver.shard, span) for deliver, run, _ in self._waiting for span in meant_spans(run, deliver)
        ]

    def drop(self) -> Places:
        """Drops what waits, and returns its credit."""
        dropped = self.queued()
        for _, _, size in (*self._waiting, *self._again):
            self._owe(size)
        self.clear()
        self._again.clear()
        return dropped

    def clear(self) -> None:
        self._waiting.clear()

    def withdraw(self, shard: int, spans: list[Span]) -> None:
        """Entries must not be handed out."""
        for queue in (self._waiting, self._again):
            for at, (deliver, run, size) in enumerate(queue):
                if deliver.shard == shard:
                    left = RangeSet(deliver.spans)
                    for start, end in spans:
                        left.discard(start, end)
                    queue[at] = msgspec.structs.replace(deliver, spans=list(left)), run, size

    def note_repeats(self, unread: Places) -> None:
        """Tells the gate whether repeated messages still wait, here or among the ``unread``."""
        queues = (*self._waiting, *self._again)
        waiting = [(deliver.shard, span) for deliver, _, _ in queues for span in deliver.spans]
        before, self._repeated = self._repeated, {}
        for shard, span in (*waiting, *unread):
            for again in before.get(shard, RangeSet()).overlap(*span):
                self._repeated.setdefault(shard, RangeSet()).add(*again)
        self._gate.repeats = bool(self._repeated)

    def forget_rows(self) -> None:
        """The topic has another schema: the rows that are still to follow come in it."""
        self._rows.clear()

    def forget_records(self) -> None:
        """No further rows of the last records will follow."""
        self._records.clear()
        self._rows.clear()


def _bytes_of(run: Sequence[Frame]) -> int:
    return sum(OVERHEAD_BYTES + len(frame.body) for frame in run)


def _rows_may_follow(info: Subscribed | None) -> bool:
    """Whether further rows of a record come in deliveries without it, as this kind and mode deliver."""
    return info is not None and info.mode == "resilient" and info.kind in ("shared", "key_shared")
