"""The exchange: segments between the encoder and the destinations, each with a promise.

A segment is put here once and leaves when every destination is *through* with it: the destination confirmed or
refused it, or the refill holds it for that destination.

=============  ==========================================  ====================================================
call           the segment is                              outcome
=============  ==========================================  ====================================================
``put``        new                                         held; every destination is open
``get``        not put yet                                 ``AWAITED``
``get``        in memory                                   its frame
``get``        in the refill, or gone                      None: look in the refill
``ack``        open at the destination                     settles its promise; gone when no destination is open
``ack``        through (spilled before)                    settles its promise once more, if somebody holds it
``reject``     in memory, open                             to be written to the refill: ``rejected`` lists it
``reject``     in the refill, open                         spilled at once
``keep``       open at the destination                     as ``reject``, but its promise is settled as refused
``written``    rejected                                    memory is free; spilled where it was rejected
``withdraw``   in memory                                   gone; the caller sends its rows another way
``forget``     spilled                                     its promise will not be settled again
=============  ==========================================  ====================================================

An ack arrives here before it reaches the disk, because a segment leaves memory only after it was written: a
segment that is not here is in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from math import inf
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.model.receipt import Durability, Fate, Outcome


class _Awaited:
    pass


AWAITED: Final = _Awaited()
"""``get``: this segment has not been put yet."""


class SegmentPromise(Protocol):
    """Somebody waits for a segment."""

    shard: int | None
    """None while the rows have no shard."""
    block: bytes
    segment: int
    """Set with ``block`` when the rows get their number."""

    def settle(self, destination: int, fate: Fate) -> None:
        """The fate at one destination. After ``spilled`` a second one may follow, when it was delivered."""

    def free(self) -> None:
        """The bytes left memory."""

    def forget(self) -> None:
        """The segment is spilled, and this producer will not see when it is delivered."""

    def part(self, shard: int, rows: int, places: Any) -> SegmentPromise:
        """A promise for those of its rows, at ``places`` (None: all), that got this shard."""


Parts = dict[SegmentKey, list[tuple[SegmentKey, int, Any]]]
"""By the key of rows without a shard: the segments that have them, the number of rows, and their places."""


class _Segment:
    __slots__ = ("frame", "open", "promise", "put_at", "refused", "rejected")

    def __init__(self, frame: bytes, promise: SegmentPromise, open_: set[int], put_at: float) -> None:
        self.frame: bytes | None = frame
        """None once the refill has it."""
        self.promise = promise
        self.open = open_
        self.rejected: set[int] = set()
        self.refused: set[int] = set()
        """Destinations where its promise is settled as refused; it goes to the refill all the same."""
        self.put_at = put_at


class Exchange:
    def __init__(
        self,
        destinations: tuple[str, ...],
        first: dict[int, int] | None = None,
        why: Callable[[int], HeadpondError | None] = lambda destination: None,
        durability: Durability = Durability.SYNC,
    ) -> None:
        """``why`` says why a destination does not take a segment that is spilled for it; ``durability`` is that
        of the refill."""
        self.destinations = destinations
        self._why = why
        self._durability = durability
        self.bytes = 0
        """Bytes of frames in memory."""
        self.next: dict[int, int] = dict(first or {})
        """By shard: one past the last segment put."""
        self._segments: dict[SegmentKey, _Segment] = {}
        self.to_write: dict[SegmentKey, None] = {}
        """Rejected segments that the refill does not have yet."""
        self._in_memory: dict[int, dict[int, None]] = {}
        """By shard, in order: the segments whose frames are here."""
        self._redundants: dict[int, dict[int, Any]] = {}
        self._spilled: WeakValueDictionary[tuple[SegmentKey, int], SegmentPromise] = WeakValueDictionary()
        """By key and destination: promises of segments that are spilled and not delivered."""

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, key: SegmentKey, frame: bytes, redundant: Any, promise: SegmentPromise, now: float) -> None:
        shard, segment = key
        assert segment == self.next.get(shard, 0), "segments of a shard are put one after the other"
        self.next[shard] = segment + 1
        self._segments[key] = _Segment(frame, promise, set(range(len(self.destinations))), now)
        in_memory = self._in_memory.get(shard)
        if in_memory is None:
            in_memory = self._in_memory[shard] = {}
        in_memory[segment] = None
        self.bytes += len(frame)
        if redundant is not None:
            self._redundants.setdefault(shard, {})[segment] = redundant

    def get(self, key: SegmentKey) -> bytes | _Awaited | None:
        held = self._segments.get(key)
        if held is not None:
            return held.frame
        return AWAITED if key.segment >= self.next.get(key.shard, 0) else None

    def next_in_memory(self, key: SegmentKey) -> int:
        """The first segment from ``key`` on that is here, or the number of the next put."""
        found = (segment for segment in self._in_memory.get(key.shard, ()) if segment >= key.segment)
        return next(found, self.next.get(key.shard, 0))

    def ack(self, key: SegmentKey, destination: int, fate: Fate) -> None:
        """A destination confirmed or refused it for good."""
        held = self._segments.get(key)
        if held is None or destination not in held.open:
            promise = self._spilled.pop((key, destination), None)
            if promise is not None:
                promise.settle(destination, fate)
            return
        if held.rejected:
            held.rejected.discard(destination)
            if not held.rejected:
                self.to_write.pop(key, None)
        self._through(key, held, destination, fate)

    def reject(self, key: SegmentKey, destination: int) -> None:
        """A destination does not take it now."""
        held = self._segments.get(key)
        if held is None or destination not in held.open:
            return
        if held.frame is None:
            self._spill(key, held, destination)
        else:
            held.rejected.add(destination)
            self.to_write[key] = None

    def keep(self, key: SegmentKey, destination: int, fate: Fate) -> None:
        """A destination refuses it from this producer: its promise is settled so, and the refill keeps it."""
        held = self._segments.get(key)
        if held is not None and destination in held.open:
            held.refused.add(destination)
            held.promise.settle(destination, fate)
            self.reject(key, destination)

    def rejected(self) -> list[SegmentKey]:
        """The segments to write to the refill, by shard and segment."""
        return sorted(self.to_write)

    def claims(self, key: SegmentKey) -> tuple[list[int], list[int]]:
        """Of a held segment: the destinations that rejected it, and those that are through with it."""
        held = self._segments[key]
        through = [index for index in range(len(self.destinations)) if index not in held.open]
        return sorted(held.rejected), through

    def written(self, keys: Iterable[SegmentKey]) -> None:
        """The refill has them, and they leave memory."""
        for key in keys:
            held = self._segments.get(key)
            if held is None or held.frame is None:
                continue  # every destination was through with it while it was written
            self.to_write.pop(key, None)
            self._release(key, held)
            for destination in sorted(held.rejected):
                self._spill(key, held, destination)
            held.rejected.clear()

    def open_at(self, destination: int) -> list[SegmentKey]:
        """The segments that a destination is not through with."""
        return [key for key, held in self._segments.items() if destination in held.open]

    def older_than(self, put_before: float) -> list[tuple[SegmentKey, tuple[int, ...]]]:
        """The segments put before then, and the destinations that neither answered nor rejected them."""
        found = []
        for key, held in self._segments.items():
            if held.put_at > put_before:
                break
            waiting = held.open - held.rejected
            if waiting:
                found.append((key, tuple(waiting)))
        return found

    @property
    def oldest_at(self) -> float:
        """When the oldest segment was put that a destination neither answered nor rejected."""
        for held in self._segments.values():
            if len(held.open) > len(held.rejected):  # a destination that rejected it is open
                return held.put_at
        return inf

    def redundants(self, key: SegmentKey) -> list[Any]:
        """Those of a segment in memory and of all after it."""
        known = self._redundants[key.shard]
        return [known[segment] for segment in range(key.segment, self.next[key.shard])]

    def give_up(self, key: SegmentKey, fate: Fate) -> None:
        """Refuses it at every destination that is open."""
        held = self._segments.get(key)
        if held is not None:
            self.to_write.pop(key, None)
            for destination in sorted(held.open):
                self._through(key, held, destination, fate)

    def withdraw(self) -> list[tuple[bytes, SegmentPromise]]:
        """Takes out all frames in memory, in the order they were put."""
        found = []
        for key, held in list(self._segments.items()):
            if held.frame is not None:
                found.append((held.frame, held.promise))
                self.to_write.pop(key, None)
                self.bytes -= len(held.frame)
                del self._segments[key], self._in_memory[key.shard][key.segment]
        return found

    # --- promises of spilled segments ---------------------------------------------------------------------

    def follow(self, earlier: Exchange) -> None:
        """Segments that were spilled through another exchange of this block are delivered through this one."""
        self._spilled.update(earlier._spilled)

    def follow_parts(self, earlier: Exchange, block: bytes, parts: Parts) -> None:
        """The same for rows that had no shard, which are in segments of ``block`` now."""
        made: dict[SegmentKey, list[SegmentPromise]] = {}
        for (key, destination), promise in list(earlier._spilled.items()):
            for at, (new_key, rows, places) in enumerate(parts.get(key, ())):
                known = made.setdefault(key, [])
                if at == len(known):
                    known.append(promise.part(new_key.shard, rows, places))
                    known[at].block, known[at].segment = block, new_key.segment
                self._spilled[new_key, destination] = known[at]

    def awaited(self) -> frozenset[SegmentKey]:
        """The spilled segments whose promise somebody holds."""
        return frozenset(key for key, _ in self._spilled)

    def forget(self) -> None:
        """The promises of spilled segments will not be settled again."""
        waiting, self._spilled = list(self._spilled.values()), WeakValueDictionary()
        for promise in waiting:
            promise.forget()

    # --- through ------------------------------------------------------------------------------------------

    def _spill(self, key: SegmentKey, held: _Segment, destination: int) -> None:
        if destination in held.refused:
            self._through(key, held, destination, None)
            return
        self._spilled[key, destination] = held.promise
        name = self.destinations[destination]
        fate = Fate(Outcome.SPILLED, name, None, self._durability, reason=self._why(destination))
        self._through(key, held, destination, fate)

    def _through(self, key: SegmentKey, held: _Segment, destination: int, fate: Fate | None) -> None:
        held.open.discard(destination)
        if not held.open:
            if held.frame is not None:
                self._release(key, held)
            self._segments.pop(key, None)
        if fate is not None:
            held.promise.settle(destination, fate)

    def _release(self, key: SegmentKey, held: _Segment) -> None:
        assert held.frame is not None
        self.bytes -= len(held.frame)
        held.frame = None
        in_memory = self._in_memory[key.shard]
        del in_memory[key.segment]
        known = self._redundants.get(key.shard)
        if known:
            # A snapshot is made at a segment in memory only, and needs the redundants from there on.
            lowest = next(iter(in_memory), self.next[key.shard])
            for segment in list(takewhile(lambda segment: segment < lowest, known)):
                del known[segment]
        held.promise.free()
