"""One shard of a topic on its way from a source to a sink: what to ask next, what to fetch, when to begin anew.

The machine knows a place: how far the sink has the source's log, and the last record before it. It asks for
heads from that last record on, so that every answer begins by showing whether the log is still the one it was.
If not (a shorter log, another record in that place: the source was restored from an old copy, or the topic is a
new one of the same name) it begins at the first entry there is. That costs heads, not
messages: the sink says of each whether it is wanted, and only those are fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headpond.wire.control.links import WANTED, BlockName, Heads, RecordHead, SourcePosition

PART_BYTES = 4 * 1024 * 1024
"""Fetched and admitted at a time, unless a single record is larger."""


class Batch(NamedTuple):
    """Heads that the sink has not been asked about."""

    heads: list[RecordHead]
    blocks: dict[bytes, BlockName]
    end: SourcePosition
    """Where all of them are through."""
    lost: int
    """Entries that the source does not have any more."""


class Part(NamedTuple):
    """Records to bring, refusals among them in their order; when they are admitted the sink is at ``place``."""

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
        self.entry_end = 0
        """How far the source's log reaches, as far as is known."""
        self.checked = place is None
        """Whether the log was seen to be the one that the place is in."""
        self.begun = 0
        """How often it began anew in all."""
        self.rewinds = 0
        """How often it began anew since somebody asked last."""

    @property
    def lag(self) -> int:
        return max(self.entry_end - (self.place.entry if self.place is not None else 0), 0)

    def meet(self, uuid: bytes, entry_end: int) -> None:
        """The source told how its shard is, or was a moment ago: heads may have told of more since."""
        place = self.place
        if place is not None and place.uuid == uuid:
            self.entry_end = max(self.entry_end, entry_end)
            return
        self.entry_end = entry_end
        if place is None:
            self.place = SourcePosition(uuid, 0)
        else:
            self._rewind(SourcePosition(uuid, 0))

    def _rewind(self, place: SourcePosition) -> None:
        self.rewinds += 1
        self.begun += 1
        self.place = place

    def take_rewinds(self) -> int:
        rewinds, self.rewinds = self.rewinds, 0
        return rewinds

    @property
    def behind(self) -> bool:
        """Whether the source is to be asked: for what is there, or whether its log is still the same."""
        return self.place is not None and (self.lag > 0 or not self.checked)

    def ask(self) -> int:
        """The entry to read heads from."""
        assert self.place is not None, "it has met its source"
        last = self.place.last
        return last.first_entry if last is not None else self.place.entry

    def on_heads(self, heads: Heads) -> Batch | None:
        """What is new among them; None where the log is another one: everything is asked for again."""
        place = self.place
        assert place is not None, "it has met its source"
        self.entry_end = heads.entry_end
        self.checked = True
        if heads.entry_end < place.entry or not _continues(place, heads.heads):
            self._rewind(SourcePosition(place.uuid, 0))
            return None
        fresh = [head for head in heads.heads if head.first_entry >= place.entry]
        stored = [head for head in fresh if head.count]
        last = remembered(stored[-1]) if stored else place.last
        end = SourcePosition(place.uuid, max(heads.entry_next, place.entry), last)
        lost = sum(stop - max(start, place.entry) for start, stop in heads.lost if stop > place.entry)
        return Batch(fresh, heads.blocks, end, lost)

    def parts(self, batch: Batch, verdicts: Sequence[int]) -> list[Part]:
        """What is to be fetched of a batch, in order and in pieces; the last one ends at its end."""
        assert self.place is not None and len(verdicts) == len(batch.heads)
        parts: list[Part] = []
        run: list[RecordHead] = []
        size = 0
        for head, verdict in zip(batch.heads, verdicts, strict=True):
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
        if parts and parts[-1].place.entry == batch.end.entry:
            return [*parts[:-1], parts[-1]._replace(place=batch.end)]
        return [*parts, Part([], batch.end)]

    def _part(self, run: list[RecordHead]) -> Part:
        assert self.place is not None
        last = next((remembered(head) for head in reversed(run) if head.count), self.place.last)
        return Part(run, SourcePosition(self.place.uuid, run[-1].end_entry, last))

    def on_admitted(self, place: SourcePosition) -> None:
        """Everything before ``place`` is durable at the sink."""
        self.place = place


def remembered(head: RecordHead) -> RecordHead:
    """A head as it is remembered in a place."""
    place = (head.first_entry, head.count, head.block, head.segment)
    return RecordHead(*place, head.origin_crc, 0, head.stored_at_us)


def _continues(place: SourcePosition, heads: Sequence[RecordHead]) -> bool:
    """Whether the log still has the place's last record where it was, or nothing there any more.

    It is the same one by the time that it was stored too: a log only grows, so all before it is the same then.
    A source that was restored from an old copy may have stored the same record in the same place once more,
    behind others than before.
    """
    last = place.last
    if last is None:
        return True
    there = [head for head in heads if head.count and head.first_entry < place.entry]
    return not there or remembered(there[-1]) == last
