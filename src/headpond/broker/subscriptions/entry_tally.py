"""The subscription's side of the ledger, for one shard: how entries were settled, and how many copies went out.

It counts from ``start`` on, the subscription's first entry; when its place is set, it begins anew there. Kinds
are counted as entries become settled, so that their sum must be what the cursor and its bitmap say. Copies are
told in the settlement journal beside the next settlement, as totals.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

ACKED = "acked"
SKIPPED = "skipped"
DEAD = "dead"
RETENTION = "retention"
DAMAGED = "damaged"
EXPIRED = "expired"
COMPACTED = "compacted"
"""State topics settle what is not the latest of its key any more under this kind."""
COUNTED = (ACKED, SKIPPED, RETENTION, DAMAGED, EXPIRED, COMPACTED)
"""The dead are a set of their own, since they can be offered again."""
LOST = (RETENTION, DAMAGED, EXPIRED)
"""Settled by nobody."""

Handed = tuple[int, int, int, int, int]
"""Totals: delivered, redelivered, unseen, elsewhere, late."""
NOTHING: Handed = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class Counts:
    """Of a whole subscription, whatever its place was set to since."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    skipped: int = 0
    nacked: int = 0
    lost: int = 0
    late: int = 0
    buried: int = 0
    redriven: int = 0


class EntryTally(msgspec.Struct, array_like=True):
    start: int = 0
    run: int = 0
    """The node's run in which it began."""
    acked: int = 0
    skipped: int = 0
    retention: int = 0
    damaged: int = 0
    expired: int = 0
    compacted: int = 0
    passed: int = 0
    unknown: int = 0
    delivered: int = 0
    """Copies handed out, from here on since ``copies_run``."""
    redelivered: int = 0
    """Those of them that were a further attempt."""
    unseen: int = 0
    """Those of them that a consumer gave back without having looked at them."""
    elsewhere: int = 0
    """Entries settled by a consumer that was not handed them since then."""
    late: int = 0
    """Entries settled once more."""
    copies_run: int = 0
    reached_before: int = 0
    """Entries that had reached a consumer when that run began."""
    delivered_before: int = 0
    """Copies handed out before it, opened or not, at the least."""
    reached_lost: int = 0
    """Entries that reached a consumer, came back, and are not to be had any more."""

    def settled(self, kind: str, count: int) -> None:
        """Entries that were not settled before are."""
        if kind != DEAD:
            kind = kind if kind in COUNTED else DAMAGED
            setattr(self, kind, getattr(self, kind) + count)

    def handed_out(self, count: int, attempt: int) -> None:
        self.delivered += count
        if attempt > 1:
            self.redelivered += count

    @property
    def handed(self) -> Handed:
        return self.delivered, self.redelivered, self.unseen, self.elsewhere, self.late

    @handed.setter
    def handed(self, totals: Handed) -> None:
        self.delivered, self.redelivered, self.unseen, self.elsewhere, self.late = totals

    def recall(self, before: Handed, told: Handed) -> None:
        """Totals from the journal, where they were ``before``; what was read twice changes nothing."""
        delivered, redelivered, unseen, elsewhere, late = map(max, before, told)
        self.handed = (delivered, redelivered, unseen, elsewhere, late)

    def begin_copies(self, run: int, reached: int) -> None:
        """A run was cut short, and what it handed out at last is not known: copies are counted anew."""
        self.delivered_before += self.delivered
        self.handed = NOTHING
        self.copies_run, self.reached_before = run, reached

    def reopened(self, first: int, count: int, dead: int) -> None:
        """``count`` entries from ``first`` on, before the start, are offered again; ``dead`` others stay so."""
        self.passed += self.start - first - count - dead
        self.reached_before += count + dead  # all of them died of being handed out
        self.start = first
