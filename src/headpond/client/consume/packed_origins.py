"""The origins of the segments of a packed record, made one by one when a program asks for them."""

from __future__ import annotations

from array import array
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
    def facts(self) -> SegmentFacts:
        facts, places = self._facts, self._places
        return SegmentFacts(self._firsts[places], facts.numbers[places], facts.blocks, facts.places[places])

    def __len__(self) -> int:
        return int(self._places.stop - self._places.start)

    def __iter__(self) -> Iterator[Origin]:
        record, (firsts, numbers, blocks, places) = self._record, self.facts
        return map(
            Origin,
            repeat(record.topic),
            repeat(record.shard),
            firsts,
            map(blocks.__getitem__, places.tolist()),
            numbers.tolist(),
            self.stored_at_us,
            repeat(record.node),
            self.counts,
            repeat(record.life),
        )

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
    """The first entry and the number of each segment, and the place of its block in ``blocks``."""

    firsts: Sequence[int]
    numbers: memoryview[int]
    blocks: list[bytes]
    places: memoryview[int]


def segment_facts(origins: Sequence[Origin]) -> SegmentFacts:
    if isinstance(origins, PackedOrigins):
        return origins.facts
    blocks = {block: place for place, block in enumerate(dict.fromkeys(each.block for each in origins))}
    numbers, places = (
        array("Q", (each.segment for each in origins)),
        array("Q", (blocks[each.block] for each in origins)),
    )
    return SegmentFacts(
        [each.first_entry for each in origins], memoryview(numbers), list(blocks), memoryview(places)
    )


def counts_of(origins: Sequence[Origin]) -> list[int]:
    """The rows of each segment."""
    return origins.counts if isinstance(origins, PackedOrigins) else [each.count for each in origins]


def stored_times_of(origins: Sequence[Origin]) -> list[int]:
    """When each segment was stored."""
    return (
        origins.stored_at_us if isinstance(origins, PackedOrigins) else [each.stored_at_us for each in origins]
    )
