"""One shard from a source to a sink: which heads to read next, which records to copy, when to rewind.

A stream knows a position: up to which entry the sink has the source's log, and the last record before it. It
reads heads from that record on, so every answer shows whether the log is still the same. If it is not (the
source was restored from an old copy, or the topic is a new one of the same name), the stream rewinds to the
first entry. That costs heads, not messages: the sink says of each head whether it wants the record, and only
those are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headpond.wire.control.links import WANTED, BlockName, Heads, RecordHead, SourcePosition

PART_BYTES = 4 * 1024 * 1024
"""Copied and admitted at a time, unless a single record is larger."""


class NewHeads(NamedTuple):
    """Heads behind the position, to be offered to the sink."""

    heads: list[RecordHead]
    blocks: dict[bytes, BlockName]
    end: SourcePosition
    """The position behind all of them."""
    lost: int
    """Entries that the source has lost."""


class CopyPart(NamedTuple):
    """Records to copy, refusals among them in their order; when they are admitted, the sink is at ``place``."""

    heads: list[RecordHead]
    place: SourcePosition

    @property
    def start(self) -> int:
        """The first entry to fetch."""
        return next((head.first_entry for head in self.heads if head.count), self.end)

    @property
    def end(self) -> int:
        """One past the last."""
        return self.heads[-1].end_entry if self.heads else self.place.entry


class PeerStream:
    def __init__(self, shard: int, place: SourcePosition | None) -> None:
        self.shard = shard
        self.place = place
        """None until the source has named its topic."""
        self.entry_end = 0
        """The end of the source's log, as far as known."""
        self.checked = place is None
        """Whether the source's log is known to be the one of the position."""
        self.rewinds_total = 0
        """How often it has rewound in all."""
        self.rewinds = 0
        """How often it has rewound since ``take_rewinds``."""

    @property
    def lag(self) -> int:
        return max(self.entry_end - (self.place.entry if self.place is not None else 0), 0)

    def meet(self, uuid: bytes, entry_end: int) -> None:
        """The source named its topic and the end of its log; heads may have shown a later end since."""
        if self.place is not None and self.place.uuid == uuid:
            self.entry_end = max(self.entry_end, entry_end)
            return
        self.entry_end = entry_end
        if self.place is None:
            self.place = SourcePosition(uuid, 0)
        else:
            self._rewind(uuid)

    def _rewind(self, uuid: bytes) -> None:
        self.rewinds += 1
        self.rewinds_total += 1
        self.place = SourcePosition(uuid, 0)

    def take_rewinds(self) -> int:
        rewinds, self.rewinds = self.rewinds, 0
        return rewinds

    @property
    def behind(self) -> bool:
        """Whether heads must be read: for new records, or to check that the log is still the same."""
        return self.place is not None and (self.lag > 0 or not self.checked)

    def ask(self) -> int:
        """The entry to read heads from."""
        assert self.place is not None, "the source has not named its topic"
        last = self.place.last
        return last.first_entry if last is not None else self.place.entry

    def on_heads(self, heads: Heads) -> NewHeads | None:
        """The new ones among the heads; None if the log is another one, and is read from its start."""
        place = self.place
        assert place is not None, "the source has not named its topic"
        self.entry_end = heads.entry_end
        self.checked = True
        if heads.entry_end < place.entry or not _continues(place, heads.heads):
            self._rewind(place.uuid)
            return None
        new = [head for head in heads.heads if head.first_entry >= place.entry]
        end = SourcePosition(place.uuid, max(heads.entry_next, place.entry), _last(new, place))
        lost = sum(stop - max(start, place.entry) for start, stop in heads.lost if stop > place.entry)
        return NewHeads(new, heads.blocks, end, lost)

    def parts(self, new: NewHeads, verdicts: Sequence[int]) -> list[CopyPart]:
        """The records to copy, in order and in parts; the position of the last part is behind all heads."""
        parts: list[CopyPart] = []
        run: list[RecordHead] = []
        size = 0
        for head, verdict in zip(new.heads, verdicts, strict=True):
            if verdict != WANTED:
                continue
            gap = head.count > 0 and bool(run) and run[-1].end_entry != head.first_entry
            if run and (gap or size + head.size > PART_BYTES):
                parts.append(self._part(run))
                run, size = [], 0
            run.append(head)
            size += head.size
        if run:
            parts.append(self._part(run))
        if parts and parts[-1].place.entry == new.end.entry:
            return [*parts[:-1], parts[-1]._replace(place=new.end)]
        return [*parts, CopyPart([], new.end)]

    def _part(self, run: list[RecordHead]) -> CopyPart:
        assert self.place is not None
        return CopyPart(run, SourcePosition(self.place.uuid, run[-1].end_entry, _last(run, self.place)))

    def on_admitted(self, place: SourcePosition) -> None:
        """Everything before ``place`` is durable at the sink."""
        self.place = place


def _last(heads: Sequence[RecordHead], before: SourcePosition) -> RecordHead | None:
    """The last record of a position behind these heads."""
    return next((_remembered(head) for head in reversed(heads) if head.count), before.last)


def _remembered(head: RecordHead) -> RecordHead:
    """A head as a position remembers it."""
    return msgspec.structs.replace(head, size=0, refusal=b"")


def _continues(place: SourcePosition, heads: Sequence[RecordHead]) -> bool:
    """Whether the log still has the position's last record where it was, or has dropped it.

    A log only grows, so everything before that record is unchanged too. The time at which it was stored is
    compared as well: a source that was restored from an old copy may store the same record at the same entry
    again, behind other records than before.
    """
    if place.last is None:
        return True
    before = [head for head in heads if head.count and head.first_entry < place.entry]
    return not before or _remembered(before[-1]) == place.last
