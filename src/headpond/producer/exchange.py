"""The exchange: segments between the encoder and the destinations, with a promise each.

A segment is put here once and leaves when every destination is *through* with it: it confirmed or refused it,
or the segment stands in the refill for it.

=============  ==========================================  ====================================================
call           the segment is                              outcome
=============  ==========================================  ====================================================
``put``        new                                         kept; every destination is open
``get``        not put yet                                 ``AWAITED``
``get``        in memory                                   its frame
``get``        in the refill, or gone                      None: look in the refill
``ack``        open at the destination                     its promise hears it; gone when no one is open
``ack``        through (spilled before)                    its promise, if somebody still holds it, hears it
``reject``     in memory, open                             to be written to the refill: ``rejected`` names it
``reject``     in the refill, open                         spilled at once
``keep``       open at the destination                     as ``reject``, but its promise hears of a refusal
``written``    rejected                                    memory is free; spilled where it was rejected
``shutdown``   any                                         all that is open is rejected, nothing is put any more
``forget``     spilled                                     its promise hears that nobody will tell it more
=============  ==========================================  ====================================================

An ack comes here before it reaches the disk, because the refill loop takes a segment out of memory only after
it was written: whatever is not here is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.model.receipt import Durability, Fate, Outcome


class _Awaited:
    pass


AWAITED: Final = _Awaited()
"""``get``: this segment has not been put yet."""


class Promise(Protocol):
    """Whoever waits for a segment."""

    def settle(self, destination: int, fate: Fate) -> None:
        """What became of it there. After ``spilled`` a second one may follow, when it was delivered."""

    def free(self) -> None:
        """Its bytes are not in memory any more."""

    def forget(self) -> None:
        """It is spilled, and nobody here will hear when it is delivered."""


class _Held:
    __slots__ = ("frame", "open", "promise", "put_at", "rejected", "told")

    def __init__(self, frame: bytes, promise: Promise, open_: set[int], put_at: float) -> None:
        self.frame: bytes | None = frame
        """None once it stands in the refill."""
        self.promise = promise
        self.open = open_
        self.rejected: set[int] = set()
        self.told: set[int] = set()
        """Destinations whose refusal was told already; it goes to the refill all the same."""
        self.put_at = put_at


class Exchange:
    def __init__(
        self,
        destinations: tuple[str, ...],
        first: dict[int, int] | None = None,
        why: Callable[[int], HeadpondError | None] = lambda destination: None,
    ) -> None:
        """``why`` says why a destination does not take what is spilled for it."""
        self.destinations = destinations
        self._why = why
        self.bytes = 0
        """Bytes of frames in memory."""
        self.next: dict[int, int] = dict(first or {})
        """By shard: one past the last segment put."""
        self._held: dict[SegmentKey, _Held] = {}
        self._rejected: dict[SegmentKey, None] = {}
        self._in_memory: dict[int, dict[int, None]] = {}
        """By shard, in order: the segments whose frames are here."""
        self._redundants: dict[int, dict[int, Any]] = {}
        self._spilled: WeakValueDictionary[tuple[SegmentKey, int], Promise] = WeakValueDictionary()
        """Spilled and not delivered: who may want to hear of that, by key and destination."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._held)

    def put(self, key: SegmentKey, frame: bytes, redundant: Any, promise: Promise, now: float) -> None:
        assert not self._closed, "nothing is put after a shutdown"
        assert key.segment == self.next.get(key.shard, 0), "segments of a shard are put one after the other"
        self.next[key.shard] = key.segment + 1
        self._held[key] = _Held(frame, promise, set(range(len(self.destinations))), now)
        self._in_memory.setdefault(key.shard, {})[key.segment] = None
        self.bytes += len(frame)
        if redundant is not None:
            self._redundants.setdefault(key.shard, {})[key.segment] = redundant

    def get(self, key: SegmentKey) -> bytes | _Awaited | None:
        held = self._held.get(key)
        if held is not None:
            return held.frame
        return AWAITED if key.segment >= self.next.get(key.shard, 0) else None

    def next_in_memory(self, key: SegmentKey) -> int:
        """The first segment at or behind ``key`` that is here, or that will be put next."""
        found = (segment for segment in self._in_memory.get(key.shard, ()) if segment >= key.segment)
        return next(found, self.next.get(key.shard, 0))

    def ack(self, key: SegmentKey, destination: int, fate: Fate) -> None:
        """A destination confirmed or refused it for good."""
        held = self._held.get(key)
        if held is None or destination not in held.open:
            promise = self._spilled.pop((key, destination), None)
            if promise is not None:
                promise.settle(destination, fate)
        else:
            held.rejected.discard(destination)
            if not held.rejected:
                self._rejected.pop(key, None)
            self._through(key, held, destination, fate)

    def reject(self, key: SegmentKey, destination: int, durability: Durability) -> bool:
        """A destination does not take it now; whether it was open there."""
        held = self._held.get(key)
        if held is None or destination not in held.open:
            return False
        if held.frame is None:
            self._spill(key, held, destination, durability)
        else:
            held.rejected.add(destination)
            self._rejected[key] = None
        return True

    def keep(self, key: SegmentKey, destination: int, fate: Fate, durability: Durability) -> None:
        """A destination refuses it from this producer: its promise hears that, and the refill keeps it."""
        held = self._held.get(key)
        if held is not None and destination in held.open:
            held.told.add(destination)
            held.promise.settle(destination, fate)
            self.reject(key, destination, durability)

    def rejected(self) -> list[SegmentKey]:
        """What is to be written to the refill, by shard and segment."""
        return sorted(self._rejected)

    def claims(self, key: SegmentKey) -> tuple[list[int], list[int]]:
        """Of a segment that is held: the destinations that rejected it, and those that are through with it."""
        held = self._held[key]
        through = [index for index in range(len(self.destinations)) if index not in held.open]
        return sorted(held.rejected), through

    @property
    def has_rejected(self) -> bool:
        return bool(self._rejected)

    def written(self, keys: Iterable[SegmentKey], durability: Durability) -> None:
        """They stand in the refill, as durable as is said, and leave memory."""
        for key in keys:
            held = self._held.get(key)
            if held is None or held.frame is None:
                continue  # every destination was through with it while it was written
            self._rejected.pop(key, None)
            self._release(key, held)
            for destination in sorted(held.rejected):
                self._spill(key, held, destination, durability)
            held.rejected.clear()

    def open_at(self, destination: int) -> list[SegmentKey]:
        """What a destination is not through with."""
        return [key for key, held in self._held.items() if destination in held.open]

    def older_than(self, put_before: float) -> list[tuple[SegmentKey, tuple[int, ...]]]:
        """What has waited since before then, and at which destinations, unless it is rejected already."""
        found = []
        for key, held in self._held.items():
            if held.put_at > put_before:
                break
            waiting = held.open - held.rejected
            if waiting:
                found.append((key, tuple(waiting)))
        return found

    @property
    def oldest_at(self) -> float | None:
        """When the oldest segment that nobody rejected yet was put."""
        return next((held.put_at for held in self._held.values() if held.open - held.rejected), None)

    def redundants(self, key: SegmentKey) -> list[Any] | None:
        """Those of this segment and all behind it; None if one of them is gone."""
        known = self._redundants.get(key.shard, {})
        wanted = range(key.segment, self.next.get(key.shard, 0))
        return [known[segment] for segment in wanted] if all(s in known for s in wanted) else None

    def give_up(self, key: SegmentKey, fate: Fate) -> None:
        """It is refused at every destination that is open."""
        held = self._held.get(key)
        if held is not None:
            self._rejected.pop(key, None)
            for destination in sorted(held.open):
                self._through(key, held, destination, fate)

    def shutdown(self, durability: Durability) -> None:
        """All that is open is rejected; nothing is put any more."""
        self._closed = True
        for key, held in list(self._held.items()):
            for destination in list(held.open):
                self.reject(key, destination, durability)

    def follow(self, earlier: Exchange) -> None:
        """What was spilled through another exchange of this block is delivered through this one."""
        self._spilled.update(earlier._spilled)

    def forget(self) -> None:
        """Nobody hears of what is spilled any more."""
        waiting, self._spilled = list(self._spilled.values()), WeakValueDictionary()
        for promise in waiting:
            promise.forget()

    def _spill(self, key: SegmentKey, held: _Held, destination: int, durability: Durability) -> None:
        if destination in held.told:
            self._through(key, held, destination, None)
            return
        self._spilled[key, destination] = held.promise
        name = self.destinations[destination]
        fate = Fate(Outcome.SPILLED, name, None, durability, reason=self._why(destination))
        self._through(key, held, destination, fate)

    def _through(self, key: SegmentKey, held: _Held, destination: int, fate: Fate | None) -> None:
        held.open.discard(destination)
        if not held.open:
            if held.frame is not None:
                self._release(key, held)
            self._held.pop(key, None)
        if fate is not None:
            held.promise.settle(destination, fate)

    def _release(self, key: SegmentKey, held: _Held) -> None:
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
