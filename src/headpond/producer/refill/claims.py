"""The state of a refill's segments at each destination: confirmed, refused for good, or still to be sent.

A claim is that of one destination on one shard. ``settled`` are the segments that the destination confirmed or
refused for good. Its floor is the first segment of the file that is not settled; a STATUS records it. Segments
that are not in the file were delivered from memory or are for other destinations, so a floor skips them.

A segment that can no longer be read is refused in the destination's name with the code ``damaged``, so that
floors skip it too. That is not for good: a segment that can be read after all, because a disk recovered, is
sent (and sent again if the file is opened once more before it is done: the node knows it as a duplicate).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.producer.refill.form import MESSAGE_CHARACTERS_MAX, Rejection

CODE_DAMAGED = "damaged"
CODE_DROPPED = "dropped"
"""Refused in a destination's name by `headpond refill drop`."""

Floors = dict[str, dict[int, int]]
"""By destination and shard; 0 is left out."""


class Claim:
    """One destination's claim on one shard."""

    __slots__ = ("damaged", "open", "refused", "settled", "unwritten")

    def __init__(self) -> None:
        self.settled = RangeSet()
        """Confirmed or refused."""
        self.refused = RangeSet()
        self.damaged = RangeSet()
        """Refused segments that it never had a chance to get."""
        self.open = RangeSet()
        """Rejected and not delivered since."""
        self.unwritten = RangeSet()
        """Those of them that are not in the file yet."""

    def floor(self, held: RangeSet) -> int:
        for first, end in held:
            missing = self.settled.missing(first, end)
            if missing:
                return missing[0][0]
        return self.settled.end


class Claims:
    """The claims of all destinations."""

    def __init__(self, destinations: tuple[str, ...]) -> None:
        self.destinations = destinations
        self.refusals: list[Rejection] = []
        """All that was refused for good, in the order it happened."""
        self._refusals_written = 0
        self._claims: dict[str, dict[int, Claim]] = {name: {} for name in destinations}

    def __contains__(self, destination: str) -> bool:
        return destination in self._claims

    def of(self, destination: str, shard: int) -> Claim:
        claims = self._claims[destination]
        claim = claims.get(shard)
        if claim is None:
            claim = claims[shard] = Claim()
        return claim

    @property
    def seen_next(self) -> dict[int, int]:
        """By shard: one past the highest segment that a destination said anything about."""
        found: dict[int, int] = {}
        for claims in self._claims.values():
            for shard, claim in claims.items():
                found[shard] = max(found.get(shard, 0), claim.settled.end, claim.open.end)
        return found

    @property
    def refused_there(self) -> list[Rejection]:
        """The segments that destinations themselves refused for good."""
        return [each for each in self.refusals if each.code not in (CODE_DAMAGED, CODE_DROPPED)]

    def ack(self, key: SegmentKey, destination: str) -> None:
        claim = self.of(destination, key.shard)
        claim.settled.add(key.segment, key.segment + 1)
        if claim.open:
            claim.open.discard(key.segment, key.segment + 1)
            claim.unwritten.discard(key.segment, key.segment + 1)

    def reject(self, key: SegmentKey, destination: str) -> None:
        """The segment is to be sent again, unless it was refused for good."""
        claim = self.of(destination, key.shard)
        if key.segment in claim.refused or key.segment in claim.open:
            return
        claim.settled.discard(key.segment, key.segment + 1)
        claim.open.add(key.segment, key.segment + 1)
        claim.unwritten.add(key.segment, key.segment + 1)

    def refuse(self, rejection: Rejection) -> None:
        """Segments that are never sent there again. An earlier refusal keeps its reason."""
        claim = self.of(rejection.destination, rejection.shard)
        message = rejection.message[:MESSAGE_CHARACTERS_MAX]
        runs = claim.refused.missing(rejection.first, rejection.end)
        damaged = rejection.code == CODE_DAMAGED
        if not damaged:
            runs += claim.damaged.overlap(rejection.first, rejection.end)
        for run in sorted(runs):
            claim.refused.add(*run)
            claim.settled.add(*run)
            claim.open.discard(*run)
            claim.unwritten.discard(*run)
            if damaged:
                claim.damaged.add(*run)
            else:
                claim.damaged.discard(*run)
            self._append(Rejection(rejection.destination, rejection.shard, *run, rejection.code, message))

    def recover(self, shard: int, first: int, end: int) -> None:
        """Segments can be read: a destination that was skipped because of damage is sent them after all."""
        for destination in self.destinations:
            claim = self.of(destination, shard)
            for run in claim.damaged.overlap(first, end):
                for ranges in (claim.damaged, claim.refused, claim.settled):
                    ranges.discard(*run)

    def _append(self, new: Rejection) -> None:
        """Extends the last run if the reason is the same and the file does not have it yet."""
        if len(self.refusals) > self._refusals_written:
            last = self.refusals[-1]
            longer = msgspec.structs.replace(last, end=new.end)
            if last.end == new.first and longer == msgspec.structs.replace(new, first=last.first):
                self.refusals[-1] = longer
                return
        self.refusals.append(new)

    def restore(self, destination: str, shard: int, floor: int, late: RangeSet, open_: RangeSet) -> None:
        """By the file: all below ``floor`` is settled but for ``late`` and ``open_``; refusals stay."""
        claim = self.of(destination, shard)
        claim.settled.add(0, floor)
        for ranges in (late, open_):
            for first, end in ranges:
                claim.settled.discard(first, end)
        for first, end in open_:
            for start, stop in claim.refused.missing(first, end):
                claim.open.add(start, stop)
        for first, end in claim.refused:
            claim.settled.add(first, end)

    # --- for the file -------------------------------------------------------------------------------

    def unwritten(self) -> list[Rejection]:
        """The rejections that are not in the file yet, refusals first."""
        found = self.refusals[self._refusals_written :]
        for destination, claims in self._claims.items():
            for shard, claim in sorted(claims.items()):
                found += [Rejection(destination, shard, first, end) for first, end in claim.unwritten]
        return found

    def mark_written(self) -> None:
        self._refusals_written = len(self.refusals)
        for claim in self._all():
            if claim.unwritten:
                claim.unwritten = RangeSet()

    def mark_unwritten(self) -> None:
        """The file lost its end, with unknown content: all is to be written again."""
        self._refusals_written = 0
        for claim in self._all():
            claim.unwritten = claim.open.copy()

    def floors(self, held: Callable[[int], RangeSet]) -> Floors:
        """The first segment that is not confirmed, by destination and shard."""
        found: Floors = {}
        for destination, claims in self._claims.items():
            floors = {shard: claim.floor(held(shard)) for shard, claim in sorted(claims.items())}
            found[destination] = {shard: floor for shard, floor in floors.items() if floor}
        return found

    def _all(self) -> Iterator[Claim]:
        for claims in self._claims.values():
            yield from claims.values()
