"""The origins of the segments of a packed record, made one by one when a program asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate, repeat
from typing import NamedTuple, overload

from headpond.model.message import Origin
from headpond.wire.plain.packed import PackedFacts


class PackedOrigins(Sequence[Origin]):
    """Of all segments, or of some neighbours among them."""

    def __init__(self, facts: PackedFacts, first: Origin) -> None:
        """``first`` is the origin of the record itself."""
        self._facts = facts
        self._record = first
        self._firsts: Sequence[int] = range(first.first_entry, first.first_entry + facts.rows)
        if facts.rows > len(facts.counts):
            self._firsts = list(accumulate(facts.counts, initial=first.first_entry))
        self._places = slice(0, len(facts.counts))

    @property
    def counts(self) -> list[int]:
        return self._facts.counts[self._places].tolist()

    @property
    def stored_at_us(self) -> list[int]:
        return self._facts.stored_at_us[self._places].tolist()

    @property
    def firsts(self) -> Sequence[int]:
        return self._firsts[self._places]

    @property
    def blocks(self) -> list[bytes]:
        return list(map(self._facts.blocks.__getitem__, self._facts.places[self._places].tolist()))

    @property
    def numbers(self) -> list[int]:
        return self._facts.numbers[self._places].tolist()

    def __len__(self) -> int:
        return int(self._places.stop - self._places.start)

    def __iter__(self) -> Iterator[Origin]:
        record = self._record
        facts = (self.firsts, self.blocks, self.numbers, self.stored_at_us)
        shared = (repeat(record.node), self.counts, repeat(record.life))
        return map(Origin, repeat(record.topic), repeat(record.shard), *facts, *shared)

    @overload
    def __getitem__(self, index: int) -> Origin: ...
    @overload
    def __getitem__(self, index: slice) -> PackedOrigins: ...
    def __getitem__(self, index: int | slice) -> Origin | PackedOrigins:
        places = range(self._places.start, self._places.stop)[index]
        some = copy(self)
        if isinstance(places, int):
            some._places = slice(places, places + 1)
            return next(iter(some))
        assert places.step == 1, "some neighbours"
        some._places = slice(places.start, places.stop)
        return some


class SegmentFacts(NamedTuple):
    """The first entry, the block and the number of each segment."""

    firsts: Sequence[int]
    blocks: Sequence[bytes]
    numbers: Sequence[int]


def segment_facts(origins: Sequence[Origin]) -> SegmentFacts:
    if isinstance(origins, PackedOrigins):
        return SegmentFacts(origins.firsts, origins.blocks, origins.numbers)
    facts = ((each.first_entry, each.block, each.segment) for each in origins)
    return SegmentFacts(*zip(*facts, strict=True))


def counts_of(origins: Sequence[Origin]) -> list[int]:
    """The rows of each segment."""
    return origins.counts if isinstance(origins, PackedOrigins) else [each.count for each in origins]


def stored_times_of(origins: Sequence[Origin]) -> list[int]:
    """When each segment was stored."""
    return (
        origins.stored_at_us if isinstance(origins, PackedOrigins) else [each.stored_at_us for each in origins]
    )
